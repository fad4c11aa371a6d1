"""The door to databases: how to get in, and one plain JDBC connection of the driver's JVM beside those of Spark.

Passwords come from variables of the environment, go to the JDBC driver, and nowhere else.
"""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opendataflow.core.chunks.attempts import Attempt, fence_of
from opendataflow.core.chunks.dialects import Dialect, Driver, Statement, Writer, dialect_of
from opendataflow.core.chunks.libpq import connection_words
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.database import Database
from opendataflow.model.projects.project import Destination, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SPARK_ONLY = frozenset(
    {"batchsize", "fetchsize", "isolationlevel", "querytimeout", "sessioninitstatement", "truncate"}
)
"""Options of Spark that a JDBC driver may take for its own."""
_NO_COLUMN = re.compile(r"\bvoid\b|struct<|map<|interval|variant")
"""Types of Spark that its JDBC has no words for."""
_PATIENCE = 10
"""Seconds that a database may take to say that it is still there."""


@dataclass(frozen=True)
class Login:
    """How to get into a database. Its text never shows the password."""

    url: str
    user: str | None
    dialect: Dialect
    driver: str | None
    options: Mapping[str, str]
    password: str | None = field(default=None, repr=False)

    def for_spark(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return Spark's options. `more`: those of the dialect, which the project's overrule."""
        known = {"url": self.url, "user": self.user, "password": self.password, "driver": self.driver}
        return {**more, **self.options, **{name: value for name, value in known.items() if value is not None}}

    def for_libpq(self) -> dict[str, str] | None:
        """Return the parameters of libpq; None where they can't say the same."""
        known = {"user": self.user, "password": self.password}
        return connection_words(
            self.url, {**self.options, **{name: value for name, value in known.items() if value is not None}}
        )


def login(database: Database, place: str, environ: Mapping[str, str] = os.environ) -> Login:
    """Fill in what the environment says. `place`: in the project's file. Raises StepFailed where it lacks something."""

    def value(name: str) -> str:
        if name not in environ:
            raise StepFailed(f"{place}: the variable {name} is not set; the database wants it")
        return environ[name]

    def filled(text: str) -> str:
        return _VARIABLE.sub(lambda match: value(match[1]), text)

    url = filled(database.url)
    try:
        dialect = dialect_of(url)
    except InvalidInput as error:
        raise StepFailed(f"{place}: {error}") from None
    return Login(
        url,
        None if database.user is None else filled(database.user),
        dialect,
        database.driver or (dialect.driver.name if dialect.driver else None),
        database.options,
        None if database.password_variable is None else value(database.password_variable),
    )


def dialect_here(database: Database, environ: Mapping[str, str] = os.environ) -> Dialect | None:
    """Return how a database is spoken to; None where its URL is none, as where the variables in it are not set."""
    with suppress(InvalidInput):  # who connects says so
        return dialect_of(_VARIABLE.sub(lambda match: environ.get(match[1], ""), database.url))
    return None


def drivers_of(pipeline: Pipeline, environ: Mapping[str, str] = os.environ) -> list[Driver]:
    """Return the JDBC drivers and connectors that a pipeline needs, as far as they are known here."""
    given = [*(source.database for source in pipeline.sources), pipeline.destination.database]
    dialects = [dialect_here(it, environ) for it in given if it is not None and it.driver is None]
    return list(dict.fromkeys(it.driver for it in dialects if it is not None and it.driver is not None))


def attempt_of(dataset: str, data_id: str, environ: Mapping[str, str]) -> Attempt:
    """Return who writes: the run that this process is, or a person."""
    return Attempt(dataset, data_id, secrets.token_hex(6), fence_of(environ, data_id))


class Connection:
    """One connection. Every error is a StepFailed with the place and what the database says."""

    def __init__(self, spark: "SparkSession", given: Login, writer: Writer, place: str) -> None:
        self._jvm: Any = spark._jvm
        self._given = given
        self._sql = writer
        self._place = place
        self._open()

    def _open(self) -> None:
        with self._told():
            self._raw = self._opened()
        self.run(*self._sql.session())

    def _opened(self) -> Any:
        given, java = self._given, self._jvm.java
        properties = java.util.Properties()
        known = {"user": given.user, "password": given.password}
        for name, value in {**given.options, **known}.items():
            if value is not None and name.lower() not in _SPARK_ONLY:
                properties.setProperty(name, value)
        if given.driver is None:
            return java.sql.DriverManager.getConnection(given.url, properties)
        # DriverManager does not see drivers in jars that came with Spark's settings.
        loader = java.lang.Thread.currentThread().getContextClassLoader()
        driver = loader.loadClass(given.driver).getDeclaredConstructor(self._none()).newInstance(self._none("Object"))
        connection = driver.connect(given.url, properties)
        if connection is None:
            raise StepFailed(f"{self._place}: the JDBC driver {given.driver} is not for this URL")
        return connection

    def _none(self, kind: str = "Class") -> Any:
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        assert gateway is not None
        return gateway.new_array(getattr(self._jvm.java.lang, kind), 0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing."""
        with self._told():
            self._raw.setAutoCommit(False)
        try:
            yield
            with self._told():
                self._raw.commit()
        finally:
            with suppress(Exception):
                self._raw.rollback()
                self._raw.setAutoCommit(True)

    def together(self, first: Statement, *rest: Statement) -> bool:
        """Run all in one transaction, or nothing where the first one changes nothing; return whether it did."""
        with self.transaction():
            changed = self.run(first) > 0
            if changed:
                self.run(*rest)
        return changed

    def run(self, *statements: Statement) -> int:
        """Run statements; return how many rows the last one has changed."""
        changed = 0
        for statement in statements:
            with self._told(), self._prepared(statement) as prepared:
                changed = int(prepared.executeLargeUpdate())
            if statement.rows not in (None, changed):
                raise StepFailed(
                    f"{self._place}: of {statement.rows} rows {changed} were added, as a trigger or rule of the table "
                    "left out others; nothing was written: leave them out in a transformation"
                )
        return changed

    def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a query: few ones."""
        with self._told(), self._prepared(statement) as prepared:
            result = prepared.executeQuery()
            width = range(1, result.getMetaData().getColumnCount() + 1)
            found = []
            while result.next():
                found.append(tuple(result.getObject(index) for index in width))
            return found

    def make(self, frame: "DataFrame", table: str, to: Destination) -> None:
        """Make the table of a destination, with the columns of a frame without rows."""
        self._save(frame, table)
        if to.data_id_column is not None:
            self.run(*self._sql.make_index(table, to.data_id_column))

    def stage(self, frame: "DataFrame", table: str) -> None:
        """Add the rows of a frame to a staging table."""
        from opendataflow.spark.pipeline.storage.copying import can_copy, copy_rows

        most = {name.lower(): value for name, value in self._given.options.items()}.get("numpartitions", "")
        if most.isdecimal():  # not by Spark's writer, which leaves out what is measured then
            frame = frame.coalesce(int(most))
        copy, words = self._sql.copy(table, frame.columns), self._given.for_libpq()
        if copy is None or words is None or not can_copy(frame):
            self._save(frame, table)
        else:
            copy_rows(frame, words, [it.sql for it in self._sql.session()], copy, self._place)
        self._go_on()

    def _go_on(self) -> None:
        """Connect again where somebody has closed the connection, as nothing went over it while the rows did."""
        if not self._raw.isValid(_PATIENCE):
            self.close()
            self._open()

    def _save(self, frame: "DataFrame", table: str) -> None:
        for name, kind in frame.dtypes:
            if _NO_COLUMN.search(kind):
                raise StepFailed(
                    f"{self._place}: the column {name} is {kind}, which tables do not have: cast it, or make it a text "
                    "by to_json()"
                )
        options = {**self._given.for_spark(self._sql.write_options), "dbtable": table}
        frame.write.format("jdbc").options(**options).mode("append").save()

    def close(self) -> None:
        """Let it go; what is not committed is undone."""
        with suppress(Exception):
            self._raw.close()

    @contextmanager
    def _prepared(self, statement: Statement) -> Iterator[Any]:
        prepared = self._raw.prepareStatement(statement.sql)
        try:
            for index, value in enumerate(statement.values, 1):
                if value is None:
                    prepared.setNull(index, self._jvm.java.sql.Types.BIGINT)
                elif isinstance(value, int):
                    prepared.setLong(index, value)
                else:
                    prepared.setString(index, value)
            yield prepared
        finally:
            prepared.close()

    def _told(self) -> AbstractContextManager[None]:
        from opendataflow.spark.pipeline.errors.spark_errors import told_by_database

        return told_by_database(self._place)
