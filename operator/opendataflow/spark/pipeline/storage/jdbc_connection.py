"""Client for databases: one JDBC connection of the driver's JVM, beside the connections of Spark."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from opendataflow.core.databases.destination import Statement, Writer
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination
from opendataflow.spark.pipeline.errors.spark_errors import explain_database_errors
from opendataflow.spark.pipeline.storage import copying
from opendataflow.spark.pipeline.storage.database_login import Login

_SPARK_ONLY = frozenset(
    {"batchsize", "fetchsize", "isolationlevel", "querytimeout", "sessioninitstatement", "truncate"}
)
"""Options of Spark that a JDBC driver could mistake for its own."""
_UNSUPPORTED_TYPES = re.compile(r"\bvoid\b|struct<|map<|interval|variant")
"""Types of Spark without a JDBC type."""
_VALIDITY_TIMEOUT = 10
"""Seconds to wait for the database when a connection is checked."""


class JdbcConnection:
    """One connection to a database. Every error is a StepFailed with the place and the database's message."""

    def __init__(self, spark: SparkSession, login: Login, writer: Writer, place: str) -> None:
        self._jvm: Any = spark._jvm
        self._login = login
        self._sql = writer
        self._place = place
        self._open()

    def _open(self) -> None:
        with self._explained():
            self._raw = self._connect()
        self.run(*self._sql.session_setup())

    def _connect(self) -> Any:
        login, java = self._login, self._jvm.java
        properties = java.util.Properties()
        known = {"user": login.user, "password": login.password}
        for name, value in {**login.options, **known}.items():
            if value is not None and name.lower() not in _SPARK_ONLY:
                properties.setProperty(name, value)
        if login.driver is None:
            return java.sql.DriverManager.getConnection(login.url, properties)
        # DriverManager does not see drivers in jars that came with Spark's settings.
        loader = java.lang.Thread.currentThread().getContextClassLoader()
        constructor = loader.loadClass(login.driver).getDeclaredConstructor(self._empty_array("Class"))
        connection = constructor.newInstance(self._empty_array("Object")).connect(login.url, properties)
        if connection is None:
            raise StepFailed(f"{self._place}: the JDBC driver {login.driver} is not for this URL")
        return connection

    def _empty_array(self, kind: str) -> Any:
        gateway = SparkContext._gateway
        assert gateway is not None
        return gateway.new_array(getattr(self._jvm.java.lang, kind), 0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block, or none."""
        with self._explained():
            self._raw.setAutoCommit(False)
        try:
            yield
            with self._explained():
                self._raw.commit()
        finally:
            with suppress(Exception):
                self._raw.rollback()
                self._raw.setAutoCommit(True)

    def run_guarded(self, first: Statement, *rest: Statement) -> bool:
        """Run statements in one transaction. Skip the rest and return False if the first one changes no row."""
        with self.transaction():
            changed = self.run(first) > 0
            if changed:
                self.run(*rest)
        return changed

    def run(self, *statements: Statement) -> int:
        """Run statements. Return the number of rows that the last one changed."""
        changed = 0
        for statement in statements:
            with self._explained(), self._prepared(statement) as prepared:
                changed = int(prepared.executeLargeUpdate())
            if statement.rows not in (None, changed):
                raise StepFailed(
                    f"{self._place}: of {statement.rows} rows {changed} were added, as a trigger or rule of the table "
                    "left out others; nothing was written: leave them out in a transformation"
                )
        return changed

    def query(self, statement: Statement) -> list[tuple[Any, ...]]:
        """Return the rows of a query with a small result."""
        with self._explained(), self._prepared(statement) as prepared:
            result = prepared.executeQuery()
            width = range(1, result.getMetaData().getColumnCount() + 1)
            found = []
            while result.next():
                found.append(tuple(result.getObject(index) for index in width))
            return found

    def create_table(self, frame: DataFrame, table: str, to: Destination) -> None:
        """Create the table of a destination, with the columns of a frame without rows."""
        self._save(frame, table)
        if to.data_id_column is not None:
            self.run(*self._sql.create_index(table, to.data_id_column))

    def write_staging(self, frame: DataFrame, table: str) -> None:
        """Add the rows of a frame to a staging table."""
        most = {name.lower(): value for name, value in self._login.options.items()}.get("numpartitions", "")
        if most.isdecimal():  # Spark's writer would also coalesce, but without the measures
            frame = frame.coalesce(int(most))
        copy, parameters = self._sql.copy_statement(table, frame.columns), self._login.libpq_parameters()
        if copy is None or parameters is None or not copying.can_copy(frame):
            self._save(frame, table)
        else:
            setup = [it.sql for it in self._sql.session_setup()]
            copying.copy_rows(frame, parameters, setup, copy, self._place)
        self._reconnect_if_closed()

    def _reconnect_if_closed(self) -> None:
        """Connect again if the idle connection was closed while Spark wrote the rows."""
        if not self._raw.isValid(_VALIDITY_TIMEOUT):
            self.close()
            self._open()

    def _save(self, frame: DataFrame, table: str) -> None:
        for name, kind in frame.dtypes:
            if _UNSUPPORTED_TYPES.search(kind):
                raise StepFailed(
                    f"{self._place}: the column {name} is {kind}, which tables do not have: cast it, or make it a text "
                    "by to_json()"
                )
        options = {**self._login.spark_options(self._sql.write_options), "dbtable": table}
        frame.write.format("jdbc").options(**options).mode("append").save()

    def close(self) -> None:
        """Close the connection. Uncommitted changes are rolled back."""
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

    def _explained(self) -> AbstractContextManager[None]:
        return explain_database_errors(self._place)
