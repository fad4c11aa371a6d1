"""Look at the locations of a pipeline that only Spark reaches: databases, object stores, and paths with wildcards."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.known_databases import find_writer
from opendataflow.core.databases.postgres_address import display_address
from opendataflow.core.runs.preflight import Finding
from opendataflow.errors import DataflowError, InvalidInput, StepFailed
from opendataflow.model.projects.database import Database
from opendataflow.model.projects.project import DATA_ID, Source
from opendataflow.names import Answer, Preflight
from opendataflow.spark.pipeline.io.preflight import Observer, is_local_file, shared_folder
from opendataflow.spark.pipeline.io.reading_sources import find_local
from opendataflow.spark.pipeline.io.reading_tables import check_table
from opendataflow.spark.pipeline.project.project_folder import ResolvedPipeline
from opendataflow.spark.pipeline.storage.database_login import Login, resolve_login
from opendataflow.spark.pipeline.storage.file_system import FileSystem
from opendataflow.spark.pipeline.storage.jdbc_connection import JdbcConnection
from opendataflow.spark.pipeline.storage.spark_paths import escape_wildcards

_MISSING = re.compile(
    r"^(?>.*?\b(?:relation|table|view|database|schema)\b).*\b(?:does not|doesn't) exist\b", re.IGNORECASE | re.MULTILINE
)


def look_with_spark(
    spark: SparkSession, resolved: ResolvedPipeline, data_id: str, observer: Observer
) -> Iterator[Finding]:
    """Yield what is found at the locations that `look_at_files` omits."""
    for index, source in enumerate(resolved.pipeline.sources):
        place = resolved.place("sources", index)
        if source.database is not None:
            yield _look_at_source(spark, source, source.database, place, observer)
        elif not is_local_file(source):
            yield _look_at_paths(spark, resolved, source, data_id, place, observer)
    to, place = resolved.pipeline.destination, resolved.place("destination")
    if to.database is not None:
        yield _look_at_connection(spark, _Target(to.dataset or to.name, to.database, to.where, place), observer)
    elif "://" in to.where:
        dataset = to.dataset or to.name
        try:
            FileSystem(spark, to.where, place, to.options).list_matches(escape_wildcards(to.where))
        except StepFailed as error:
            yield observer.finding(dataset, to.where, Answer.UNKNOWN, str(error), Preflight.JOB)
        else:
            yield observer.finding(dataset, to.where, Answer.UNKNOWN, "only its file system was asked: it answers")


def _look_at_paths(
    spark: SparkSession, resolved: ResolvedPipeline, source: Source, data_id: str, place: str, observer: Observer
) -> Finding:
    """Look for files at an address or at a local path with wildcards."""
    project, where = resolved.project, source.where.replace(DATA_ID, data_id)
    dataset, shown = source.dataset or source.name, project.display_location(where)

    def is_there(path: str, own_id: str) -> bool:
        if "://" not in path:
            return bool(find_local(spark, project, path, own_id, place))
        pattern = path.replace(DATA_ID, escape_wildcards(own_id))
        return bool(FileSystem(spark, pattern, place, source.options).list_matches(pattern))

    try:
        if is_there(source.where, data_id):
            return observer.finding(dataset, where, Answer.YES, f"{shown} is there")
    except StepFailed as error:
        found, sentence = Answer.UNKNOWN, str(error)
    else:
        found, sentence = Answer.NO, f"{place}: there is no {shown}"
    return observer.finding(dataset, where, found, sentence, _scope(source, lambda path: is_there(path, "")))


def _scope(source: Source, is_there: Callable[[str], bool]) -> Preflight:
    """Return whose runs a missing location prevents. Without the folder that all chunks share, no chunk is there."""
    shared = shared_folder(source.where)
    if shared is None:
        return Preflight.JOB
    if not shared or shared.endswith("://"):
        return Preflight.CHUNK
    try:
        return Preflight.CHUNK if is_there(shared) else Preflight.JOB
    except StepFailed:
        return Preflight.JOB


@dataclass(frozen=True)
class _Target:
    """What to look at in a database. `what`: a table, or "a query". `place`: in the project's file."""

    dataset: str
    database: Database
    what: str
    place: str


def _look_at_source(spark: SparkSession, source: Source, database: Database, place: str, observer: Observer) -> Finding:
    """Ask the database for the columns of a table. Of a query only the connection is checked."""
    target = _Target(source.dataset or source.name, database, source.where, place)
    if source.table is None:
        return _look_at_connection(spark, target, observer)
    passed = (Answer.YES, "the table answers")
    return _ask(target, lambda login: check_table(spark, login, source, place), observer, passed)


def _look_at_connection(spark: SparkSession, target: _Target, observer: Observer) -> Finding:
    """Connect to a database, and look at nothing in it."""

    def connect(login: Login) -> None:
        JdbcConnection(spark, login, find_writer(login.url), target.place).close()

    passed = (Answer.UNKNOWN, "only the connection was checked: the database answers")
    return _ask(target, connect, observer, passed)


def _ask(target: _Target, check: Callable[[Login], None], observer: Observer, passed: tuple[Answer, str]) -> Finding:
    """Return what a check of a database has found: `passed` if the check raises nothing."""
    dataset = target.dataset
    try:
        login = resolve_login(target.database, target.place)
    except DataflowError as error:  # a mistake in the project, which the run reports
        return observer.finding(dataset, target.what, Answer.UNKNOWN, str(error))
    where = f"{_address(login)} {target.what}"
    if isinstance(login.dialect, BigQuery):
        return observer.finding(dataset, where, Answer.UNKNOWN, "nobody has looked: BigQuery is not asked")
    try:
        check(login)
    except InvalidInput as error:
        return observer.finding(dataset, where, Answer.UNKNOWN, f"nobody has looked: {error}")
    except StepFailed as error:
        missing = Answer.NO if _MISSING.search(str(error)) else Answer.UNKNOWN
        cause = str(error).removeprefix(f"{target.place}: ")
        return observer.finding(dataset, where, missing, f"{target.place}: {where}: {cause}", Preflight.JOB)
    return observer.finding(dataset, where, *passed)


def _address(login: Login) -> str:
    """Return the address of a database for people. A URL may hold a password, so only known parts are shown."""
    parameters = login.libpq_parameters()
    return display_address(parameters) if parameters is not None else "the database of"
