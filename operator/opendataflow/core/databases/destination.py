"""Statements that write the rows of a chunk and record the attempt that wrote them, for every database. Pure.

`Writer` holds what is standard SQL. Each database that can be written has a subclass, which `known_databases` lists.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from opendataflow.core.chunks.chunk_predicates import Value
from opendataflow.core.databases.attempts import Attempt, Seen
from opendataflow.core.databases.dialect import Dialect

Parameter = Value | None

CHUNK_TABLE = "opendataflow_chunk"
"""The table beside a destination that records attempts and commits."""

SUPERSEDED = "opendataflow: another attempt has begun"
"""Error message of a script whose attempt is superseded."""


@dataclass(frozen=True)
class Statement:
    """SQL with `?` for values. `rows`: the number of rows that the statement has to change, if known."""

    sql: str
    values: tuple[Parameter, ...] = ()
    rows: int | None = None


class Writer(Dialect):
    """Statements for writing, beside standard SQL. Names of tables are those that `table_name` returns."""

    write_options: ClassVar[dict[str, str]] = {}
    """Spark's options for writing to the staging table. The project's options override them."""
    text_type: ClassVar[str]

    def chunk_table(self, table: str) -> str:
        """Return the table that records attempts, in the schema of the destination's table."""
        schema, dot, _ = table.rpartition(".")
        return f"{schema}{dot}{CHUNK_TABLE}"

    def staging_table(self, table: str, attempt: Attempt) -> str:
        """Return the name of the staging table of an attempt."""
        schema, dot, _ = table.rpartition(".")
        return f"{schema}{dot}{self.staging_prefix(attempt)}{attempt.token}"

    def staging_prefix(self, attempt: Attempt) -> str:
        """Return the common prefix of a chunk's staging tables."""
        digest = hashlib.sha256(f"{attempt.dataset}\0{attempt.data_id}".encode()).hexdigest()
        return f"opendataflow_staging_{digest[:16]}_"

    def session_setup(self) -> Sequence[Statement]:
        """Return the first statements of each connection."""
        return ()

    def query_schema(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for databases that can report it
        """Query the schema of a table: its name, whether it belongs to this program, and a user without CREATE."""
        return ()

    def query_row_security(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for databases that hide rows
        """Query the current user if row level security may hide rows of a table from this user."""
        return ()

    def lock_database(self) -> Sequence[Statement]:
        """Prevent others from creating tables until the transaction ends."""
        return ()

    def lock_table(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for databases that need a lock
        """Prevent others from merging or replacing rows of a table until the transaction ends."""
        return ()

    @abstractmethod
    def create_chunk_table(self, table: str) -> Statement:
        """Create the table that records attempts, if missing."""

    def add_owner_column(self, table: str) -> Statement:
        """Add the column `owner` to a table of attempts that an earlier version created."""
        return Statement(f"ALTER TABLE {self.chunk_table(table)} ADD COLUMN IF NOT EXISTS owner {self.text_type}")

    def hand_over(self, table: str, attempt: Attempt, owner: str) -> Statement:
        """Let the next attempt of any owner have the chunks of another one. A person runs this statement."""
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET owner = NULL, fence = 0 "
            f"WHERE dataset = {self.literal(attempt.dataset)} AND owner = {self.literal(owner)}"
        )

    def _owner(self, attempt: Attempt) -> str:
        return "NULL" if attempt.owner is None else self.literal(attempt.owner)

    def _may_own(self, attempt: Attempt, column: str) -> str:
        """Return the condition that the attempt may have a chunk, as in `attempts.is_same_owner`."""
        if attempt.owner is None:
            return "TRUE"
        identity, is_in_namespace, _ = attempt.owner.partition("/")
        own = (
            f"{column} = {self.literal(attempt.owner)}"
            if is_in_namespace
            else f"{column} LIKE {self.literal(f'{identity}/%')}"
        )
        return f"({column} IS NULL OR {column} = {self.literal(identity)} OR {own})"

    @abstractmethod
    def query_columns(self, table: str) -> Statement:
        """Query (name, is integer) of a table's columns in order. A missing table has no columns."""

    @abstractmethod
    def record_start(self, table: str, attempt: Attempt) -> Statement:
        """Record the start of an attempt. Changes nothing if a newer attempt has begun, or another owner has the chunk.

        A chunk without an owner becomes the attempt's.
        """

    @abstractmethod
    def query_attempt(self, table: str, attempt: Attempt) -> Statement:
        """Query (fence, attempt, written_fence, rows, checksum, owner) of the attempt's chunk."""

    @abstractmethod
    def record_commit(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        """Record what the attempt has written. Changes nothing if another attempt has begun.

        No other attempt can begin until the transaction ends.
        """

    def forget_chunks(self, table: str, dataset: str) -> Statement:
        """Forget what was written, for a new table. The fencing tokens stay."""
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = NULL, {self.name('rows')} = NULL, checksum = NULL, "
            f"written_at = NULL WHERE dataset = {self.literal(dataset)}"
        )

    @abstractmethod
    def query_leftovers(self, table: str, attempt: Attempt) -> Statement:
        """Query the names of staging tables of earlier attempts."""

    @abstractmethod
    def create_staging(
        self, staging: str, table: str, columns: Sequence[str], rounded: Collection[str]
    ) -> Sequence[Statement]:
        """Create an empty staging table with columns of another one. Return nothing if Spark creates the table.

        `rounded`: integer columns that are given fractions. The fractions are rounded when the rows are moved.
        """

    def copy_statement(self, table: str, columns: Sequence[str]) -> str | None:  # noqa: ARG002 # for those with COPY
        """Return the statement that accepts rows as CSV, or None if Spark's writer has to write."""
        return None

    def drop_staging(self, table: str) -> Sequence[Statement]:
        """Drop a staging table. Wait only briefly for a lock."""
        return (Statement(f"DROP TABLE IF EXISTS {table}"),)

    def create_index(self, table: str, column: str) -> Sequence[Statement]:  # noqa: ARG002 # for those with indexes
        """Create an index that finds the rows of a chunk."""
        return ()

    def count_rows(self, table: str, condition: str | None) -> Statement:
        """Count all rows, and the rows for which a condition is false or unknown, in one scan."""
        outside = f"sum(CASE WHEN {condition} THEN 0 ELSE 1 END)" if condition else "0"
        return Statement(f"SELECT count(*), coalesce({outside}, 0) FROM {table}")

    def count_duplicates(self, table: str, keys: Sequence[str], *, null: bool) -> Statement:
        """Count the keys of more than one row. `null`: count keys with a NULL, which are ignored otherwise."""
        names = [self.name(key) for key in keys]
        some = " OR ".join(f"{name} IS NULL" for name in names)
        wrong = f"count(*) > 1 OR ({some})" if null else f"count(*) > 1 AND NOT ({some})"
        return Statement(
            f"SELECT count(*) FROM (SELECT 1 AS one FROM {table} GROUP BY {', '.join(names)} HAVING {wrong}) doubles"
        )

    def delete_rows(self, table: str, condition: str | None) -> Statement:
        """Delete rows, or all rows without a condition."""
        return Statement(f"DELETE FROM {table}{f' WHERE {condition}' if condition else ''}")

    def insert_rows(self, table: str, staging: str, columns: Sequence[str], rows: int) -> Statement:
        """Insert the rows of the staging table."""
        names = ", ".join(self.name(column) for column in columns)
        return Statement(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging}", rows=rows)

    def merge_rows(self, table: str, staging: str, columns: Sequence[str], keys: Sequence[str]) -> Statement:
        """Insert the rows of the staging table, or update existing rows with the same keys."""
        same = " AND ".join(f"t.{self.name(key)} = s.{self.name(key)}" for key in keys)
        others = [self.name(column) for column in columns if column not in keys]
        change = f"WHEN MATCHED THEN UPDATE SET {', '.join(f'{it} = s.{it}' for it in others)} " if others else ""
        names = [self.name(column) for column in columns]
        return Statement(
            f"MERGE INTO {table} t USING {staging} s ON {same} {change}"
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
        )
