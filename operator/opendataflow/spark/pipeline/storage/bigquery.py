"""Client for BigQuery: Google's connector for Spark reads and writes rows, and runs statements.

The connector is the only way to BigQuery, so its options apply to all requests. The key comes from a variable of the
environment and goes only to the connector. Spark hides this option wherever it shows options.
"""

import base64
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from opendataflow.core.chunks.chunk_parts import Part, check_elsewhere
from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.destination import SUPERSEDED, Statement
from opendataflow.core.databases.dialect import Dialect
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination, Source
from opendataflow.spark.pipeline.errors.spark_errors import explain_database_errors
from opendataflow.spark.pipeline.storage.database_login import Login

FORMAT = "bigquery"
_SECRET_OPTION = "credentials"
"""An option of the connector that no file should hold. The models refuse the others, by their names."""
_CONFLICT = ("Transaction is aborted due to concurrent update", "Could not serialize access")
"""BigQuery's messages for one of two concurrent changes of a table."""
_TRIES = 12
_LONGEST_PAUSE = 60.0


def connector_options(login: Login, source_options: Mapping[str, str], place: str) -> dict[str, str]:
    """Return the connector's options. Raises StepFailed for secret or meaningless options, or an invalid key."""
    options = {**login.options, **source_options}
    secret = next((name for name in options if name.lower() == _SECRET_OPTION), None)
    if secret is not None:
        raise StepFailed(
            f"{place}: {secret} is no option for a file: write passwordVariable, the variable with the key"
        )
    if login.user is not None or login.driver != FORMAT:
        raise StepFailed(f"{place}: BigQuery has no user beside the key, and no driver; leave them out")
    payer = login.url.removeprefix("bigquery://").partition("/")[0]
    return {"parentProject": payer, **options, **_credentials(login.password, place)}


def _credentials(key: str | None, place: str) -> dict[str, str]:
    if key is None:
        return {}  # the connector uses GOOGLE_APPLICATION_CREDENTIALS or the account of the machine
    try:
        is_key = isinstance(json.loads(key), dict)
    except ValueError:
        is_key = False
    if not is_key:
        raise StepFailed(f"{place}: the variable of passwordVariable has no key of Google's, which is JSON")
    return {"credentials": base64.b64encode(key.encode()).decode()}


def read_table(
    spark: SparkSession, login: Login, source: Source, part: Part | None, data_id: str, place: str
) -> DataFrame:
    """Return the rows of the chunk, filtered by BigQuery.

    Raises StepFailed if BigQuery refuses the query, InvalidInput if BigQuery can't express the chunk's bounds.
    """
    if source.columns is not None or source.connections > 1 or source.split_by is not None:
        raise StepFailed(
            f"{place}: BigQuery knows its types and divides a chunk itself; leave out schema, connections and splitBy"
        )
    dialect = login.dialect
    condition = chunk_condition(dialect, source, part, data_id)
    options = {**dialect.read_options, **connector_options(login, source.options, place)}
    if source.query is not None:
        options["query"] = f"SELECT * FROM {source.subquery} given{f' WHERE {condition}' if condition else ''}"
    else:
        assert source.table is not None
        options["path"] = _unquote(dialect.table_name(login.url, source.table))
        options |= {} if condition is None else {"filter": condition}
    with explain_database_errors(place):
        return spark.read.format(FORMAT).options(**options).load()


def chunk_condition(dialect: Dialect, source: Source, part: Part | None, data_id: str) -> str | None:
    """Return the SQL condition for the rows of the chunk, or None for all rows.

    The condition is made of the chunk's bounds: a planned predicate is written for another database. Raises
    InvalidInput if the dialect can't express the bounds.
    """
    if source.predicate is not None:
        return dialect.fill_data_id(source.predicate, data_id)
    if part is None:
        return None
    check_elsewhere(part, data_id, "write a predicate for this table")
    return dialect.condition(str(part.column), part.bounds)


class BigQueryConnection:
    """A connection to BigQuery. Each statement and each `run_guarded` is a transaction of its own."""

    def __init__(self, spark: SparkSession, login: Login, writer: BigQuery, place: str) -> None:
        self._spark = spark
        self._options = connector_options(login, {}, place)
        self._sql = writer
        self._place = place

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do nothing. The open transaction of a killed program would block others for hours."""
        yield

    def run_guarded(self, first: Statement, *rest: Statement) -> bool:
        """Run statements in one transaction. Skip the rest and return False if the first one changes no row."""
        try:
            self._execute(self._sql.guarded_script(first, rest))
        except StepFailed as error:
            if SUPERSEDED in str(error):
                return False
            raise
        return True

    def run(self, *statements: Statement) -> None:
        """Run statements, one by one."""
        for statement in statements:
            self._execute(statement.sql)

    def query(self, statement: Statement) -> list[tuple[str | None, ...]]:
        """Return the rows of a query with a small result, as texts."""
        return self._execute(f"-- of a query\n{statement.sql}")  # the connector refuses a text that begins with SELECT

    def create_table(self, frame: DataFrame, table: str, to: Destination) -> None:
        """Create the table of a destination, with the columns of a frame without rows."""
        column = to.data_id_column or (to.partitioning and to.partitioning.column)
        try:
            self._save(frame, table, {"clusteredFields": column} if column else {})
        except Exception:
            if not self.query(self._sql.query_columns(table)):  # otherwise another chunk has created the table
                raise

    def write_staging(self, frame: DataFrame, table: str) -> None:
        """Create a staging table with the rows of a frame."""
        self._save(frame, table, {})

    def close(self) -> None:
        """Do nothing. No connection is open."""

    def _save(self, frame: DataFrame, table: str, more: dict[str, str]) -> None:
        options = {**self._sql.write_options, **self._options, **more}
        frame.write.format(FORMAT).options(**options).mode("append").save(_unquote(table))

    def _execute(self, text: str) -> list[tuple[str | None, ...]]:
        """Run SQL and return the rows of a query. Retry after a conflict. A script returns no rows."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._execute_once(text)
            except StepFailed as error:
                if attempt == _TRIES or not any(mark in str(error) for mark in _CONFLICT):
                    raise
            time.sleep(random.uniform(0.5, 1) * min(2.0**attempt, _LONGEST_PAUSE))
        raise AssertionError

    def _execute_once(self, text: str) -> list[tuple[str | None, ...]]:
        jvm: Any = self._spark._jvm
        options = jvm.PythonUtils.toScalaMap(self._options)
        with explain_database_errors(self._place):
            answer = self._spark._jsparkSession.executeCommand(FORMAT, text, options).collectAsList()
        lines = [str(row.getString(0)) for row in answer]
        return [tuple(None if cell == "NULL" else cell for cell in line.split("\t")) for line in lines]


def _unquote(table: str) -> str:
    """Return a table's name without quotes, as the connector expects."""
    return table.replace("`", "")
