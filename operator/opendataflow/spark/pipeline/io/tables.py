"""Writes the rows of a chunk into a table so that doing it twice equals doing it once.

Spark's many tasks write into a staging table of this attempt. Then one transaction on one connection looks whether the
attempt is still the newest, takes away what was there, moves the rows, and remembers the attempt. Killed at any
moment, it leaves the table as it was, or whole; the next attempt drops the staging table.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from opendataflow.core.chunks.attempts import Attempt, Result, Seen, check_newest
from opendataflow.core.chunks.chunk_parts import Chunk, Part, part_of_destination
from opendataflow.core.chunks.dialects import BigQuery, Statement, Writer, writer_of
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Destination, Pipeline
from opendataflow.spark.pipeline.storage.bigquery import BigQueryConnection
from opendataflow.spark.pipeline.storage.databases import Connection, Login, login

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from opendataflow.spark.pipeline.measure.checks import Doubles


class Opened(Protocol):
    """A database that rows go to: statements, and frames of Spark. Every error is a StepFailed with the place."""

    def transaction(self) -> AbstractContextManager[None]:
        """All of the block or nothing, where the database can do so with any statements."""

    def together(self, first: Statement, *rest: Statement) -> bool:
        """Run all in one transaction, or nothing where the first one changes nothing; return whether it did."""

    def run(self, *statements: Statement) -> object:
        """Run statements."""

    def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a query: few ones."""

    def make(self, frame: "DataFrame", table: str, to: Destination) -> None:
        """Make the table of a destination, with the columns of a frame without rows."""

    def stage(self, frame: "DataFrame", table: str) -> None:
        """Add the rows of a frame to a staging table."""

    def close(self) -> None:
        """Let it go; what is not committed is undone."""


class Table:
    """The table of a destination, for one chunk."""

    def __init__(self, spark: "SparkSession", pipeline: Pipeline, chunk: Chunk, attempt: Attempt, place: str) -> None:
        """`place`: of the destination in the project's file. Raises StepFailed where it can't be written here."""
        destination = pipeline.destination
        assert destination.database is not None
        assert destination.table is not None
        self._spark = spark
        self._given: Login = login(destination.database, place)
        self._to = destination
        self._attempt = attempt
        self._place = place
        try:
            self._sql: Writer = writer_of(self._given.url)
            self._table = self._sql.table(self._given.url, destination.table)
            self._condition = self._condition_of(part_of_destination(pipeline, chunk))
        except InvalidInput as error:
            raise StepFailed(f"{place}: {error}") from None
        self._staging = self._sql.staging_table(self._table, attempt)

    def _condition_of(self, part: Part | None) -> str | None:
        """What is true of the rows that are replaced; None: of all."""
        if part is not None:
            assert part.column is not None
            return self._sql.condition(part.column, part.bounds)
        column = self._to.data_id_column
        return None if column is None else self._sql.condition(column, {"value": self._attempt.data_id})

    def write(self, frame: "DataFrame", passed: "Callable[[Doubles], Seen]") -> Result:
        """Write the rows of a frame. `passed`: says what is known of them when they have passed, and raises where they
        may not be committed.

        Raises StepFailed where the table or the database does not take them, Refused where a newer attempt has begun.
        """
        frame = self._with_data_id(frame)
        connection = self._opened()
        try:
            self._check_schema(connection)
            self._check_all_seen(connection)
            kept = self._begin(connection, frame)
            if kept is not None:
                return kept
            try:
                connection.stage(frame, self._staging)
                rows = self._checked(connection, frame, passed)
            except StepFailed:
                if self._is_overtaken(connection):  # then it has lost its staging table, too
                    self._refuse(connection)
                raise
            return self._take_over(connection, frame, rows)
        finally:
            with suppress(StepFailed):
                self._drop(connection, self._staging)
            connection.close()

    def _opened(self) -> Opened:
        if isinstance(self._sql, BigQuery):
            return BigQueryConnection(self._spark, self._given, self._sql, self._place)
        return Connection(self._spark, self._given, self._sql, self._place)

    def _check_schema(self, connection: Opened) -> None:
        for schema, own, stranger in (it for asked in self._sql.schema(self._table) for it in connection.rows(asked)):
            if own:
                name = self._table.rpartition(".")[2]
                raise StepFailed(
                    f"{self._place}: the table {self._table} would be in the schema {schema}, which is OpenDataFlow's "
                    f"own; write another schema, such as public.{name}"
                )
            if stranger is not None:
                raise StepFailed(
                    f"{self._place}: the user {stranger} may make no tables in the schema {schema}, where rows are "
                    f'staged and attempts remembered: GRANT CREATE ON SCHEMA "{schema}" TO "{stranger}"'
                )

    def _check_all_seen(self, connection: Opened) -> None:
        """Rows that are hidden would stay beside those that take their place."""
        asked = () if self._to.mode == "append" else self._sql.hidden(self._table)
        for (user,) in (it for one in asked for it in connection.rows(one)):
            raise StepFailed(
                f"{self._place}: row level security may hide rows of {self._table} from the user {user}, which would "
                "stay when the chunk is done again: write as the table's owner, or as a user with BYPASSRLS"
            )

    def _with_data_id(self, frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

        column = self._to.data_id_column
        return frame if column is None else frame.withColumn(column, F.lit(self._attempt.data_id))

    def _begin(self, connection: Opened, frame: "DataFrame") -> Result | None:
        """Say that this attempt has begun, and make its staging table. Return a result where nothing is to be done."""
        attempt, sql = self._attempt, self._sql
        with connection.transaction():
            for statement in sql.alone():
                connection.rows(statement)
            connection.run(sql.make_chunk_table(self._table))
            rounded = self._rounded(connection, frame)
        connection.run(sql.begun(self._table, attempt))
        fence, token, written, rows, checksum = self._remembered(connection)
        if token != attempt.token:
            check_newest(attempt, int(fence), self._place)
        if self._to.mode == "append" and written is not None:
            return Result(self._to.where, None if rows is None else int(rows), checksum, kept=True)
        for (name,) in connection.rows(sql.left_over(self._table, attempt)):
            with suppress(StepFailed):  # one that hangs still holds it
                self._drop(connection, str(name))
        with connection.transaction():
            connection.run(*sql.make_staging(self._staging, self._table, frame.columns, rounded))
        return None

    def _remembered(self, connection: Opened) -> tuple[Any, ...]:
        found = connection.rows(self._sql.remembered(self._table, self._attempt))
        return found[0] if found else (0, None, None, None, None)  # somebody has taken it away

    def _rounded(self, connection: Opened, frame: "DataFrame") -> list[str]:
        """Return the columns whose numbers the table will round; it is made where it is not there."""
        there = {str(name): bool(whole) for name, whole in connection.rows(self._sql.columns(self._table))}
        if not there:
            connection.run(self._sql.forget(self._table, self._attempt.dataset))
            connection.make(self._spark.createDataFrame([], frame.schema), self._table, self._to)
            return []
        missing = [column for column in frame.columns if column not in there]
        if missing:
            raise StepFailed(
                f"{self._place}: the table {self._table} has no column {', '.join(missing)}; it has {', '.join(there)}"
            )
        fractions = ("float", "double", "decimal")
        return [name for name, kind in frame.dtypes if there[name] and kind.startswith(fractions)]

    def _checked(self, connection: Opened, frame: "DataFrame", passed: "Callable[[Doubles], Seen]") -> Seen:
        """Return what is staged. Raises StepFailed where it is not what is to be written."""
        rows, outside = self._counted(connection)
        seen = passed(lambda columns: self._number(connection, self._sql.doubles(self._staging, columns, null=False)))
        if seen.rows not in (None, rows):
            raise StepFailed(
                f"{self._place}: Spark has written {seen.rows} rows, and {rows} have arrived, as Spark tasks were "
                "repeated; do the chunk again"
            )
        if self._to.partitioning is not None and outside:
            raise StepFailed(
                f"{self._place}: {outside} of {rows} rows are not of the chunk {self._attempt.data_id}, as their "
                f"{self._to.partitioning.column} says"
            )
        if self._to.keys:
            self._check_keys(connection, frame)
        return Seen(rows, seen.checksum)

    def _counted(self, connection: Opened) -> tuple[int, int]:
        """Return how many rows are staged, and how many of them are not of the chunk."""
        condition = self._condition if self._to.partitioning is not None else None
        rows, outside = connection.rows(self._sql.count(self._staging, condition))[0]
        return int(rows), int(outside)

    def _check_keys(self, connection: Opened, frame: "DataFrame") -> None:
        keys = self._to.keys
        unknown = [key for key in keys if key not in frame.columns]
        if unknown:
            raise StepFailed(f"{self._place}: the result has no column {', '.join(unknown)}, which is one of the keys")
        doubles = self._number(connection, self._sql.doubles(self._staging, keys, null=True))
        if doubles:
            raise StepFailed(
                f"{self._place}: {', '.join(keys)}: {doubles} keys are NULL or belong to several rows, so they can't "
                "be merged"
            )

    def _take_over(self, connection: Opened, frame: "DataFrame", staged: Seen) -> Result:
        moved = self._moved(frame.columns, staged)
        if not connection.together(self._sql.written(self._table, self._attempt, staged), *moved):
            self._refuse(connection)
        return Result(self._to.where, staged.rows, staged.checksum)

    def _moved(self, columns: Sequence[str], staged: Seen) -> list[Statement]:
        mode, sql, table = self._to.mode, self._sql, self._table
        first = sql.one_by_one(table) if mode in ("merge", "replace") else ()
        if mode == "merge":
            return [*first, sql.merge(table, self._staging, columns, self._to.keys)]
        gone = [] if mode == "append" else [sql.delete(table, self._condition)]
        assert staged.rows is not None
        return [*first, *gone, sql.insert(table, self._staging, columns, staged.rows)]

    def _is_overtaken(self, connection: Opened) -> bool:
        """Whether another attempt has begun, as far as the database says so."""
        with suppress(StepFailed):
            return bool(self._remembered(connection)[1] != self._attempt.token)
        return False

    def _refuse(self, connection: Opened) -> NoReturn:
        check_newest(self._attempt, int(self._remembered(connection)[0]), self._place)
        raise StepFailed(
            f"{self._place}: another attempt of the chunk {self._attempt.data_id} has begun meanwhile: this one has "
            "written nothing"
        )

    def _drop(self, connection: Opened, table: str) -> None:
        with connection.transaction():
            connection.run(*self._sql.drop(table))

    @staticmethod
    def _number(connection: Opened, statement: Statement) -> int:
        return int(connection.rows(statement)[0][0])
