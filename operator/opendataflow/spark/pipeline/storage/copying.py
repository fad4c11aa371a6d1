"""Writes the rows of a frame into a table by COPY, the quickest way into Postgres.

Spark's JVM makes a line of CSV of each row, with code that it compiles. Arrow hands the lines on to Python workers in
blocks of many thousands, and they go to the database as they are: no row is ever looked at in Python. Each Spark task
has a connection and a transaction of its own, as with Spark's writer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from opendataflow.errors import StepFailed

if TYPE_CHECKING:
    import psycopg
    import pyarrow

_PLAIN = (NullType, NumericType, BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType)
_TEXT = (StringType, CharType, VarcharType)


def can_copy(frame: DataFrame) -> bool:
    """Whether it is known here how the types of a frame are written, and what is needed for it is installed."""
    return all(_is_known(field.dataType) for field in frame.schema) and find_spec("pyarrow") is not None


def copy_rows(frame: DataFrame, connection: Mapping[str, str], first: Sequence[str], copy: str, place: str) -> None:
    """Write the rows. `connection`: parameters of libpq. `first`: statements that a connection begins with. `copy`:
    the statement that takes CSV. Raises StepFailed where the database does not take them."""
    lines = frame.select(F.concat(*_separated(frame), F.lit("\n")).alias("line"))
    sent = lines.mapInArrow(_sender(dict(connection), [*first], copy, frame.columns), "refused string")
    refused = next((row["refused"] for row in sent.collect()), None)
    if refused is not None:
        raise StepFailed(f"{place}: {refused}")


def _sender(
    connection: Mapping[str, str], first: Sequence[str], copy: str, columns: Sequence[str]
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    # It runs on workers, which have this function, and what it is given here, and none of its module.
    nul_in, says = _nul_finder(columns), _teller()

    def send(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import psycopg
        import pyarrow

        refused = None
        try:
            # Its names are those of libpq, which the types of connect() list one by one.
            with psycopg.connect(**connection) as opened, opened.cursor() as cursor:  # type: ignore[arg-type]  # see above
                for statement in first:
                    cursor.execute(statement)
                with cursor.copy(copy) as copying:
                    for batch in batches:
                        column = batch.column(0)
                        if len(column):
                            _, offsets, text = column.buffers()
                            ends = memoryview(offsets).cast("q" if pyarrow.types.is_large_string(column.type) else "i")
                            lines = memoryview(text)[ends[column.offset] : ends[column.offset + len(column)]]
                            refused = nul_in(lines)
                            if refused is not None:
                                break
                            copying.write(lines)
        except psycopg.Error as error:
            refused = says(error)
        if refused is not None:
            yield pyarrow.RecordBatch.from_pydict({"refused": [refused]})
            for _ in batches:  # Spark waits until it is rid of them
                pass

    return send


def _nul_finder(columns: Sequence[str]) -> Callable[[memoryview], str | None]:
    def nul_in(lines: memoryview) -> str | None:
        """Name the column with a character that Postgres refuses, as it names none itself."""
        import csv
        import re

        if re.search(b"\0", lines) is None:
            return None
        csv.field_size_limit(len(lines))
        rows = csv.reader(bytes(lines).decode("utf-8", "replace").splitlines(keepends=True))
        found = next(name for row in rows for name, cell in zip(columns, row, strict=True) if "\0" in cell)
        return f"a text has the character NUL, which Postgres does not take: remove it (column {found})"

    return nul_in


def _teller() -> "Callable[[psycopg.Error], str]":
    def says(error: "psycopg.Error") -> str:
        import re

        said, severity = error.diag.message_primary, error.diag.severity
        of = re.search(r", column (.*?)(:|$)", error.diag.context or "")
        text = f"{severity}: {said}" if said else " ".join(str(error).split())
        return f"{text} (column {of[1]})" if of else text

    return says


def _separated(frame: DataFrame) -> Iterator[Column]:
    for number, field in enumerate(frame.schema):
        if number:
            yield F.lit(",")
        it = F.col(f"`{field.name.replace('`', '``')}`")
        text = _text(it, field.dataType)
        if isinstance(field.dataType, (*_TEXT, ArrayType)):
            text = _between('"', F.replace(text, F.lit('"'), F.lit('""')), '"')
        yield F.coalesce(text, F.lit(""))  # without quotes: NULL


def _is_known(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_known(kind.elementType)
    return isinstance(kind, (*_PLAIN, *_TEXT))


def _text(it: Column, kind: DataType) -> Column:
    """Return a value as Postgres reads it; NULL of NULL."""
    if isinstance(kind, ArrayType):
        return _between("{", F.array_join(F.transform(it, lambda each: _element(each, kind.elementType)), ","), "}")
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(it))
    if isinstance(kind, DateType):
        return _dated(it, "")
    if isinstance(kind, TimestampNTZType):
        return _dated(it, " HH:mm:ss.SSSSSS")
    if isinstance(kind, TimestampType):  # in UTC, whatever the session's time zone is
        at = F.timestamp_add("MICROSECOND", F.unix_micros(it), F.lit("1970-01-01").cast("timestamp_ntz"))
        return _dated(at, " HH:mm:ss.SSSSSS")
    return it.cast("string")


def _dated(it: Column, clock: str) -> Column:
    """Postgres has no year -0043 and no year +10000: they are 44 BC and 10000."""
    begins, ends = (F.lit(day).cast("date") for day in ("0001-01-01", "9999-12-31"))
    return (
        F.when((it >= begins) & (it < ends), it.cast("string"))
        .when(it < begins, F.date_format(it, f"yyyy-MM-dd{clock} G"))
        .otherwise(F.date_format(it, f"y-MM-dd{clock}"))
    )


def _element(it: Column, kind: DataType) -> Column:
    text = _text(it, kind)
    if isinstance(kind, (*_TEXT, BinaryType)):
        escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
        text = _between('"', escaped, '"')
    return F.coalesce(text, F.lit("NULL"))


def _between(before: str, it: Column, after: str) -> Column:
    return F.concat(F.lit(before), it, F.lit(after))
