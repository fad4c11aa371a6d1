"""The door to BigQuery: Google's connector of Spark reads and writes rows, and hands statements on to BigQuery.

Everything goes through the connector, so that its options say for all of it where BigQuery is and who asks. A key comes
from a variable of the environment, goes to the connector, and nowhere else: Spark hides the option wherever it shows
options.
"""

import base64
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opendataflow.core.chunks.chunk_parts import Part, check_elsewhere
from opendataflow.core.chunks.dialects import OVERTAKEN, BigQuery, Dialect, Statement
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination, Source
from opendataflow.spark.pipeline.storage.databases import Login

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "bigquery"
_SECRET = frozenset({"credentials", "gcpaccesstoken", "proxypassword"})
"""Options of the connector that no file should hold."""
_CONFLICT = ("Transaction is aborted due to concurrent update", "Could not serialize access")
"""What BigQuery says to one of two that change a table at the same time, or that remember their chunks."""
_TRIES = 12
_LONGEST_PAUSE = 60.0


def options_of(given: Login, more: Mapping[str, str], place: str) -> dict[str, str]:
    """Return the connector's options. `more`: those of a source. Raises StepFailed where there are such that mean
    nothing or are secret, or no key."""
    options = {**given.options, **more}
    secret = next((name for name in options if name.lower() in _SECRET), None)
    if secret is not None:
        raise StepFailed(
            f"{place}: {secret} is no option for a file: write passwordVariable, the variable with the key"
        )
    if given.user is not None or given.driver != FORMAT:
        raise StepFailed(f"{place}: BigQuery has no user beside the key, and no driver; leave them out")
    payer = given.url.removeprefix("bigquery://").partition("/")[0]
    return {"parentProject": payer, **options, **_credentials(given.password, place)}


def _credentials(key: str | None, place: str) -> dict[str, str]:
    if key is None:
        return {}  # those of GOOGLE_APPLICATION_CREDENTIALS, or of the machine
    try:
        known = isinstance(json.loads(key), dict)
    except ValueError:
        known = False
    if not known:
        raise StepFailed(f"{place}: the variable of passwordVariable has no key of Google's, which is JSON")
    return {"credentials": base64.b64encode(key.encode()).decode()}


def read_table(
    spark: "SparkSession", given: Login, source: Source, part: Part | None, data_id: str, place: str
) -> "DataFrame":
    """Return the rows of the chunk; BigQuery looks for them. Raises StepFailed where it does not give them,
    InvalidInput where it can't say which they are."""
    if source.columns is not None or source.connections > 1 or source.split_by is not None:
        raise StepFailed(
            f"{place}: BigQuery knows its types and divides a chunk itself; leave out schema, connections and splitBy"
        )
    dialect = given.dialect
    condition = condition_of(dialect, source, part, data_id)
    options = {**dialect.read_options, **options_of(given, source.options, place)}
    if source.query is not None:
        options["query"] = f"SELECT * FROM {source.subquery} given{f' WHERE {condition}' if condition else ''}"
    else:
        assert source.table is not None
        options["path"] = _path(dialect.table(given.url, source.table))
        options |= {} if condition is None else {"filter": condition}
    from opendataflow.spark.pipeline.errors.spark_errors import told_by_database

    with told_by_database(place):
        return spark.read.format(FORMAT).options(**options).load()


def condition_of(dialect: Dialect, source: Source, part: Part | None, data_id: str) -> str | None:
    """Return what is true of the rows of the chunk; None: of all. The predicate of a plan is of another database, and
    would mean something else here: its bounds count. Raises InvalidInput where they can't be said here."""
    if source.predicate is not None:
        return dialect.with_data_id(source.predicate, data_id)
    if part is None:
        return None
    check_elsewhere(part, data_id, "write a predicate for this table")
    return dialect.condition(str(part.column), part.bounds)


class BigQueryConnection:
    """BigQuery, as tables are written. Each statement is a transaction of its own, and so is each `together`."""

    def __init__(self, spark: "SparkSession", given: Login, writer: BigQuery, place: str) -> None:
        self._spark = spark
        self._options = options_of(given, {}, place)
        self._sql = writer
        self._place = place

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Nothing: a session with a transaction that a killed program has left would keep others waiting for hours."""
        yield

    def together(self, first: Statement, *rest: Statement) -> bool:
        """Run all in one transaction, or nothing where the first one changes nothing; return whether it did."""
        try:
            self._asked(self._sql.transaction(first, rest))
        except StepFailed as error:
            if OVERTAKEN in str(error):
                return False
            raise
        return True

    def run(self, *statements: Statement) -> None:
        """Run statements, one by one."""
        for statement in statements:
            self._asked(statement.sql)

    def rows(self, statement: Statement) -> list[tuple[str | None, ...]]:
        """Return the rows of a query: few ones, as texts."""
        return self._asked(f"-- of a query\n{statement.sql}")  # the connector refuses a text that begins with SELECT

    def make(self, frame: "DataFrame", table: str, to: Destination) -> None:
        """Make the table of a destination, with the columns of a frame without rows."""
        column = to.data_id_column or (to.partitioning and to.partitioning.column)
        try:
            self._save(frame, table, {"clusteredFields": column} if column else {})
        except Exception:
            if not self.rows(self._sql.columns(table)):  # else another chunk has made it at the same time
                raise

    def stage(self, frame: "DataFrame", table: str) -> None:
        """Write the rows of a frame into a staging table, which is made."""
        self._save(frame, table, {})

    def close(self) -> None:
        """Nothing is open."""

    def _save(self, frame: "DataFrame", table: str, more: dict[str, str]) -> None:
        options = {**self._sql.write_options, **self._options, **more}
        frame.write.format(FORMAT).options(**options).mode("append").save(_path(table))

    def _asked(self, text: str) -> list[tuple[str | None, ...]]:
        """Let BigQuery run SQL; return the rows of a query: Google's client finds none of a script. What meets another
        one is done again."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._answer(text)
            except StepFailed as error:
                if attempt == _TRIES or not any(mark in str(error) for mark in _CONFLICT):
                    raise
            time.sleep(random.uniform(0.5, 1) * min(2.0**attempt, _LONGEST_PAUSE))
        raise AssertionError

    def _answer(self, text: str) -> list[tuple[str | None, ...]]:
        from opendataflow.spark.pipeline.errors.spark_errors import told_by_database

        jvm: Any = self._spark._jvm
        options = jvm.PythonUtils.toScalaMap(self._options)
        with told_by_database(self._place):
            answer = self._spark._jsparkSession.executeCommand(FORMAT, text, options).collectAsList()
        lines = [str(row.getString(0)) for row in answer]
        return [tuple(None if cell == "NULL" else cell for cell in line.split("\t")) for line in lines]


def _path(table: str) -> str:
    """Return a table as the connector has it."""
    return table.replace("`", "")
