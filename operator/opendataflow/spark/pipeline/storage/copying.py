"""Write the rows of a frame into a Postgres table by COPY, the fastest way.

Spark's JVM renders each row as a line of CSV with compiled code. Arrow passes blocks of many thousand lines to Python
workers, which send the blocks unchanged. Python never parses a row. Each Spark task has its own connection and
transaction, as with Spark's writer.
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
    """Return whether all types of a frame can be written by COPY and pyarrow is installed."""
    return all(_is_known(field.dataType) for field in frame.schema) and find_spec("pyarrow") is not None


def copy_rows(frame: DataFrame, connection: Mapping[str, str], setup: Sequence[str], copy: str, place: str) -> None:
    """Write the rows of a frame.

    `connection`: parameters of libpq. `setup`: statements to run first on each connection. `copy`: the COPY statement.
    Raises StepFailed if the database refuses the rows.
    """
    lines = frame.select(F.concat(*_csv_cells(frame), F.lit("\n")).alias("line"))
    sent = lines.mapInArrow(_make_sender(dict(connection), [*setup], copy, frame.columns), "refused string")
    refused = next((row["refused"] for row in sent.collect()), None)
    if refused is not None:
        raise StepFailed(f"{place}: {refused}")


def _make_sender(
    connection: Mapping[str, str], setup: Sequence[str], copy: str, columns: Sequence[str]
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    # `send` runs on workers. Workers receive the function and its closure, and none of this module.
    find_nul, describe = _make_nul_finder(columns), _make_error_describer()

    def send(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import psycopg  # on a worker
        import pyarrow  # see above

        refused = None
        try:
            # The keys are libpq's parameters. The type of connect() lists each parameter.
            with psycopg.connect(**connection) as opened, opened.cursor() as cursor:  # type: ignore[arg-type]  # see above
                for statement in setup:
                    cursor.execute(statement)
                with cursor.copy(copy) as copying:
                    for batch in batches:
                        column = batch.column(0)
                        if len(column):
                            _, offsets, text = column.buffers()
                            ends = memoryview(offsets).cast("q" if pyarrow.types.is_large_string(column.type) else "i")
                            lines = memoryview(text)[ends[column.offset] : ends[column.offset + len(column)]]
                            refused = find_nul(lines)
                            if refused is not None:
                                break
                            copying.write(lines)
        except psycopg.Error as error:
            refused = describe(error)
        if refused is not None:
            yield pyarrow.RecordBatch.from_pydict({"refused": [refused]})
            for _ in batches:  # Spark waits until all batches are read
                pass

    return send


def _make_nul_finder(columns: Sequence[str]) -> Callable[[memoryview], str | None]:
    def find_nul(lines: memoryview) -> str | None:
        """Return one sentence that names the column with a NUL character. Postgres' own error names none."""
        import csv  # on a worker
        import re  # see above

        if re.search(b"\0", lines) is None:
            return None
        csv.field_size_limit(len(lines))
        rows = csv.reader(bytes(lines).decode("utf-8", "replace").splitlines(keepends=True))
        found = next(name for row in rows for name, cell in zip(columns, row, strict=True) if "\0" in cell)
        return f"a text has the character NUL, which Postgres does not take: remove it (column {found})"

    return find_nul


def _make_error_describer() -> "Callable[[psycopg.Error], str]":
    def describe(error: "psycopg.Error") -> str:
        import re  # on a worker

        message, severity = error.diag.message_primary, error.diag.severity
        of = re.search(r", column (.*?)(:|$)", error.diag.context or "")
        text = f"{severity}: {message}" if message else " ".join(str(error).split())
        return f"{text} (column {of[1]})" if of else text

    return describe


def _csv_cells(frame: DataFrame) -> Iterator[Column]:
    """Yield the cells of a line of CSV, and the commas between the cells."""
    for number, field in enumerate(frame.schema):
        if number:
            yield F.lit(",")
        value = F.col(f"`{field.name.replace('`', '``')}`")
        text = _text(value, field.dataType)
        if isinstance(field.dataType, (*_TEXT, ArrayType)):
            text = _between('"', F.replace(text, F.lit('"'), F.lit('""')), '"')
        yield F.coalesce(text, F.lit(""))  # an unquoted empty cell is NULL


def _is_known(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_known(kind.elementType)
    return isinstance(kind, (*_PLAIN, *_TEXT))


def _text(value: Column, kind: DataType) -> Column:
    """Return a value as Postgres parses the text. NULL stays NULL."""
    if isinstance(kind, ArrayType):
        return _between("{", F.array_join(F.transform(value, lambda each: _element(each, kind.elementType)), ","), "}")
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(value))
    if isinstance(kind, DateType):
        return _date_text(value, "")
    if isinstance(kind, TimestampNTZType):
        return _date_text(value, " HH:mm:ss.SSSSSS")
    if isinstance(kind, TimestampType):  # in UTC, independent of the session's time zone
        at = F.timestamp_add("MICROSECOND", F.unix_micros(value), F.lit("1970-01-01").cast("timestamp_ntz"))
        return _date_text(at, " HH:mm:ss.SSSSSS")
    return value.cast("string")


def _date_text(value: Column, clock: str) -> Column:
    """Return a date or time. Postgres writes the years -0043 and +10000 as 44 BC and 10000."""
    begins, ends = (F.lit(day).cast("date") for day in ("0001-01-01", "9999-12-31"))
    return (
        F.when((value >= begins) & (value < ends), value.cast("string"))
        .when(value < begins, F.date_format(value, f"yyyy-MM-dd{clock} G"))
        .otherwise(F.date_format(value, f"y-MM-dd{clock}"))
    )


def _element(value: Column, kind: DataType) -> Column:
    text = _text(value, kind)
    if isinstance(kind, (*_TEXT, BinaryType)):
        escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
        text = _between('"', escaped, '"')
    return F.coalesce(text, F.lit("NULL"))


def _between(before: str, value: Column, after: str) -> Column:
    return F.concat(F.lit(before), value, F.lit(after))
