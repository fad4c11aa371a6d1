"""A Postgres with users' tables: one read-only connection of psycopg with one snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from opendataflow.core.chunks.chunk_plan import Column
from opendataflow.core.chunks.chunk_predicates import Kind, Value, predicate_of
from opendataflow.core.chunks.quantiles import Cuts, Entry, Statistics
from opendataflow.core.chunks.reconciliation import Figures, Grid, Group
from opendataflow.core.databases.postgres import Postgres
from opendataflow.core.databases.postgres_address import display_address
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused, UnknownThing, Unreachable
from opendataflow.sources.source import Aggregates, Table

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("numeric", "float4", "float8"), "number"),
    **dict.fromkeys(("timestamp", "timestamptz"), "time"),
    "date": "date",
    "uuid": "uuid",
}
_HASHED = ("int2", "int4", "int8", "numeric", "text", "varchar", "bpchar", "uuid", "bool")
"""Types whose texts are independent of session settings."""
_UNLISTED_CATEGORIES, _UNLISTED = "ACG", ("json", "xml")
"""Types whose values can't be compared, or not with a text: arrays, rows, geometric types, and others."""

_STALE = 0.1
"""Share of changed rows from which statistics are too old."""

_NO_STATISTICS = {
    "v": "a view, which has no statistics",
    "f": "a foreign table, of which nobody knows how old its statistics are",
}
"""Kinds of relations without usable statistics."""

_LOOK = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, t.typname, t.typcategory::text,
       t.typnamespace::regnamespace::text AS typespace, a.attnotnull,
       CASE WHEN l.collname <> 'default' THEN format('%%I.%%I', ln.nspname, l.collname) END AS collation
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = %(column)s AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_type own ON own.oid = a.atttypid
LEFT JOIN pg_type t ON t.oid = coalesce(nullif(own.typbasetype, 0), own.oid)
LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
WHERE c.oid = to_regclass(CASE WHEN %(schema)s::text IS NULL THEN format('%%I', %(table)s::text)
                               ELSE format('%%I.%%I', %(schema)s::text, %(table)s::text) END)
  AND c.relkind IN ('r', 'p', 'm', 'v', 'f')
"""

_COLUMNS = """
SELECT a.attname, t.typcategory::text AS category, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_STATISTICS = """
WITH s AS (SELECT most_common_vals::text::{type}[] AS common, most_common_freqs AS frequencies,
                  histogram_bounds::text::{type}[] AS bounds
           FROM pg_stats WHERE schemaname = %(schema)s AND tablename = %(table)s AND attname = %(column)s
           ORDER BY inherited DESC LIMIT 1)
SELECT e.value{text} AS value, e.frequency
FROM (SELECT unnest(common) AS value, unnest(frequencies) AS frequency FROM s
      UNION ALL SELECT unnest(bounds), NULL FROM s) e
ORDER BY e.value{collate}
"""

_FRESH = """
SELECT s.null_frac, c.relkind = 'p' AS parted, c.reltuples, t.n_mod_since_analyze AS changed
FROM pg_stats s JOIN pg_stat_all_tables t ON t.schemaname = s.schemaname AND t.relname = s.tablename
JOIN pg_class c ON c.oid = t.relid
WHERE s.schemaname = %(schema)s AND s.tablename = %(table)s AND s.attname = %(column)s
ORDER BY s.inherited DESC LIMIT 1
"""


def parse_address(address: str) -> dict[str, str]:
    """Parse a libpq URI or connection string. Raises InvalidInput, without the address in the message."""
    try:
        return {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except psycopg.ProgrammingError:
        raise InvalidInput(
            "the source's address is none of Postgres: one looks like postgresql://user@host:5432/database"
        ) from None


class PostgresSource:
    """A source database in Postgres. Implements `sources.source.Source`."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], where: str) -> None:
        self.dialect = Postgres()
        self._connection = connection
        self._where = where
        self._table = ("", "")
        self._relation = ""

    @classmethod
    @contextmanager
    def open(cls, parameters: Mapping[str, str]) -> Iterator["PostgresSource"]:
        """Connect with parameters of libpq."""
        where = display_address(parameters)
        settings = {"connect_timeout": "10", "application_name": "opendataflow", "client_encoding": "UTF8"}
        with _translate_errors(where):
            connection = psycopg.connect(make_conninfo("", **{**settings, **parameters}), row_factory=dict_row)
        with connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            source = cls(connection, where)
            source._rows(
                "SELECT set_config('DateStyle', 'ISO', true), set_config('TimeZone', 'UTC', true), "
                "set_config('extra_float_digits', '1', true)"
            )
            yield source

    def has_table(self, schema: str | None, table: str) -> bool:
        """Return whether a table or view exists."""
        return bool(self._rows(_LOOK, {"schema": schema, "table": table, "column": None}))

    def find_table(self, schema: str | None, table: str, column: str) -> Table:
        """Find the table and the column."""
        rows = self._rows(_LOOK, {"schema": schema, "table": table, "column": column})
        if not rows:
            known = self._rows(
                "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'm', 'v', 'f') AND relnamespace = "
                "coalesce(to_regnamespace(quote_ident(%s::text)), to_regnamespace(quote_ident(current_schema)))",
                (schema or None,),
            )
            full = f"{schema}.{table}" if schema else table
            raise UnknownThing(
                f"there is no table {full} in {self._where}{did_you_mean(table, sorted(r['relname'] for r in known))}"
            )
        [row] = rows
        self._table = (row["nspname"], row["relname"])
        self._relation = row["relkind"]
        name = ".".join(self.dialect.name(part) for part in self._table)
        if row["typname"] is None:
            raise self._no_column(column)
        kind = _KINDS.get(row["typname"], "text" if row["typcategory"] == "S" else "other")
        [[plan]] = [list(found.values()) for found in self._rows(f"EXPLAIN (FORMAT JSON) SELECT FROM {name}")]
        return Table(
            name=name,
            column=Column(column, kind, not row["attnotnull"]),
            type=f"{self.dialect.name(row['typespace'])}.{self.dialect.name(row['typname'])}",
            rows=int(plan[0]["Plan"]["Plan Rows"]),
            samples=row["relkind"] in ("r", "p", "m"),
            hashes=row["typname"] in _HASHED,
            lists=row["typcategory"] not in _UNLISTED_CATEGORIES and row["typname"] not in _UNLISTED,
            collation=row["collation"],
        )

    def _columns(self) -> dict[str, tuple[str, str]]:
        """Return the category and name of the type of each column."""
        return {row["attname"]: (row["category"], row["type"]) for row in self._rows(_COLUMNS, self._table)}

    def _no_column(self, column: str) -> UnknownThing:
        name = ".".join(self.dialect.name(part) for part in self._table)
        return UnknownThing(f"{name} has no column {column}{did_you_mean(column, [*self._columns()])}")

    def statistics(self, table: Table) -> Statistics | str:
        """Return statistics of the column without reading the table, or a sentence why they are missing or old."""
        named = {"schema": self._table[0], "table": self._table[1], "column": table.column.name}
        if self._relation in _NO_STATISTICS:
            return f"{table.name} is {_NO_STATISTICS[self._relation]}"
        fresh = self._rows(_FRESH, named)
        if not fresh:
            return f"{table.name} has no statistics of {table.column.name}: ANALYZE {table.name} makes them"
        [found] = fresh
        grown = abs(table.rows - found["reltuples"]) if found["parted"] else 0  # partitions count the changes
        if max(found["changed"], grown) > _STALE * table.rows:
            return f"the statistics of {table.name} are old: ANALYZE {table.name} renews them"
        query = _STATISTICS.format(type=table.type, text=_text(table), collate=_collate(table))
        entries = [Entry(row["value"], row["frequency"]) for row in self._rows(query, named)]
        if not entries:
            return f"{table.name} has no statistics of the values of {table.column.name}"
        return Statistics(entries, float(found["null_frac"]))

    def count_rows(self, table: Table) -> int:
        """Return the number of rows."""
        return int(self._rows(f"SELECT count(*) AS rows FROM {table.name}")[0]["rows"])

    def cuts(self, table: Table, parts: int, share: float) -> Cuts | None:
        """Divide rows into parts of equal size by sorting them. Return None if there is no value."""
        column = self.dialect.name(table.column.name)
        fractions = ", ".join(repr(number / parts) for number in range(parts + 1))
        rows = self._rows(
            f"SELECT v{_text(table)} AS value, inner_one FROM (SELECT v, bool_or(n BETWEEN 2 AND {parts}) AS inner_one "
            f"FROM (SELECT percentile_disc(ARRAY[{fractions}]) WITHIN GROUP (ORDER BY {column}{_collate(table)}) AS q "
            f"FROM {table.name}{_sample(share)}) s, unnest(q) WITH ORDINALITY AS e(v, n) WHERE v IS NOT NULL "
            f"GROUP BY v) d ORDER BY v{_collate(table)}"
        )
        if not rows:
            return None
        lowest, highest = rows[0]["value"], rows[-1]["value"]
        found: list[Value] = [row["value"] for row in rows if row["inner_one"]]
        if table.column.kind == "integer":  # values up to the quantile belong to the lower part
            cuts: list[Value] = [int(value) + 1 for value in found if value != highest]
        else:
            cuts = [value for value in found if value != lowest]
        return Cuts(cuts or ([highest] if lowest != highest else []), lowest, highest)

    def edges(self, table: Table, step: str, zone: str | None, most: int) -> Sequence[str]:
        """Return the starts of years, months, days or hours around all values, and one later start; at most `most`."""
        column = self.dialect.name(table.column.name)
        if zone:
            try:
                self._rows("SELECT set_config('TimeZone', %s, true)", (zone,))
            except InvalidInput as error:
                raise InvalidInput(f"Postgres at {self._where} knows no time zone {zone}") from error
        finite = f"{column} > '-infinity' AND {column} < 'infinity'"
        query = (
            f"SELECT e::{table.type}::text AS edge FROM (SELECT generate_series(date_trunc('{step}', low), "
            f"date_trunc('{step}', high) + '1 {step}', '1 {step}') AS e "
            f"FROM (SELECT min({column}) AS low, max({column}) AS high FROM {table.name} WHERE {finite}) m "
            f"LIMIT {most}) s"
        )
        return [row["edge"] for row in self._rows(query)]

    def values(self, table: Table, most: int) -> Sequence[Value]:
        """Return the distinct values of the column in order, at most `most`."""
        column = self.dialect.name(table.column.name)
        query = (
            f"SELECT v{_text(table)} AS value FROM (SELECT {column} AS v FROM {table.name} WHERE {column} IS NOT NULL "
            f"GROUP BY {column} LIMIT {most}) e ORDER BY v"
        )
        return [row["value"] for row in self._rows(query)]

    def is_increasing(self, table: Table, values: Sequence[Value]) -> bool:
        """Return whether each value is greater than the one before, in the order of the column."""
        query = (
            f"SELECT coalesce(bool_and(before{_collate(table)} < v), true) AS rises FROM (SELECT v, lag(v) OVER "
            f"(ORDER BY n) AS before FROM unnest({self._array(table, values)}) WITH ORDINALITY AS e(v, n)) pairs "
            "WHERE before IS NOT NULL"
        )
        return bool(self._rows(query)[0]["rises"])

    def ranks(self, table: Table, values: Sequence[Value]) -> Sequence[int]:
        """Return the ranks of the values in the order of the column, from 1. Equal values have equal ranks."""
        query = (
            f"SELECT dense_rank() OVER (ORDER BY v{_collate(table)}) AS rank, n FROM "
            f"unnest({self._array(table, values)}) WITH ORDINALITY AS e(v, n) ORDER BY n"
        )
        return [row["rank"] for row in self._rows(query)] if values else []

    def groups(
        self, table: Table, grid: Grid, ranks: Sequence[int], figures: Aggregates, share: float = 1
    ) -> Sequence[Group]:
        """Group rows in one scan, so that all rows of a group belong to the same chunks of the grid."""
        it = f"t.{self.dialect.name(table.column.name)}"
        ordered = dict(sorted((rank, edge) for rank, edge in zip(ranks, grid.edges, strict=True)))
        edges = self._array(table, [*ordered.values()])
        segment = f"width_bucket({it}{_collate(table)}, {edges})" if ordered else "NULL::int"
        values = self._array(table, grid.values)
        place = f"array_position({values}, {it}{_collate(table)})" if grid.values else "NULL::int"
        numbers = ", ".join(self.dialect.bucket(it, buckets) for buckets in grid.buckets)
        shown = f"{it}::text" if table.column.kind in ("uuid", "other") else it
        query = (
            f"SELECT {it} IS NULL AS is_null, {segment} AS segment, {place} AS place, ARRAY[{numbers}]::bigint[] AS "
            f"numbers, count(*) AS counted, min({shown})::text AS low, max({shown})::text AS high, "
            f"{self._figures(figures)} AS figures FROM {table.name} AS t{_sample(share)} "
            "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        )
        return [
            Group(
                null=row["is_null"],
                segment=row["segment"],
                place=row["place"],
                numbers=tuple(row["numbers"]),
                rows=row["counted"],
                figures=tuple(row["figures"]),
                low=row["low"],
                high=row["high"],
            )
            for row in self._rows(query)
        ]

    def groups_by_id(self, table: Table, figures: Aggregates) -> Mapping[str | None, tuple[int, Figures]]:
        """Group all rows by the text of the column, in one scan."""
        query = (
            f"SELECT t.{self.dialect.name(table.column.name)}::text AS data_id, count(*) AS counted, "
            f"{self._figures(figures)} AS figures FROM {table.name} AS t GROUP BY 1 ORDER BY 1"
        )
        return {row["data_id"]: (row["counted"], tuple(row["figures"])) for row in self._rows(query)}

    def _figures(self, asked: Aggregates) -> str:
        """Return SQL for exact sums of numbers, and for the sum of 60 bits of the MD5 of each row's text."""
        known = self._columns() if asked.sums or asked.checksum else {}
        for column in (*asked.sums, *asked.checksum):
            if column not in known:
                raise self._no_column(column)
            if column in asked.sums and known[column][0] != "N":
                raise InvalidInput(
                    f"{column} has the type {known[column][1]}, which has no sum: give --checksum instead"
                )
        found = [f"sum(t.{self.dialect.name(column)}::numeric)" for column in asked.sums]
        if asked.checksum:
            columns = ", ".join(f"t.{self.dialect.name(column)}" for column in asked.checksum)
            found.append(f"sum(('x' || left(md5(ROW({columns})::text), 15))::bit(60)::bigint)")
        return f"ARRAY[{', '.join(found)}]::numeric[]"

    def find_outside(self, table: Table, values: Sequence[tuple[str, Mapping[str, Any]]]) -> Sequence[int]:
        """Return the indices of values that do not match the predicate of their bounds. `values`: texts and bounds."""
        typed = ((f"{self.dialect.literal(value)}::{table.type}{_collate(table)}", bounds) for value, bounds in values)
        rows = ", ".join(f"({n}, {predicate_of(bounds, it, self.dialect)})" for n, (it, bounds) in enumerate(typed))
        query = f"SELECT n FROM (VALUES {rows}) AS checked(n, holds) WHERE holds IS NOT true ORDER BY n"
        return [row["n"] for row in self._rows(query)] if values else []

    def _array(self, table: Table, values: Sequence[Value]) -> str:
        return f"ARRAY[{', '.join(self.dialect.literal(value) for value in values)}]::{table.type}[]"

    def _rows(self, query: str, parameters: Any = None) -> list[dict[str, Any]]:
        with _translate_errors(self._where, ".".join(self._table)):
            return self._connection.execute(query.encode(), parameters).fetchall()


def _sample(share: float) -> str:
    """Return a sampling clause. The sample is repeatable: a plan is made and measured with the same blocks."""
    return "" if share >= 1 else f" TABLESAMPLE SYSTEM ({share * 100:.6f}) REPEATABLE (0)"


def _text(table: Table) -> str:
    return "" if table.column.kind == "integer" else "::text"


def _collate(table: Table) -> str:
    return f" COLLATE {table.collation}" if table.collation else ""


@contextmanager
def _translate_errors(where: str, table: str = "") -> Iterator[None]:
    """Translate errors of psycopg to those of errors.py."""
    try:
        yield
    except psycopg.Error as error:
        message = error.diag.message_primary or " ".join(str(error).split())
        state = error.sqlstate or ""
        if state == "42501":
            raise Refused(
                f"the user may not read {table} in {where} ({message}): GRANT SELECT on it, or connect as another user"
            ) from error
        if isinstance(error, psycopg.OperationalError) and (not state or state.startswith(("08", "28", "3D", "57P"))):
            if error.pgconn is not None and error.pgconn.needs_password:
                raise NoAccess(f"the source database at {where} wants a password, and none is given") from error
            kind = NoAccess if "FATAL" in message else Unreachable
            raise kind(f"the source database at {where} can't be reached: {message}") from error
        if state.startswith(("22", "42")):
            raise InvalidInput(f"the source database at {where} refuses a statement ({state}): {message}") from error
        raise DataflowError(f"the source database at {where} has failed ({state or 'no code'}): {message}") from error
