"""The model of `data-sources.yml`: where sources of a Django tool's project are, if they are no files of the project.

The Django tool keeps these settings in its server. The file is beside `project.yml`, which stays unchanged. This module
opens no file.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError

from opendataflow.errors import InvalidInput
from opendataflow.model.fields.field_types import InputModel, NonEmpty, Url
from opendataflow.model.fields.rules import Rule, exactly_one
from opendataflow.model.fields.validation_errors import describe_value
from opendataflow.model.fields.yaml_documents import documents
from opendataflow.model.projects.database import Database, TableName
from opendataflow.model.projects.project import (
    DATA_ID,
    MOST,
    CsvName,
    Pipeline,
    ProjectFile,
    Source,
    distinct,
    located_faults,
)

DATA_SOURCES_FILE = "data-sources.yml"


class DataSource(InputModel):
    """A source that is a table or a query of Postgres, or a CSV file in a bucket or in another folder."""

    rules: ClassVar = (
        exactly_one("path", "database"),
        Rule(
            "exactly one of table and query is wanted beside database",
            lambda it: (it.table is not None) + (it.query is not None) == (it.database is not None),
        ),
        Rule(
            "the Django tool's form reads whole sources; leave {data_id} out",
            lambda it: DATA_ID not in (it.path or ""),
            at="path",
        ),
    )

    name: CsvName = Field(description="The name of the source in `project.yml`.")
    path: Url | None = Field(
        default=None,
        description="The CSV file: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, or a path relative to the project. An S3 "
        "server of your own is a parameter: `?endpoint_override=HOST:PORT&scheme=http`. Keys and region come from the "
        "environment, such as `AWS_ACCESS_KEY_ID`.",
    )
    database: Database | None = Field(default=None, description="The database, a Postgres.")
    table: TableName | None = Field(default=None, description="The table. All of its rows are read.")
    query: NonEmpty | None = Field(default=None, description="A query instead of a table.")


class DataSources(InputModel):
    """The sources of a Django tool's project that are no files in its folder `sources`."""

    sources: Annotated[
        tuple[DataSource, ...],
        Field(min_length=1, max_length=MOST),
        distinct(lambda it: it.name, "the source {} is written twice; leave one of them out"),
    ] = Field(description="The sources.")


def with_data_sources(file: ProjectFile, text: str, source: str) -> ProjectFile:
    """Return a project with the sources of a `data-sources.yml`. `source`: its name, for errors.

    Raises InvalidInput, with one line for each fault of the file.
    """
    if not file.django:
        raise InvalidInput(
            f"{source}: this file is for projects in the form of the Django tool; with version: 2, write the database "
            "or the path of a source into project.yml"
        )
    known = {it.name: it for it in _parse(text, source).sources}
    pipelines = tuple(_with_sources(pipeline, known) for pipeline in file.project.pipelines)
    used = {it.name for pipeline in file.project.pipelines for it in pipeline.sources}
    remarks = tuple(f"{source}: no pipeline has the source {name}" for name in known if name not in used)
    return replace(file, project=file.project.model_copy(update={"pipelines": pipelines}), remarks=remarks)


def _parse(text: str, source: str) -> DataSources:
    written: list[Any] = list(documents(text, source))
    if len(written) != 1:
        raise InvalidInput(f"{source}: one list of sources is wanted, this file has {len(written) or 'none'}")
    root, value = written[0]
    if not isinstance(value, dict):
        raise InvalidInput(f"{source}: a mapping with `sources` is wanted, this is {describe_value(value)}")
    try:
        return DataSources.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidInput("\n".join(located_faults(DataSources, error, root, source))) from None


def _with_sources(pipeline: Pipeline, known: dict[str, DataSource]) -> Pipeline:
    # Without validation, as in project.py: the Django tool allows sources that are read twice.
    sources = tuple(_as_source(known[it.name]) if it.name in known else it for it in pipeline.sources)
    return pipeline.model_copy(update={"sources": sources})


def _as_source(it: DataSource) -> Source:
    written = {name: getattr(it, name) for name in it.model_fields_set}
    return Source.model_construct(**{**dict(Source(name=it.name)), **written})
