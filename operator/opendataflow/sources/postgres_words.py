"""How Postgres writes names, values and buckets. Pure."""

from opendataflow.core.chunk_plan import Value


class PostgresWords:
    """See `core.chunk_plan.Words`."""

    def name(self, name: str) -> str:
        """A name, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def literal(self, value: Value) -> str:
        """A value; with backslashes in the form that every session reads alike."""
        if isinstance(value, int):
            return str(value)
        quoted = "'" + value.replace("'", "''") + "'"
        return "E" + quoted.replace("\\", "\\\\") if "\\" in value else quoted

    def bucket(self, column: str, buckets: int) -> str:
        """60 bits of the MD5 of the text, modulo the buckets. Postgres' own hash functions may change with it."""
        return f"mod(('x' || left(md5({column}::text), 15))::bit(60)::bigint, {buckets})"
