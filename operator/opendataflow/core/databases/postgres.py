"""SQL of PostgreSQL. Pure."""

from collections.abc import Collection, Sequence
from typing import ClassVar

from opendataflow.core.chunks.chunk_predicates import Kind as ColumnKind
from opendataflow.core.chunks.chunk_predicates import Value
from opendataflow.core.databases.attempts import Attempt, Seen
from opendataflow.core.databases.destination import Statement, Writer
from opendataflow.core.databases.dialect import Driver


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
