"""Write the rows of a chunk to a table, idempotently.

Spark's many tasks write to a staging table of this attempt. Then one transaction checks that the attempt is still the
newest, deletes the old rows, moves the new rows, and records the attempt. After a kill at any moment, the table is
unchanged or complete. The next attempt drops the staging table.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NoReturn, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.chunks.chunk_parts import Chunk, Part, part_of_destination
from opendataflow.core.databases.attempts import Attempt, Result, Seen, check_newest, check_owner
from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.destination import Statement, Writer
from opendataflow.core.databases.known_databases import find_writer
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Destination, Pipeline
from opendataflow.spark.pipeline.measure.checks import CountDuplicates
from opendataflow.spark.pipeline.storage.bigquery import BigQueryConnection
from opendataflow.spark.pipeline.storage.database_login import Login, resolve_login
from opendataflow.spark.pipeline.storage.jdbc_connection import JdbcConnection


class TableConnection(Protocol):
    """A connection to a destination's database. Every error is a StepFailed with the place."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all statements of the block or none, if the database supports transactions of any statements."""

    def run_guarded(self, first: Statement, *rest: Statement) -> bool:
        """Run statements in one transaction. Skip the rest and return False if the first one changes no row."""

    def run(self, *statements: Statement) -> object:
        """Run statements."""

    def query(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a query with a small result."""

    def create_table(self, frame: DataFrame, table: str, to: Destination) -> None:
        """Create the table of a destination, with the columns of a frame without rows."""

    def write_staging(self, frame: DataFrame, table: str) -> None:
        """Add the rows of a frame to a staging table."""

    def close(self) -> None:
        """Close the connection. Uncommitted changes are rolled back."""


class TableWriter:
    """Writes one chunk to the table of a destination."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, chunk: Chunk, attempt: Attempt, place: str) -> None:
        """Resolve the table. `place`: of the destination in the project's file.

        Raises StepFailed if the database can't be written or the table can't take chunks.
        """
        destination = pipeline.destination
        assert destination.database is not None
        assert destination.table is not None
        self._spark = spark
        self._login: Login = resolve_login(destination.database, place)
        self._to = destination
        self._attempt = attempt
        self._place = place
        try:
            self._sql: Writer = find_writer(self._login.url)
            self._table = self._sql.table_name(self._login.url, destination.table)
            self._condition = self._chunk_condition(part_of_destination(pipeline, chunk))
        except InvalidInput as error:
            raise StepFailed(f"{place}: {error}") from None
        self._staging = self._sql.staging_table(self._table, attempt)

    def _chunk_condition(self, part: Part | None) -> str | None:
        """Return the condition for the rows to replace, or None for all rows."""
        if part is not None:
            assert part.column is not None
            return self._sql.condition(part.column, part.bounds)
        column = self._to.data_id_column
        return None if column is None else self._sql.condition(column, {"value": self._attempt.data_id})

    def write(self, frame: DataFrame, check: Callable[[CountDuplicates], Seen]) -> Result:
        """Write the rows of a frame.

        `check`: called after Spark has staged the rows. It returns their measures, and raises StepFailed if the rows
        may not be committed. Raises StepFailed if the database refuses the rows, Refused if a newer attempt has begun.
        """
        frame = self._add_data_id(frame)
        connection = self._connect()
        try:
            self._check_schema(connection)
            self._check_row_security(connection)
            earlier = self._begin(connection, frame)
            if earlier is not None:
                return earlier
            try:
                connection.write_staging(frame, self._staging)
                staged = self._check_staged(connection, frame, check)
            except StepFailed:
                if self._is_superseded(connection):  # the newer attempt has dropped the staging table
                    self._refuse(connection)
                raise
            return self._commit(connection, frame, staged)
        finally:
            with suppress(StepFailed):
                self._drop(connection, self._staging)
            connection.close()

    def _connect(self) -> TableConnection:
        if isinstance(self._sql, BigQuery):
            return BigQueryConnection(self._spark, self._login, self._sql, self._place)
        return JdbcConnection(self._spark, self._login, self._sql, self._place)

    def _check_schema(self, connection: TableConnection) -> None:
        found = (it for statement in self._sql.query_schema(self._table) for it in connection.query(statement))
        for schema, is_own, user in found:
            if is_own:
                name = self._table.rpartition(".")[2]
                raise StepFailed(
                    f"{self._place}: the table {self._table} would be in the schema {schema}, which is OpenDataFlow's "
                    f"own; write another schema, such as public.{name}"
                )
            if user is not None:
                raise StepFailed(
                    f"{self._place}: the user {user} may make no tables in the schema {schema}, where rows are "
                    f'staged and attempts remembered: GRANT CREATE ON SCHEMA "{schema}" TO "{user}"'
                )

    def _check_row_security(self, connection: TableConnection) -> None:
        """Raise StepFailed if row level security may hide rows: hidden rows would not be replaced."""
        statements = () if self._to.mode == "append" else self._sql.query_row_security(self._table)
        for (user,) in (it for statement in statements for it in connection.query(statement)):
            raise StepFailed(
                f"{self._place}: row level security may hide rows of {self._table} from the user {user}, which would "
                "stay when the chunk is done again: write as the table's owner, or as a user with BYPASSRLS"
            )

    def _add_data_id(self, frame: DataFrame) -> DataFrame:
        column = self._to.data_id_column
        return frame if column is None else frame.withColumn(column, F.lit(self._attempt.data_id))

    def _begin(self, connection: TableConnection, frame: DataFrame) -> Result | None:
        """Record the start of this attempt and create its staging table. Return a result if the chunk is complete."""
        attempt, sql = self._attempt, self._sql
        with connection.transaction():
            for statement in sql.lock_database():
                connection.query(statement)
            connection.run(sql.create_chunk_table(self._table))
            self._add_owner_column(connection)
            rounded = self._prepare_table(connection, frame)
        connection.run(sql.record_start(self._table, attempt))
        fence, token, written, rows, checksum, owner = self._query_attempt(connection)
        if token != attempt.token:
            self._check_attempt(fence, owner)
        if self._to.mode == "append" and written is not None:
            return Result(self._to.where, None if rows is None else int(rows), checksum, kept=True)
        for (name,) in connection.query(sql.query_leftovers(self._table, attempt)):
            with suppress(StepFailed):  # a hanging attempt may still lock the table
                self._drop(connection, str(name))
        with connection.transaction():
            connection.run(*sql.create_staging(self._staging, self._table, frame.columns, rounded))
        return None

    def _add_owner_column(self, connection: TableConnection) -> None:
        """Add the column that the table of attempts of an earlier version lacks."""
        table, add = self._sql.chunk_table(self._table), self._sql.add_owner_column(self._table)
        if any(name == "owner" for name, _ in connection.query(self._sql.query_columns(table))):
            return
        try:
            connection.run(add)
        except StepFailed as error:
            raise StepFailed(
                f"{error}; the table {table} is of an earlier version and has no column owner: let its owner run "
                f"`{add.sql}`"
            ) from None

    def _check_attempt(self, fence: Any, owner: Any) -> None:
        """Raise Refused if another owner has the chunk, or a newer attempt has begun."""
        give = self._sql.hand_over(self._table, self._attempt, str(owner)).sql
        remedy = f"write to another table, or, if nothing else writes these chunks any more, run `{give}`"
        check_owner(self._attempt, owner, self._place, remedy)
        check_newest(self._attempt, int(fence), self._place)

    def _query_attempt(self, connection: TableConnection) -> tuple[Any, ...]:
        found = connection.query(self._sql.query_attempt(self._table, self._attempt))
        return found[0] if found else (0, None, None, None, None, None)  # the row was deleted by hand

    def _prepare_table(self, connection: TableConnection, frame: DataFrame) -> list[str]:
        """Create the table if missing. Return the columns whose numbers the table will round."""
        is_integer = {str(name): bool(it) for name, it in connection.query(self._sql.query_columns(self._table))}
        if not is_integer:
            connection.run(self._sql.forget_chunks(self._table, self._attempt.dataset))
            connection.create_table(self._spark.createDataFrame([], frame.schema), self._table, self._to)
            return []
        missing = [column for column in frame.columns if column not in is_integer]
        if missing:
            raise StepFailed(
                f"{self._place}: the table {self._table} has no column {', '.join(missing)}; "
                f"it has {', '.join(is_integer)}"
            )
        fractions = ("float", "double", "decimal")
        return [name for name, kind in frame.dtypes if is_integer[name] and kind.startswith(fractions)]

    def _check_staged(
        self, connection: TableConnection, frame: DataFrame, check: Callable[[CountDuplicates], Seen]
    ) -> Seen:
        """Return the measures of the staged rows. Raises StepFailed if the rows may not be written."""

        def count_duplicates(columns: Sequence[str]) -> int:
            return self._query_number(connection, self._sql.count_duplicates(self._staging, columns, null=False))

        rows, outside = self._count_staged(connection)
        seen = check(count_duplicates)
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

    def _count_staged(self, connection: TableConnection) -> tuple[int, int]:
        """Return the number of staged rows, and the number of rows outside the chunk."""
        condition = self._condition if self._to.partitioning is not None else None
        rows, outside = connection.query(self._sql.count_rows(self._staging, condition))[0]
        return int(rows), int(outside)

    def _check_keys(self, connection: TableConnection, frame: DataFrame) -> None:
        keys = self._to.keys
        unknown = [key for key in keys if key not in frame.columns]
        if unknown:
            raise StepFailed(f"{self._place}: the result has no column {', '.join(unknown)}, which is one of the keys")
        duplicates = self._query_number(connection, self._sql.count_duplicates(self._staging, keys, null=True))
        if duplicates:
            raise StepFailed(
                f"{self._place}: {', '.join(keys)}: {duplicates} keys are NULL or belong to several rows, so they "
                "can't be merged"
            )

    def _commit(self, connection: TableConnection, frame: DataFrame, staged: Seen) -> Result:
        """Move the staged rows into the table and record the attempt, in one transaction."""
        move = self._move_statements(frame.columns, staged)
        if not connection.run_guarded(self._sql.record_commit(self._table, self._attempt, staged), *move):
            self._refuse(connection)
        return Result(self._to.where, staged.rows, staged.checksum)

    def _move_statements(self, columns: Sequence[str], staged: Seen) -> list[Statement]:
        mode, sql, table = self._to.mode, self._sql, self._table
        lock = sql.lock_table(table) if mode in ("merge", "replace") else ()
        if mode == "merge":
            return [*lock, sql.merge_rows(table, self._staging, columns, self._to.keys)]
        delete = [] if mode == "append" else [sql.delete_rows(table, self._condition)]
        assert staged.rows is not None
        return [*lock, *delete, sql.insert_rows(table, self._staging, columns, staged.rows)]

    def _is_superseded(self, connection: TableConnection) -> bool:
        """Return whether another attempt is known to have begun."""
        with suppress(StepFailed):
            return bool(self._query_attempt(connection)[1] != self._attempt.token)
        return False

    def _refuse(self, connection: TableConnection) -> NoReturn:
        fence, *_, owner = self._query_attempt(connection)
        self._check_attempt(fence, owner)
        raise StepFailed(
            f"{self._place}: another attempt of the chunk {self._attempt.data_id} has begun meanwhile: this one has "
            "written nothing"
        )

    def _drop(self, connection: TableConnection, table: str) -> None:
        with connection.transaction():
            connection.run(*self._sql.drop_staging(table))

    @staticmethod
    def _query_number(connection: TableConnection, statement: Statement) -> int:
        return int(connection.query(statement)[0][0])
