"""What users write about their pipelines: `project.yml`, in its own form and in that of the Django tool.

`version: 2` at the top tells the two apart; without it the file is in the Django tool's form, with its keys and
nothing else, and becomes the same models here. Each mistake is one sentence with its line. Nothing here opens a file:
whether sources and transformations are there is found out by who uses them.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema
from yaml.nodes import Node

from opendataflow.errors import InvalidInput
from opendataflow.model.fields.field_types import Id, NonEmpty, Options, Url, Written
from opendataflow.model.fields.rules import Rule, matching
from opendataflow.model.fields.validation_errors import placed_sentences, shape
from opendataflow.model.fields.yaml_documents import documents, line_of, node_at, source_text
from opendataflow.model.projects.database import Database, TableName
from opendataflow.model.projects.expectations import Expectation
from opendataflow.model.resources.datasets import Partitioning

PROJECT_FILE = "project.yml"
VERSION = 2

DATA_ID = "{data_id}"
"""Stands for the data id of the chunk in the path of a source."""


def _first_double(names: tuple[str, ...]) -> int | None:
    return next((index for index, name in enumerate(names) if name in names[:index]), None)


def _distinct(name_of: Callable[[Any], str], sentence: str) -> Rule:
    """No two items of a list have one name. `sentence` has a place for it."""

    def double(items: tuple[Any, ...]) -> int | None:
        return _first_double(tuple(name_of(item) for item in items))

    return Rule(
        sentence.format("a name"),
        lambda items: double(items) is None,
        told=lambda items: sentence.format(name_of(items[double(items) or 0])),
        at=lambda items: f"[{double(items)}]",
    )


def _without(suffix: str) -> BeforeValidator:
    return BeforeValidator(lambda given: given.removesuffix(suffix) if isinstance(given, str) else given)


_FILE_NAME = matching(
    r"[^./\\\x00-\x1f][^/\\\x00-\x1f]*",
    "it is the name of a file or folder: no slashes, and it does not begin with a dot",
)
_MOST_BYTES = 200
"""Of the 255 that a file system takes: the program adds something to some names."""
_SHORT = Rule(
    f"the name of a file has at most {_MOST_BYTES} bytes, and these letters take several each",
    lambda text: len(text.encode("utf-8", "replace")) <= _MOST_BYTES,
    f"bytes(self).size() <= {_MOST_BYTES}",
)
FileName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=_MOST_BYTES), _FILE_NAME, _SHORT]
Module = Annotated[FileName, _without(".py")]


class Named(Written):
    """Something that may be written as its name only."""

    @model_validator(mode="before")
    @classmethod
    def _only_a_name(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Say in the schema that a text is enough."""
        whole = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(schema, handler))
        whole = {**whole, "properties": dict(whole["properties"])}
        return {"anyOf": [{"type": "string", "description": "Its name; the rest is as by default."}, whole]}


def _only_with_database(*fields: str) -> Rule:
    return Rule(
        f"{', '.join(to_camel(field) for field in fields)} are for tables; write the `database` that has the table",
        lambda it: it.database is not None or not set(fields) & it.model_fields_set,
    )


_NO_PATH = Rule(
    "a table has no path and no format; leave them out, or leave out `database`",
    lambda it: it.database is None or not {"path", "format"} & it.model_fields_set,
)


class Source(Named):
    """Where a pipeline reads: files, or a table. May be written as its name only."""

    rules: ClassVar = (
        _only_with_database("table", "query", "connections", "split_by"),
        _NO_PATH,
        Rule(
            "exactly one of table and query is wanted beside database",
            lambda it: it.database is None or (it.table is None) != (it.query is None),
            at="database",
        ),
        Rule(
            "one of partitioning and predicate says which rows are of the chunk, not both",
            lambda it: it.partitioning is None or it.predicate is None,
            at="predicate",
        ),
        Rule(
            "reading with several connections needs a column to divide the rows by: write splitBy",
            lambda it: it.connections == 1 or it.split_column is not None,
            at="connections",
        ),
    )

    name: FileName = Field(description="What it is called.")
    dataset: Id | None = Field(
        default=None,
        description="The data set of the job that it belongs to, whose bounds of the chunk say which rows are read. "
        "The default is the one with the name of the source, where the job has it.",
    )
    path: Url | None = Field(
        default=None,
        description="The file or folder, relative to the project, or its address such as `s3a://bucket/folder`; "
        "`{data_id}` stands for the chunk's data id. The default is `sources/NAME.FORMAT`.",
    )
    format: NonEmpty = Field(
        default="csv", description="The format: csv, json, parquet, or another one that Spark reads."
    )
    options: Options = Field(default_factory=dict, description="Spark's options for reading.")
    columns: NonEmpty | None = Field(
        default=None,
        alias="schema",
        description="The columns as Spark's DDL, such as `day DATE, flights INT`. Without it Spark infers them, which "
        "takes a pass of its own.",
    )
    partitioning: Partitioning | None = Field(
        default=None, description="The column that says which rows are of the chunk; without it all are."
    )
    predicate: NonEmpty | None = Field(
        default=None,
        description="Instead of partitioning: a condition in SQL that is true of the rows of the chunk. `{data_id}` in "
        "it stands for the data id as a text in quotes.",
    )
    database: Database | None = Field(default=None, description="The database, where the source is a table or query.")
    table: TableName | None = Field(default=None, description="The table.")
    query: NonEmpty | None = Field(default=None, description="A query instead of a table.")
    connections: Annotated[int, Strict(), Field(ge=1, le=1000)] = Field(
        default=1, description="How many connections read one chunk at the same time."
    )
    split_by: NonEmpty | None = Field(
        default=None,
        description="The column of numbers, days or times that divides a chunk among its connections. The default is "
        "that of partitioning by range.",
    )

    @property
    def where(self) -> str:
        """The path, with the default filled in; of a table its name."""
        if self.database is not None:
            return self.table or "a query"
        return self.path or f"sources/{self.name}.{self.format}"

    @property
    def subquery(self) -> str:
        """The query as a part of another one, also where it ends with a semicolon or a comment."""
        query = str(self.query).rstrip().rstrip(";")
        return f"({query}\n)" if "--" in query else f"({query})"

    @property
    def split_column(self) -> str | None:
        """The column that divides a chunk among its connections."""
        by_range = self.partitioning is not None and self.partitioning.type == "range"
        return self.split_by or (self.partitioning.column if self.partitioning and by_range else None)


class Transformation(Named):
    """One step: `pipelines/SLUG/NAME.py`. May be written as its name only."""

    name: Module = Field(description="The module in the pipeline's folder; `.py` may be written out.")
    engine: Literal["spark", "pandas"] | None = Field(
        default=None,
        description="What run() takes and returns. The default is Spark, or pandas where a parameter of run() has the "
        "type pandas.DataFrame.",
    )


Mode = Literal["replace-chunk", "merge", "append", "replace"]


class Destination(Named):
    """Where a pipeline writes: a folder, or a table. May be written as its name only."""

    rules: ClassVar = (
        _only_with_database("table", "keys", "partitioning"),
        _NO_PATH,
        Rule("beside database a table is wanted", lambda it: it.database is None or it.table is not None, at="table"),
        Rule(
            "mode merge needs a table and its keys, and only it has keys",
            lambda it: (it.mode == "merge") == bool(it.keys),
            at="mode",
        ),
        Rule(
            "partitioning is for mode replace-chunk: it says which rows are replaced",
            lambda it: it.partitioning is None or it.mode == "replace-chunk",
            at="partitioning",
        ),
    )

    name: FileName = Field(description="What it is called; no two pipelines write to one destination.")
    dataset: Id | None = Field(
        default=None,
        description="The data set of the job whose bounds of the chunk say, with partitioning, which rows are "
        "replaced. The default is the one with the name of the destination; where that has none, that of a source "
        "which is divided by the same column.",
    )
    path: Url | None = Field(
        default=None,
        description="The folder, relative to the project, or its address such as `s3a://bucket/folder`. The default is "
        "`output/NAME`.",
    )
    format: NonEmpty = Field(
        default="parquet", description="The format: parquet, csv, json, or another one that Spark writes."
    )
    options: Options = Field(default_factory=dict, description="Spark's options for writing.")
    partition: NonEmpty = Field(
        default="data_id",
        description="The column with the chunk's data id: in the names of the chunks' folders, as in `month=2013-01`, "
        "or of the table, with mode replace-chunk and without partitioning.",
    )
    mode: Mode = Field(
        default="replace-chunk",
        description="What happens to what is there: `replace-chunk` takes away the rows of the chunk, `replace` "
        "everything, `merge` what has the same keys, `append` nothing, and then a chunk is written only once.",
    )
    database: Database | None = Field(default=None, description="The database, where the destination is a table.")
    table: TableName | None = Field(
        default=None, description="The table; made where it is not there, with the types of Spark."
    )
    partitioning: Partitioning | None = Field(
        default=None, description="The column of the table that says which rows are of the chunk."
    )
    keys: tuple[NonEmpty, ...] = Field(default=(), description="The columns that tell rows apart, for mode merge.")

    @property
    def where(self) -> str:
        """The path, with the default filled in; of a table its name."""
        return self.table or self.path or f"output/{self.name}"

    @property
    def data_id_column(self) -> str | None:
        """The column of a table that each row has the data id in; None where it has none."""
        return self.partition if self.mode == "replace-chunk" and self.partitioning is None else None


_MOST = 1000


def _unknown(it: "Pipeline") -> str | None:
    """The first source that an expectation names and that is not there."""
    known = {source.name for source in it.sources}
    named = (expectation.same.source for expectation in it.expectations if expectation.same is not None)
    return next((name for name in named if name not in known), None)


class Pipeline(Written):
    """Sources, the transformations in their order, and one destination."""

    rules: ClassVar = (
        Rule(
            "an expectation compares with a source of its pipeline",
            lambda it: _unknown(it) is None,
            told=lambda it: f"the pipeline has no source {_unknown(it)}; same.source names one of its own",
            at="expectations",
        ),
        Rule(
            "two expectations have one name; give one of them another one",
            lambda it: _first_double(tuple(one.title for one in it.expectations)) is None,
            at="expectations",
        ),
    )

    slug: FileName = Field(description="Its name, and that of its folder in `pipelines/`.")
    sources: Annotated[
        tuple[Source, ...],
        Field(min_length=1, max_length=_MOST),
        _distinct(lambda it: it.name, "{} is written twice; a source is read once"),
    ] = Field(description="What it reads; run() is given the frames in this order.")
    destination: Destination = Field(description="Where the result of the last transformation is written.")
    transformations: Annotated[
        tuple[Transformation, ...],
        Field(min_length=1, max_length=_MOST),
        _distinct(lambda it: it.name, "there are two steps with the name {}; give one of them another one"),
    ] = Field(description="The steps, run in this order.")
    expectations: Annotated[tuple[Expectation, ...], Field(max_length=_MOST)] = Field(
        default=(), description="What must be true of the rows that a run writes."
    )
    measure: Literal["steps", "result", "rows"] = Field(
        default="steps",
        description="What is measured while rows pass: `steps` the rows of each step, and rows and checksum of the "
        "result; `result` the latter only, so that Spark can hand on filters of steps to the sources; `rows` only the "
        "rows of the result.",
    )


_SLUGS = _distinct(lambda it: it.slug, "there is another pipeline with the slug {}; give one of them another one")
_DESTINATIONS = _distinct(
    lambda it: it.destination.name, "another pipeline writes to {}; each pipeline has a destination of its own"
)


class Project(Written):
    """A project: some pipelines. `version: 2` tells this form from that of the Django tool."""

    version: Literal[2] = Field(description="The version of this format.")
    name: NonEmpty = Field(description="What the project is called.")
    pipelines: Annotated[tuple[Pipeline, ...], Field(min_length=1, max_length=_MOST), _SLUGS, _DESTINATIONS] = Field(
        description="The pipelines."
    )


# The Django tool's form ----------------------------------------------------------------------------------

CsvName = Annotated[FileName, _without(".csv")]


class DjangoPipeline(Written):
    """A pipeline in the form of the Django tool."""

    slug: FileName = Field(description="Its name, and that of its folder in `pipelines/`.")
    sources: Annotated[tuple[CsvName, ...], Field(min_length=1, max_length=_MOST)] = Field(
        description="Names of data sources; each is `sources/NAME.csv`, and `.csv` may be written out."
    )
    destination: NonEmpty = Field(description="The name of one data source.")
    transformations: Annotated[
        tuple[Module, ...],
        Field(min_length=1, max_length=_MOST),
        _distinct(str, "there are two steps with the name {}; give one of them another one"),
    ] = Field(description="The modules in the pipeline's folder, run in this order; `.py` may be written out.")


class DjangoProject(Written):
    """A project in the form of the Django tool: its transformations take and return frames of pandas."""

    name: NonEmpty = Field(description="What the project is called.")
    pipelines: Annotated[tuple[DjangoPipeline, ...], Field(min_length=1, max_length=_MOST), _SLUGS] = Field(
        description="The pipelines."
    )

    def as_project(self) -> Project:
        """Return the same as models of our own form."""
        # Without validation: this form lets two pipelines have one destination, and read one source twice.
        return Project.model_construct(
            version=2, name=self.name, pipelines=tuple(_as_pipeline(pipeline) for pipeline in self.pipelines)
        )


def _as_pipeline(it: DjangoPipeline) -> Pipeline:
    return Pipeline.model_construct(
        slug=it.slug,
        sources=tuple(Source(name=name) for name in it.sources),
        destination=Destination.model_construct(name=it.destination, format="csv"),
        transformations=tuple(Transformation(name=name, engine="pandas") for name in it.transformations),
    )


# Reading -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectFile:
    """A project as its file says it. `django`: in the form of the Django tool. `source`: the file's name."""

    project: Project
    django: bool
    source: str
    root: Node

    def place(self, *path: str | int) -> str:
        """Return "project.yml, line 7" for a path of keys and indices."""
        return _place(self.source, self.root, path)

    def pipeline(self, slug: str) -> tuple[int, Pipeline]:
        """Return a pipeline and its index; InvalidInput where there is none of that slug."""
        for index, pipeline in enumerate(self.project.pipelines):
            if pipeline.slug == slug:
                return index, pipeline
        known = ", ".join(pipeline.slug for pipeline in self.project.pipelines)
        raise InvalidInput(f"{self.source}: there is no pipeline {slug}; known here: {known}")

    def notes(self) -> Iterator[str]:
        """Yield what is allowed here and will not do where the project is deployed."""
        destinations = [pipeline.destination.name for pipeline in self.project.pipelines]
        index = _first_double(tuple(destinations))
        if index is not None:
            yield (
                f"{self.place('pipelines', index, 'destination')}: another pipeline has the destination "
                f"{destinations[index]} too; that is possible only with files, as here"
            )


def parse_project(text: str, source: str) -> ProjectFile:
    """Return what the text says. `source`: the file's name, for errors.

    Raises InvalidInput: for a fault of YAML at once, else with one line for each fault of the whole file.
    """
    written = list(documents(text, source))
    if len(written) != 1:
        raise InvalidInput(f"{source}: one project is wanted, this file has {len(written) or 'none'}")
    root, value = written[0]
    if not isinstance(value, dict):
        raise InvalidInput(f"{_place(source, root, ())}: a project has a name and pipelines, this is {shape(value)}")
    django = "version" not in value
    model: type[Project | DjangoProject] = DjangoProject if django else Project
    try:
        read = model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        found = placed_sentences(model, error, lambda path, value: source_text(root, path, value))
        lines = sorted(((line_of(node_at(root, path)), sentence) for path, sentence in found), key=lambda it: it[0])
        faults = [f"{source}, line {line}: {sentence}" for line, sentence in lines]
        if django and any(_is_of_the_new_form(value)):
            faults.append(
                f"{source}: without `version: {VERSION}` it is read in the form of the Django tool; write it at the top"
            )
        raise InvalidInput("\n".join(faults)) from None
    return ProjectFile(read.as_project() if isinstance(read, DjangoProject) else read, django, source, root)


def _place(source: str, root: Node, path: tuple[str | int, ...]) -> str:
    return f"{source}, line {line_of(node_at(root, path))}"


def _is_of_the_new_form(value: dict[str, Any]) -> Iterator[bool]:
    """Yield True for each part that only the new form has: something with fields where the old one has a name."""
    pipelines = value.get("pipelines")
    for pipeline in pipelines if isinstance(pipelines, list) else ():
        if isinstance(pipeline, dict):
            yield isinstance(pipeline.get("destination"), dict)
            for key in ("sources", "transformations"):
                items = pipeline.get(key)
                yield isinstance(items, list) and any(isinstance(item, dict) for item in items)


# For editors ---------------------------------------------------------------------------------------------


def project_schema() -> dict[str, Any]:
    """Return the JSON schema of project.yml, for editors: of the form that the file is in."""
    _, schema = models_json_schema([(Project, "validation"), (DjangoProject, "validation")], by_alias=True)
    plain: dict[str, Any] = _without_kubernetes(schema["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "project.yml of OpenDataFlow",
        "if": {"required": ["version"]},
        "then": {"$ref": "#/$defs/Project"},
        "else": {"$ref": "#/$defs/DjangoProject"},
        "$defs": plain,
    }


def schema_text() -> str:
    """Return it as the text of a file."""
    return json.dumps(project_schema(), indent=2) + "\n"


def _without_kubernetes(schema: Any) -> Any:
    """Return the schema without what only an API server understands."""
    if isinstance(schema, list):
        return [_without_kubernetes(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_kubernetes(item) for key, item in schema.items() if not re.match("x-kubernetes-", key)}
