"""SQL that reads and writes the rows of a chunk, by database. Pure.

`Dialect` is standard SQL and enough to read from any database by ranges, dates and lists. A `Writer` adds statements to
write the rows of a chunk and to record the attempt that wrote them. A new database needs a subclass and a line in
`_WRITERS`. Text of users enters SQL only through `name` and `literal`, or as SQL that users wrote.
"""

import hashlib
import itertools
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from opendataflow.core.chunks.attempts import Attempt, Seen
from opendataflow.core.chunks.chunk_predicates import Kind as ColumnKind
from opendataflow.core.chunks.chunk_predicates import Value, predicate_of
from opendataflow.errors import InvalidInput

Parameter = Value | None
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
_AMBIGUOUS = re.compile(r"[\\\x00-\x1f\x7f]")

PLACEHOLDER = "{data_id}"
"""Stands for the data id in a user's condition."""

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


@dataclass(frozen=True)
class Driver:
    """A JDBC driver or a connector of Spark: its class or format, the name of its jar, its Maven coordinates."""

    name: str
    jar: str
    package: str


def check_placeholders(predicate: str) -> None:
    """Raise InvalidInput if `{data_id}` is inside of quotes in a user's condition: its own quotes would end them."""
    for before in itertools.accumulate(predicate.split(PLACEHOLDER)[:-1]):
        if any(before.count(quote) % 2 for quote in "'\"`"):
            raise InvalidInput(f"the predicate has {PLACEHOLDER} inside of quotes: write it without quotes")


class Dialect:
    """Standard SQL."""

    spark_format: ClassVar[str] = "jdbc"
    """Spark's format for this database."""
    driver: ClassVar[Driver | None] = None
    read_options: ClassVar[dict[str, str]] = {}
    """Spark's options for reading. The project's options override them."""

    def name(self, text: str) -> str:
        """Return a quoted name."""
        return '"' + text.replace('"', '""') + '"'

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value as an SQL literal. `kind`: of the column to compare with, if known.

        Raises InvalidInput for a value that some databases would read as the end of the literal.
        """
        if isinstance(value, int):
            return str(value)
        if kind == "number" and _NUMBER.fullmatch(value):
            return value
        if _AMBIGUOUS.search(value):
            raise InvalidInput(
                "a value has a backslash or a control character, which databases read differently, and for this one it "
                "is not known how: leave it out of data ids and bounds"
            )
        quoted = "'" + value.replace("'", "''") + "'"
        return {"date": "DATE ", "time": "TIMESTAMP "}.get(kind or "", "") + quoted

    def condition(self, column: str, bounds: Mapping[str, Any]) -> str:
        """Return the condition for the rows of a chunk. Raises InvalidInput if SQL can't express the bounds."""
        return predicate_of(bounds, self.name(column), self)

    def bucket(self, column: str, buckets: int) -> str:  # noqa: ARG002 # for those that can
        """Return the bucket of an expression, a number from 0. NULLs have no bucket. See Postgres."""
        raise InvalidInput(
            "this database has no hash that is known here: take partitioning by range, date or list, or a predicate"
        )

    def select_rows(self, rows: str, condition: str | None) -> str:
        """Return the rows of a chunk for Spark's option `dbtable`. `rows`: a table or a query in brackets."""
        given = f"{rows} given" if rows.startswith("(") else rows
        return f"(SELECT * FROM {given}{f' WHERE {condition}' if condition else ''}) chunk"

    def fill_data_id(self, predicate: str, data_id: str) -> str:
        """Return a user's condition with `{data_id}` replaced by the data id, which is a text with quotes."""
        check_placeholders(predicate)
        return predicate.replace(PLACEHOLDER, self.literal(data_id))

    def table_name(self, url: str, table: str) -> str:  # noqa: ARG002 # for databases whose URL is a part of the name
        """Return the name of a table for statements, from a user's name such as `sales.orders`."""
        return table


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


class Postgres(Writer):
    """PostgreSQL 15 or newer, for MERGE."""

    driver = Driver("org.postgresql.Driver", "postgresql", "org.postgresql:postgresql:42.7.14")
    read_options: ClassVar = {
        "fetchsize": "10000",
        "prepareThreshold": "-1",  # binary transfer of numbers and times, without parsing texts
        "binaryTransferDisable": "POINT,BOX,TIMETZ",  # they are read as texts, which differ in binary transfer
        "sessionInitStatement": "SET TIME ZONE 'UTC'",
    }
    write_options: ClassVar = {"batchsize": "10000", "reWriteBatchedInserts": "true", "stringtype": "unspecified"}
    text_type = "text"

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:  # noqa: ARG002 # the column has the type
        """Return an untyped literal, which takes the type of the column. Backslashes are independent of settings."""
        if isinstance(value, int):
            return str(value)
        quoted = "'" + value.replace("'", "''") + "'"
        return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted

    def bucket(self, column: str, buckets: int) -> str:
        """Return 60 bits of the MD5 of the text, modulo the buckets. Postgres may change its own hash functions."""
        return f"mod(('x' || left(md5({column}::text), 15))::bit(60)::bigint, {buckets})"

    def session_setup(self) -> Sequence[Statement]:
        return (Statement("SET TIME ZONE 'UTC'"), Statement("SET client_min_messages = warning"))

    def query_schema(self, table: str) -> Sequence[Statement]:
        schema, dot, _ = table.rpartition(".")
        own = "('opendataflow', 'installed', 'r'), ('dataflow', 'datastatus', 'v')"
        query = (
            "SELECT nspname, EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid "
            f"AND (n.nspname, c.relname, c.relkind) IN ({own})), "
            "CASE WHEN NOT has_schema_privilege(n.oid, 'CREATE') THEN current_user END FROM pg_namespace n "
            f"WHERE {'n.oid = to_regnamespace(?)' if dot else 'nspname = current_schema()'}"
        )
        return (Statement(query, (schema,) if dot else ()),)

    def query_row_security(self, table: str) -> Sequence[Statement]:
        return (Statement("SELECT current_user WHERE row_security_active(to_regclass(?))", (table,)),)

    def lock_database(self) -> Sequence[Statement]:
        """Lock the whole database: all tables of a schema share one table that records attempts."""
        return (Statement("SELECT pg_advisory_xact_lock(hashtextextended('opendataflow', 7))"),)

    def lock_table(self, table: str) -> Sequence[Statement]:
        """Prevent two attempts from adding the same key or keeping the rows of both. Other access does not wait."""
        return (Statement(f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"),)

    def create_chunk_table(self, table: str) -> Statement:
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.chunk_table(table)} (dataset text NOT NULL, data_id text NOT NULL, "
            "fence bigint NOT NULL, attempt text NOT NULL, begun_at timestamptz NOT NULL DEFAULT now(), "
            "written_fence bigint, rows bigint, checksum text, written_at timestamptz, owner text, "
            "PRIMARY KEY (dataset, data_id))"
        )

    def query_columns(self, table: str) -> Statement:
        return Statement(
            "SELECT attname, atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) FROM pg_attribute "
            "WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table,),
        )

    def record_start(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"INSERT INTO {self.chunk_table(table)} AS known (dataset, data_id, fence, attempt, owner) "
            f"VALUES (?, ?, coalesce(?, 0), ?, {self._owner(attempt)}) ON CONFLICT (dataset, data_id) DO UPDATE "
            "SET fence = greatest(known.fence, excluded.fence), attempt = excluded.attempt, begun_at = now(), "
            "owner = coalesce(excluded.owner, known.owner) "
            f"WHERE coalesce(?, known.fence) >= known.fence AND {self._may_own(attempt, 'known.owner')}",
            (attempt.dataset, attempt.data_id, attempt.fence, attempt.token, attempt.fence),
        )

    def query_attempt(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"SELECT fence, attempt, written_fence, rows, checksum, owner FROM {self.chunk_table(table)} "
            "WHERE dataset = ? AND data_id = ?",
            (attempt.dataset, attempt.data_id),
        )

    def record_commit(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = fence, rows = ?, checksum = ?, "
            "written_at = clock_timestamp() WHERE dataset = ? AND data_id = ? AND attempt = ?",
            (staged.rows, staged.checksum, attempt.dataset, attempt.data_id, attempt.token),
        )

    def query_leftovers(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND starts_with(relname, ?) "
            "AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(?))",
            (self.staging_prefix(attempt), self.chunk_table(table)),
        )

    def create_index(self, table: str, column: str) -> Sequence[Statement]:
        return (Statement(f"CREATE INDEX ON {table} ({self.name(column)})"),)

    def drop_staging(self, table: str) -> Sequence[Statement]:
        return (Statement("SET LOCAL lock_timeout = '5s'"), *super().drop_staging(table))

    def create_staging(
        self, staging: str, table: str, columns: Sequence[str], rounded: Collection[str]
    ) -> Sequence[Statement]:
        names = (f"{self.name(it)}{'::numeric' if it in rounded else ''}" for it in columns)
        create = f"CREATE UNLOGGED TABLE {staging} WITH (autovacuum_enabled = false) AS SELECT {', '.join(names)}"
        return (Statement(f"{create} FROM {table} WITH NO DATA"),)

    def copy_statement(self, table: str, columns: Sequence[str]) -> str:
        return f"COPY {table} ({', '.join(self.name(column) for column in columns)}) FROM STDIN (FORMAT csv)"


class BigQuery(Writer):
    """BigQuery. Statements are plain texts without `?`. `guarded_script` joins several to one transaction.

    A transaction can't create or drop tables. A transaction in conflict with another one is aborted and has to be
    retried by the caller.
    """

    spark_format = "bigquery"
    driver = Driver("bigquery", "spark-4.1-bigquery", "com.google.cloud.spark:spark-4.1-bigquery:0.45.0")
    read_options: ClassVar = {"viewsEnabled": "true"}
    write_options: ClassVar = {"writeMethod": "direct"}
    text_type = "STRING"

    def name(self, text: str) -> str:
        return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value. An untyped text takes the type of the column, such as a date or time."""
        if isinstance(value, int) or (kind == "number" and _NUMBER.fullmatch(value)):
            return str(value)
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"'{escaped}'"

    def bucket(self, column: str, buckets: int) -> str:
        """Return the same bucket as Postgres does."""
        digits = f"SUBSTR(TO_HEX(MD5(CAST({column} AS STRING))), 1, 15)"
        return f"MOD(CAST(CONCAT('0x', {digits}) AS INT64), {buckets})"

    def table_name(self, url: str, table: str) -> str:
        """Return a table with its project and data set. Missing parts come from `bigquery://PROJECT/DATASET`."""
        given = re.fullmatch(r"bigquery://([^/?#\s]+)(?:/([^/?#\s]+))?/?", url)
        if given is None:
            raise InvalidInput("the url of BigQuery is bigquery://PROJECT/DATASET")
        parts = [part.strip('"') for part in re.findall(r'"[^"]+"|[^."]+', table)]
        known = [*(it for it in given.groups() if it is not None)][: 3 - len(parts)] + parts
        if len(known) < 3:
            raise InvalidInput(
                f"the table {table} has no data set: write DATASET.{table}, or bigquery://PROJECT/DATASET"
            )
        return ".".join(self.name(part) for part in known)

    def create_chunk_table(self, table: str) -> Statement:
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.chunk_table(table)} (dataset STRING NOT NULL, data_id STRING NOT NULL, "
            "fence INT64 NOT NULL, attempt STRING NOT NULL, begun_at TIMESTAMP NOT NULL, written_fence INT64, "
            "`rows` INT64, checksum STRING, written_at TIMESTAMP, owner STRING)"
        )

    def query_columns(self, table: str) -> Statement:
        """Query the columns without integer flags. The staging table has Spark's types and rounds nothing."""
        schema, _, name = table.rpartition(".")
        return Statement(
            f"SELECT column_name, NULL FROM {schema}.INFORMATION_SCHEMA.COLUMNS "
            f"WHERE table_name = {self.literal(name.strip('`'))} ORDER BY ordinal_position"
        )

    def record_start(self, table: str, attempt: Attempt) -> Statement:
        may = [] if attempt.fence is None else [f"known.fence <= {attempt.fence}"]
        may += [] if attempt.owner is None else [self._may_own(attempt, "known.owner")]
        allowed = "".join(f" AND {condition}" for condition in may)
        fence, token, owner = attempt.fence or 0, self.literal(attempt.token), self._owner(attempt)
        change = "" if attempt.owner is None else f", owner = {owner}"
        return Statement(
            f"MERGE INTO {self.chunk_table(table)} known USING (SELECT {self.literal(attempt.dataset)} AS dataset, "
            f"{self.literal(attempt.data_id)} AS data_id) given "
            "ON known.dataset = given.dataset AND known.data_id = given.data_id "
            f"WHEN MATCHED{allowed} THEN UPDATE SET fence = GREATEST(known.fence, {fence}), attempt = {token}, "
            f"begun_at = CURRENT_TIMESTAMP(){change} "
            "WHEN NOT MATCHED THEN INSERT (dataset, data_id, fence, attempt, begun_at, owner) "
            f"VALUES (given.dataset, given.data_id, {fence}, {token}, CURRENT_TIMESTAMP(), {owner})"
        )

    def _chunk_condition(self, attempt: Attempt) -> str:
        return f"dataset = {self.literal(attempt.dataset)} AND data_id = {self.literal(attempt.data_id)}"

    def query_attempt(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"SELECT fence, attempt, written_fence, `rows`, checksum, owner FROM {self.chunk_table(table)} "
            f"WHERE {self._chunk_condition(attempt)}"
        )

    def record_commit(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        checksum = "NULL" if staged.checksum is None else self.literal(staged.checksum)
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = fence, `rows` = {staged.rows}, "
            f"checksum = {checksum}, written_at = CURRENT_TIMESTAMP() "
            f"WHERE {self._chunk_condition(attempt)} AND attempt = {self.literal(attempt.token)}"
        )

    def query_leftovers(self, table: str, attempt: Attempt) -> Statement:
        schema = table.rpartition(".")[0]
        return Statement(
            f"SELECT CONCAT({self.literal(schema + '.')}, table_name) FROM {schema}.INFORMATION_SCHEMA.TABLES "
            f"WHERE STARTS_WITH(table_name, {self.literal(self.staging_prefix(attempt))})"
        )

    def create_staging(
        self,
        staging: str,  # noqa: ARG002 # Spark creates the table
        table: str,  # noqa: ARG002 # see above
        columns: Sequence[str],  # noqa: ARG002 # see above
        rounded: Collection[str],  # noqa: ARG002 # see above
    ) -> Sequence[Statement]:
        return ()

    def delete_rows(self, table: str, condition: str | None) -> Statement:
        return super().delete_rows(table, condition or "TRUE")

    def guarded_script(self, first: Statement, rest: Sequence[Statement]) -> str:
        """Return a script with one transaction, which raises SUPERSEDED if the first statement changes no row.

        An error in any statement rolls back all of them.
        """
        return "\n".join(
            [
                "BEGIN TRANSACTION;",
                f"{first.sql};",
                f"IF @@row_count = 0 THEN RAISE USING MESSAGE = {self.literal(SUPERSEDED)}; END IF;",
                *(f"{it.sql};" for it in rest),
                "COMMIT TRANSACTION;",
            ]
        )


_WRITERS: dict[str, Writer] = {"jdbc:postgresql:": Postgres(), "bigquery:": BigQuery()}


def find_dialect(url: str) -> Dialect:
    """Return the dialect of a database URL. Raises InvalidInput for other URLs."""
    match = re.match(r"jdbc:[a-z0-9]+:|bigquery:(?=//)", url)
    if match is None:
        raise InvalidInput(
            "the url of a database is a JDBC URL, such as jdbc:postgresql://host:5432/database, or "
            "bigquery://PROJECT/DATASET"
        )
    return _WRITERS.get(match[0]) or Dialect()


def find_writer(url: str) -> Writer:
    """Return the writer of a database URL. Raises InvalidInput if this database can only be read."""
    dialect = find_dialect(url)
    if not isinstance(dialect, Writer):
        known = ", ".join(_WRITERS)
        raise InvalidInput(f"{url.partition('//')[0]} can be read here, and not written; written are {known}")
    return dialect
