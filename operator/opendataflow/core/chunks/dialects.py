"""What a database is told to read and to write the rows of a chunk: the seam between pipelines and SQL. Pure.

`Dialect` is standard SQL, and enough to read from any database by ranges, dates and lists. Writing needs a `Writer`,
as `Postgres` and `BigQuery` are: how a table takes the rows of a chunk, and how the destination remembers which attempt
wrote them. Another database gets a class of its own here, and a line in `_WRITERS`. No text of users is put into SQL
but by `name` and `literal`, and what they wrote as SQL themselves.
"""

import hashlib
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
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")

CHUNK_TABLE = "opendataflow_chunk"
"""The table of a destination that remembers what was written into it."""

OVERTAKEN = "opendataflow: another attempt has begun"
"""What a script says that has nothing to do."""


@dataclass(frozen=True)
class Statement:
    """SQL with `?` for values. `rows`: how many it has to change, where that is known."""

    sql: str
    values: tuple[Parameter, ...] = ()
    rows: int | None = None


@dataclass(frozen=True)
class Driver:
    """A JDBC driver, or a connector of Spark: its class or format, its jar's name, and where Maven has it."""

    name: str
    jar: str
    package: str


class Dialect:
    """Standard SQL."""

    way: ClassVar[str] = "jdbc"
    """How Spark gets there."""
    driver: ClassVar[Driver | None] = None
    read_options: ClassVar[dict[str, str]] = {}
    """Spark's options for reading, unless the project says otherwise."""

    def name(self, text: str) -> str:
        """Return a name as SQL has it."""
        return '"' + text.replace('"', '""') + '"'

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value as SQL has it. `kind`: of the column that it is compared with, where that is known."""
        if isinstance(value, int):
            return str(value)
        if kind == "number" and _NUMBER.fullmatch(value):
            return value
        quoted = "'" + value.replace("'", "''") + "'"
        return {"date": "DATE ", "time": "TIMESTAMP "}.get(kind or "", "") + quoted

    def condition(self, column: str, bounds: Mapping[str, Any]) -> str:
        """Return what is true of the rows of a chunk. Raises InvalidInput where this database can't say it."""
        return predicate_of(bounds, self.name(column), self)

    def bucket(self, column: str, buckets: int) -> str:  # noqa: ARG002 # for those that can
        """Return the bucket of an expression, a number from 0: see Postgres. NULLs have none."""
        raise InvalidInput(
            "this database has no hash that is known here: take partitioning by range, date or list, or a predicate"
        )

    def chosen(self, rows: str, condition: str | None) -> str:
        """Return the rows of a chunk as Spark's option `dbtable` takes them. `rows`: a table or a query in brackets."""
        given = f"{rows} given" if rows.startswith("(") else rows
        return f"(SELECT * FROM {given}{f' WHERE {condition}' if condition else ''}) chunk"

    def with_data_id(self, predicate: str, data_id: str) -> str:
        """Return a person's condition with the data id in the place of `{data_id}`."""
        return predicate.replace("{data_id}", self.literal(data_id))

    def table(self, url: str, table: str) -> str:  # noqa: ARG002 # for those whose URL is a part of the name
        """Return a table that a person has written, such as `sales.orders`, as statements have it."""
        return table


class Writer(Dialect):
    """What writing needs beside standard SQL. Tables are given as `table` returns them."""

    write_options: ClassVar[dict[str, str]] = {}
    """Spark's options for writing into the staging table, unless the project says otherwise."""

    def chunk_table(self, table: str) -> str:
        """Return the table that remembers, in the schema of the one that is written."""
        schema, dot, _ = table.rpartition(".")
        return f"{schema}{dot}{CHUNK_TABLE}"

    def staging_table(self, table: str, attempt: Attempt) -> str:
        """Return the name of the table that Spark writes into."""
        schema, dot, _ = table.rpartition(".")
        return f"{schema}{dot}{self.staging_prefix(attempt)}{attempt.token}"

    def staging_prefix(self, attempt: Attempt) -> str:
        """Return what the names of a chunk's staging tables begin with."""
        digest = hashlib.sha256(f"{attempt.dataset}\0{attempt.data_id}".encode()).hexdigest()
        return f"opendataflow_staging_{digest[:16]}_"

    def session(self) -> Sequence[Statement]:
        """What a connection is told first."""
        return ()

    def schema(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for those that know all of it
        """Ask for the schema that this table, and those beside it, would be made in: its name, whether it is one of
        this program's own, and the user where that one may make no tables in it."""
        return ()

    def hidden(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for those that hide some
        """Ask for the user, where the database may hide rows of a table from this one."""
        return ()

    def alone(self) -> Sequence[Statement]:
        """Wait until nobody else makes tables, until the transaction ends."""
        return ()

    def one_by_one(self, table: str) -> Sequence[Statement]:  # noqa: ARG002 # for those that need it
        """Wait until nobody else merges rows into a table or replaces all of them, until the transaction ends."""
        return ()

    @abstractmethod
    def make_chunk_table(self, table: str) -> Statement:
        """Make it unless it is there."""

    @abstractmethod
    def columns(self, table: str) -> Statement:
        """Ask for the names of a table's columns in their order, and whether each is of whole numbers; none where there
        is no such table."""

    @abstractmethod
    def begun(self, table: str, attempt: Attempt) -> Statement:
        """Remember that an attempt has begun, unless a newer one has: then nothing changes."""

    @abstractmethod
    def remembered(self, table: str, attempt: Attempt) -> Statement:
        """Ask for (fence, attempt, written_fence, rows, checksum)."""

    @abstractmethod
    def written(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        """Remember what the attempt has written, unless another one has begun meanwhile: then nothing changes. Until
        the transaction ends nobody else can begin."""

    def forget(self, table: str, dataset: str) -> Statement:
        """Remember of no chunk that it is written, as the table is made anew. Who may write stays known."""
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = NULL, {self.name('rows')} = NULL, checksum = NULL, "
            f"written_at = NULL WHERE dataset = {self.literal(dataset)}"
        )

    @abstractmethod
    def left_over(self, table: str, attempt: Attempt) -> Statement:
        """Ask for the names of staging tables that earlier attempts have left."""

    @abstractmethod
    def make_staging(
        self, staging: str, table: str, columns: Sequence[str], rounded: Collection[str]
    ) -> Sequence[Statement]:
        """Make an empty table with some columns of another one; nothing where Spark makes it. `rounded`: columns of
        whole numbers that are given others, which are rounded only when the rows are moved."""

    def copy(self, table: str, columns: Sequence[str]) -> str | None:  # noqa: ARG002 # for those that can
        """Return the statement that takes rows as CSV; None where there is none, and Spark's own writer writes."""
        return None

    def drop(self, table: str) -> Sequence[Statement]:
        """Drop a staging table, without waiting long for who still holds it."""
        return (Statement(f"DROP TABLE IF EXISTS {table}"),)

    def make_index(self, table: str, column: str) -> Sequence[Statement]:  # noqa: ARG002 # for those that have it
        """Make the rows of a chunk quick to find."""
        return ()

    def count(self, table: str, condition: str | None) -> Statement:
        """Ask how many rows there are, and of how many a condition is false or unknown: in one pass."""
        outside = f"sum(CASE WHEN {condition} THEN 0 ELSE 1 END)" if condition else "0"
        return Statement(f"SELECT count(*), coalesce({outside}, 0) FROM {table}")

    def doubles(self, table: str, keys: Sequence[str], *, null: bool) -> Statement:
        """Ask how many keys belong to more than one row; `null`: also those with a NULL, which else do not count."""
        names = [self.name(key) for key in keys]
        some = " OR ".join(f"{name} IS NULL" for name in names)
        wrong = f"count(*) > 1 OR ({some})" if null else f"count(*) > 1 AND NOT ({some})"
        return Statement(
            f"SELECT count(*) FROM (SELECT 1 AS one FROM {table} GROUP BY {', '.join(names)} HAVING {wrong}) doubles"
        )

    def delete(self, table: str, condition: str | None) -> Statement:
        """Delete rows; all where there is no condition."""
        return Statement(f"DELETE FROM {table}{f' WHERE {condition}' if condition else ''}")

    def insert(self, table: str, staging: str, columns: Sequence[str], rows: int) -> Statement:
        """Add the rows of the staging table."""
        names = ", ".join(self.name(column) for column in columns)
        return Statement(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging}", rows=rows)

    def merge(self, table: str, staging: str, columns: Sequence[str], keys: Sequence[str]) -> Statement:
        """Add the rows of the staging table, or change those that have their keys."""
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
        "prepareThreshold": "-1",  # numbers and times come as they are, and not as texts that have to be read
        "binaryTransferDisable": "POINT,BOX",  # which Spark takes for texts, in other letters then
        "sessionInitStatement": "SET TIME ZONE 'UTC'",
    }
    write_options: ClassVar = {"batchsize": "10000", "reWriteBatchedInserts": "true", "stringtype": "unspecified"}

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:  # noqa: ARG002 # the column says it
        """Return a value without a type of its own: it takes that of the column. Backslashes are in the form that every
        session reads alike."""
        if isinstance(value, int):
            return str(value)
        quoted = "'" + value.replace("'", "''") + "'"
        return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted

    def bucket(self, column: str, buckets: int) -> str:
        """60 bits of the MD5 of the text, modulo the buckets. Postgres' own hash functions may change with it."""
        return f"mod(('x' || left(md5({column}::text), 15))::bit(60)::bigint, {buckets})"

    def session(self) -> Sequence[Statement]:
        return (Statement("SET TIME ZONE 'UTC'"), Statement("SET client_min_messages = warning"))

    def schema(self, table: str) -> Sequence[Statement]:
        schema, dot, _ = table.rpartition(".")
        own = "('opendataflow', 'installed', 'r'), ('dataflow', 'datastatus', 'v')"
        asked = (
            "SELECT nspname, EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid "
            f"AND (n.nspname, c.relname, c.relkind) IN ({own})), "
            "CASE WHEN NOT has_schema_privilege(n.oid, 'CREATE') THEN current_user END FROM pg_namespace n "
            f"WHERE {'n.oid = to_regnamespace(?)' if dot else 'nspname = current_schema()'}"
        )
        return (Statement(asked, (schema,) if dot else ()),)

    def hidden(self, table: str) -> Sequence[Statement]:
        return (Statement("SELECT current_user WHERE row_security_active(to_regclass(?))", (table,)),)

    def alone(self) -> Sequence[Statement]:
        """In the whole database: tables of one schema have one table that remembers."""
        return (Statement("SELECT pg_advisory_xact_lock(hashtextextended('opendataflow', 7))"),)

    def one_by_one(self, table: str) -> Sequence[Statement]:
        """Else two would add the same key, or keep the rows of both. Who reads, or writes otherwise, does not wait."""
        return (Statement(f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"),)

    def make_chunk_table(self, table: str) -> Statement:
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.chunk_table(table)} (dataset text NOT NULL, data_id text NOT NULL, "
            "fence bigint NOT NULL, attempt text NOT NULL, begun_at timestamptz NOT NULL DEFAULT now(), "
            "written_fence bigint, rows bigint, checksum text, written_at timestamptz, PRIMARY KEY (dataset, data_id))"
        )

    def columns(self, table: str) -> Statement:
        return Statement(
            "SELECT attname, atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) FROM pg_attribute "
            "WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (table,),
        )

    def begun(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"INSERT INTO {self.chunk_table(table)} AS known (dataset, data_id, fence, attempt) "
            "VALUES (?, ?, coalesce(?, 0), ?) ON CONFLICT (dataset, data_id) DO UPDATE "
            "SET fence = greatest(known.fence, excluded.fence), attempt = excluded.attempt, begun_at = now() "
            "WHERE coalesce(?, known.fence) >= known.fence",
            (attempt.dataset, attempt.data_id, attempt.fence, attempt.token, attempt.fence),
        )

    def remembered(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"SELECT fence, attempt, written_fence, rows, checksum FROM {self.chunk_table(table)} "
            "WHERE dataset = ? AND data_id = ?",
            (attempt.dataset, attempt.data_id),
        )

    def written(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = fence, rows = ?, checksum = ?, "
            "written_at = clock_timestamp() WHERE dataset = ? AND data_id = ? AND attempt = ?",
            (staged.rows, staged.checksum, attempt.dataset, attempt.data_id, attempt.token),
        )

    def left_over(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND starts_with(relname, ?) "
            "AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(?))",
            (self.staging_prefix(attempt), self.chunk_table(table)),
        )

    def make_index(self, table: str, column: str) -> Sequence[Statement]:
        return (Statement(f"CREATE INDEX ON {table} ({self.name(column)})"),)

    def drop(self, table: str) -> Sequence[Statement]:
        return (Statement("SET LOCAL lock_timeout = '5s'"), *super().drop(table))

    def make_staging(
        self, staging: str, table: str, columns: Sequence[str], rounded: Collection[str]
    ) -> Sequence[Statement]:
        names = (f"{self.name(it)}{'::numeric' if it in rounded else ''}" for it in columns)
        made = f"CREATE UNLOGGED TABLE {staging} WITH (autovacuum_enabled = false) AS SELECT {', '.join(names)}"
        return (Statement(f"{made} FROM {table} WITH NO DATA"),)

    def copy(self, table: str, columns: Sequence[str]) -> str:
        return f"COPY {table} ({', '.join(self.name(column) for column in columns)}) FROM STDIN (FORMAT csv)"


class BigQuery(Writer):
    """BigQuery. Statements have no `?`, as they reach it as texts; `transaction` makes one text of several.

    Nothing that makes or drops tables may be part of a transaction there, and one that meets another one on the same
    table is given up: whoever runs it does it again.
    """

    way = "bigquery"
    driver = Driver("bigquery", "spark-4.1-bigquery", "com.google.cloud.spark:spark-4.1-bigquery:0.45.0")
    read_options: ClassVar = {"viewsEnabled": "true"}
    write_options: ClassVar = {"writeMethod": "direct"}

    def name(self, text: str) -> str:
        return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value; texts without a type of their own: they become days and times where the column has them."""
        if isinstance(value, int) or kind == "number":
            return super().literal(value, kind)
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
        return f"'{escaped}'"

    def bucket(self, column: str, buckets: int) -> str:
        """The same as that of Postgres."""
        digits = f"SUBSTR(TO_HEX(MD5(CAST({column} AS STRING))), 1, 15)"
        return f"MOD(CAST(CONCAT('0x', {digits}) AS INT64), {buckets})"

    def table(self, url: str, table: str) -> str:
        """Return a table with its project and data set: `bigquery://PROJECT/DATASET` has those that it lacks."""
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

    def make_chunk_table(self, table: str) -> Statement:
        return Statement(
            f"CREATE TABLE IF NOT EXISTS {self.chunk_table(table)} (dataset STRING NOT NULL, data_id STRING NOT NULL, "
            "fence INT64 NOT NULL, attempt STRING NOT NULL, begun_at TIMESTAMP NOT NULL, written_fence INT64, "
            "`rows` INT64, checksum STRING, written_at TIMESTAMP)"
        )

    def columns(self, table: str) -> Statement:
        """The staging table has the types of Spark, so nothing is said of whole numbers."""
        schema, _, name = table.rpartition(".")
        return Statement(
            f"SELECT column_name, NULL FROM {schema}.INFORMATION_SCHEMA.COLUMNS "
            f"WHERE table_name = {self.literal(name.strip('`'))} ORDER BY ordinal_position"
        )

    def begun(self, table: str, attempt: Attempt) -> Statement:
        older = "" if attempt.fence is None else f" AND known.fence <= {attempt.fence}"
        fence, token = attempt.fence or 0, self.literal(attempt.token)
        return Statement(
            f"MERGE INTO {self.chunk_table(table)} known USING (SELECT {self.literal(attempt.dataset)} AS dataset, "
            f"{self.literal(attempt.data_id)} AS data_id) given "
            "ON known.dataset = given.dataset AND known.data_id = given.data_id "
            f"WHEN MATCHED{older} THEN UPDATE SET fence = GREATEST(known.fence, {fence}), attempt = {token}, "
            "begun_at = CURRENT_TIMESTAMP() WHEN NOT MATCHED THEN INSERT (dataset, data_id, fence, attempt, begun_at) "
            f"VALUES (given.dataset, given.data_id, {fence}, {token}, CURRENT_TIMESTAMP())"
        )

    def _chunk(self, attempt: Attempt) -> str:
        return f"dataset = {self.literal(attempt.dataset)} AND data_id = {self.literal(attempt.data_id)}"

    def remembered(self, table: str, attempt: Attempt) -> Statement:
        return Statement(
            f"SELECT fence, attempt, written_fence, `rows`, checksum FROM {self.chunk_table(table)} "
            f"WHERE {self._chunk(attempt)}"
        )

    def written(self, table: str, attempt: Attempt, staged: Seen) -> Statement:
        checksum = "NULL" if staged.checksum is None else self.literal(staged.checksum)
        return Statement(
            f"UPDATE {self.chunk_table(table)} SET written_fence = fence, `rows` = {staged.rows}, "
            f"checksum = {checksum}, written_at = CURRENT_TIMESTAMP() "
            f"WHERE {self._chunk(attempt)} AND attempt = {self.literal(attempt.token)}"
        )

    def left_over(self, table: str, attempt: Attempt) -> Statement:
        schema = table.rpartition(".")[0]
        return Statement(
            f"SELECT CONCAT({self.literal(schema + '.')}, table_name) FROM {schema}.INFORMATION_SCHEMA.TABLES "
            f"WHERE STARTS_WITH(table_name, {self.literal(self.staging_prefix(attempt))})"
        )

    def make_staging(
        self,
        staging: str,  # noqa: ARG002 # Spark makes it
        table: str,  # noqa: ARG002 # see above
        columns: Sequence[str],  # noqa: ARG002 # see above
        rounded: Collection[str],  # noqa: ARG002 # see above
    ) -> Sequence[Statement]:
        return ()

    def delete(self, table: str, condition: str | None) -> Statement:
        return super().delete(table, condition or "TRUE")

    def transaction(self, first: Statement, rest: Sequence[Statement]) -> str:
        """Return a script that runs all, or raises `OVERTAKEN` where the first one changes nothing. An error anywhere
        undoes it as a whole."""
        return "\n".join(
            [
                "BEGIN TRANSACTION;",
                f"{first.sql};",
                f"IF @@row_count = 0 THEN RAISE USING MESSAGE = {self.literal(OVERTAKEN)}; END IF;",
                *(f"{it.sql};" for it in rest),
                "COMMIT TRANSACTION;",
            ]
        )


_WRITERS: dict[str, Writer] = {"jdbc:postgresql:": Postgres(), "bigquery:": BigQuery()}


def dialect_of(url: str) -> Dialect:
    """Return how the database of a URL is spoken to. Raises InvalidInput where it is none."""
    match = re.match(r"jdbc:[a-z0-9]+:|bigquery:(?=//)", url)
    if match is None:
        raise InvalidInput(
            "the url of a database is a JDBC URL, such as jdbc:postgresql://host:5432/database, or "
            "bigquery://PROJECT/DATASET"
        )
    return _WRITERS.get(match[0]) or Dialect()


def writer_of(url: str) -> Writer:
    """Return the same for writing. Raises InvalidInput where no writer is there for this database."""
    dialect = dialect_of(url)
    if not isinstance(dialect, Writer):
        known = ", ".join(_WRITERS)
        raise InvalidInput(f"{url.partition('//')[0]} can be read here, and not written; written are {known}")
    return dialect
