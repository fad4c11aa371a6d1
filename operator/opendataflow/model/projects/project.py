"""The models of `project.yml`, in its own format and in the format of the Django tool.

A file with `version: 2` at the top has the format of OpenDataFlow. Any other file has the format of the Django tool,
and is converted to the same models. Each mistake is one sentence with its line. This module opens no file. It does not
check whether sources and transformations exist.
"""

import copy
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
from opendataflow.model.fields.field_types import Id, InputModel, NonEmpty, Options, Url
from opendataflow.model.fields.partitioning import Partitioning
from opendataflow.model.fields.rules import Rule, matching
from opendataflow.model.fields.validation_errors import describe_value, located_sentences
from opendataflow.model.fields.yaml_documents import documents, line_of, node_at, source_text
from opendataflow.model.projects.database import Database, TableName
from opendataflow.model.projects.expectations import Expectation

PROJECT_FILE = "project.yml"
VERSION = 2

DATA_ID = "{data_id}"
"""The placeholder for the chunk's data id in the path of a source."""


def _first_duplicate(names: tuple[str, ...]) -> int | None:
    return next((index for index, name in enumerate(names) if name in names[:index]), None)


def distinct(name_of: Callable[[Any], str], sentence: str) -> Rule:
    """Return the rule that the names of a list's items are unique. `sentence`: with a placeholder for a name."""

    def duplicate(items: tuple[Any, ...]) -> int | None:
        return _first_duplicate(tuple(name_of(item) for item in items))

    return Rule(
        sentence.format("a name"),
        lambda items: duplicate(items) is None,
        detailed=lambda items: sentence.format(name_of(items[duplicate(items) or 0])),
        at=lambda items: f"[{duplicate(items)}]",
    )


def _without(suffix: str) -> BeforeValidator:
    return BeforeValidator(lambda given: given.removesuffix(suffix) if isinstance(given, str) else given)


_FILE_NAME = matching(
    r"[^./\\\x00-\x1f][^/\\\x00-\x1f]*",
    "it is the name of a file or folder: no slashes, and it does not begin with a dot",
)
_MOST_BYTES = 200
"""The most bytes of a file name. File systems allow 255, but the program adds suffixes to some names."""
_SHORT = Rule(
    f"the name of a file has at most {_MOST_BYTES} bytes, and these letters take several each",
    lambda text: len(text.encode("utf-8", "replace")) <= _MOST_BYTES,
    f"bytes(self).size() <= {_MOST_BYTES}",
)
FileName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=_MOST_BYTES), _FILE_NAME, _SHORT]
Module = Annotated[FileName, _without(".py")]


class Named(InputModel):
    """A model that can be written as its name only."""

    @model_validator(mode="before")
    @classmethod
    def _only_a_name(cls, written: Any) -> Any:
        return {"name": written} if isinstance(written, str) else written

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Allow a text in the schema."""
        whole = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(schema, handler))
        whole = {**whole, "properties": dict(whole["properties"])}
        return {"anyOf": [{"type": "string", "description": "The name; all other fields have their defaults."}, whole]}


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
    """A source of a pipeline: files, a table, or a query. It can be written as its name only."""

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

    name: FileName = Field(description="The name of the source.")
    dataset: Id | None = Field(
        default=None,
        description="The job's data set of this source. The chunk's bounds in this data set select the rows. The "
        "default is the data set with the name of the source, if the job has it.",
    )
    path: Url | None = Field(
        default=None,
        description="The file or folder, relative to the project, or an address such as `s3a://bucket/folder`. "
        "`{data_id}` is replaced by the chunk's data id. The default is `sources/NAME.FORMAT`.",
    )
    format: NonEmpty = Field(
        default="csv", description="The format: csv, json, parquet, or any other format that Spark reads."
    )
    options: Options = Field(default_factory=dict, description="Options of Spark for reading.")
    columns: NonEmpty | None = Field(
        default=None,
        alias="schema",
        description="The columns in Spark's DDL, such as `day DATE, flights INT`. By default Spark infers them, which "
        "needs an additional pass over the data.",
    )
    partitioning: Partitioning | None = Field(
        default=None, description="The column that determines the rows of the chunk. The default is all rows."
    )
    predicate: NonEmpty | None = Field(
        default=None,
        description="An SQL condition that selects the rows of the chunk, instead of partitioning. `{data_id}` is "
        "replaced by the data id as a quoted text.",
    )
    database: Database | None = Field(default=None, description="The database, if the source is a table or a query.")
    table: TableName | None = Field(default=None, description="The table.")
    query: NonEmpty | None = Field(default=None, description="A query instead of a table.")
    connections: Annotated[int, Strict(), Field(ge=1, le=1000)] = Field(
        default=1, description="The number of parallel connections that read one chunk."
    )
    split_by: NonEmpty | None = Field(
        default=None,
        description="The column of numbers, days or times by which the rows of a chunk are divided among the "
        "connections. The default is the column of partitioning by range.",
    )

    @property
    def where(self) -> str:
        """The path, or its default; for a table its name."""
        if self.database is not None:
            return self.table or "a query"
        return self.path or f"sources/{self.name}.{self.format}"

    @property
    def subquery(self) -> str:
        """The query in parentheses, for use in another query. It may end with a semicolon or a comment."""
        query = str(self.query).rstrip().rstrip(";")
        return f"({query}\n)" if "--" in query else f"({query})"

    @property
    def split_column(self) -> str | None:
        """The column by which the rows of a chunk are divided among the connections."""
        by_range = self.partitioning is not None and self.partitioning.type == "range"
        return self.split_by or (self.partitioning.column if self.partitioning and by_range else None)


class Transformation(Named):
    """One step: `pipelines/SLUG/NAME.py`. It can be written as its name only."""

    name: Module = Field(description="The module in the pipeline's folder, with or without `.py`.")
    engine: Literal["spark", "pandas"] | None = Field(
        default=None,
        description="The kind of data frames of run(). The default is pandas if a parameter of run() has the type "
        "pandas.DataFrame, else Spark.",
    )


Mode = Literal["replace-chunk", "merge", "append", "replace"]


class Destination(Named):
    """The destination of a pipeline: a folder or a table. It can be written as its name only."""

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

    name: FileName = Field(description="The name of the destination. It must be unique in the project.")
    dataset: Id | None = Field(
        default=None,
        description="The job's data set of this destination. With partitioning, the chunk's bounds in this data set "
        "select the rows to replace. The default is the data set with the name of the destination. If it has no "
        "bounds, the bounds of a source with the same partitioning column are used.",
    )
    path: Url | None = Field(
        default=None,
        description="The folder, relative to the project, or an address such as `s3a://bucket/folder`. The default is "
        "`output/NAME`.",
    )
    format: NonEmpty = Field(
        default="parquet", description="The format: parquet, csv, json, or any other format that Spark writes."
    )
    options: Options = Field(default_factory=dict, description="Options of Spark for writing.")
    partition: NonEmpty = Field(
        default="data_id",
        description="The column with the chunk's data id. For files, it is in the names of folders, such as "
        "`month=2013-01`. For tables, it is used with mode replace-chunk and without partitioning.",
    )
    mode: Mode = Field(
        default="replace-chunk",
        description="The treatment of existing data. `replace-chunk` replaces the rows of the chunk. `replace` "
        "replaces all data. `merge` replaces rows with the same keys. `append` keeps all data, and writes each chunk "
        "only once.",
    )
    database: Database | None = Field(default=None, description="The database, if the destination is a table.")
    table: TableName | None = Field(
        default=None, description="The table. If it does not exist, it is created with the types of Spark."
    )
    partitioning: Partitioning | None = Field(
        default=None, description="The column of the table that determines the rows of the chunk."
    )
    keys: tuple[NonEmpty, ...] = Field(default=(), description="The columns that identify a row, for mode merge.")

    @property
    def where(self) -> str:
        """The path, or its default; for a table its name."""
        return self.table or self.path or f"output/{self.name}"

    @property
    def data_id_column(self) -> str | None:
        """The column of a table with the data id of each row; None if the table has none."""
        return self.partition if self.mode == "replace-chunk" and self.partitioning is None else None


MOST = 1000
"""The most pipelines, sources or steps."""


def _unknown(it: "Pipeline") -> str | None:
    """Return the first source that an expectation names but the pipeline does not have; None if there is none."""
    known = {source.name for source in it.sources}
    named = (expectation.same.source for expectation in it.expectations if expectation.same is not None)
    return next((name for name in named if name not in known), None)


class Pipeline(InputModel):
    """A pipeline: sources, an ordered list of transformations, and one destination."""

    rules: ClassVar = (
        Rule(
            "an expectation compares with a source of its pipeline",
            lambda it: _unknown(it) is None,
            detailed=lambda it: f"the pipeline has no source {_unknown(it)}; same.source names one of its own",
            at="expectations",
        ),
        Rule(
            "two expectations have one name; give one of them another one",
            lambda it: _first_duplicate(tuple(one.title for one in it.expectations)) is None,
            at="expectations",
        ),
    )

    slug: FileName = Field(description="The name of the pipeline, and of its folder in `pipelines/`.")
    sources: Annotated[
        tuple[Source, ...],
        Field(min_length=1, max_length=MOST),
        distinct(lambda it: it.name, "{} is written twice; a source is read once"),
    ] = Field(description="The sources. run() gets their frames in this order.")
    destination: Destination = Field(description="The destination of the last transformation's result.")
    transformations: Annotated[
        tuple[Transformation, ...],
        Field(min_length=1, max_length=MOST),
        distinct(lambda it: it.name, "there are two steps with the name {}; give one of them another one"),
    ] = Field(description="The steps, run in this order.")
    expectations: Annotated[tuple[Expectation, ...], Field(max_length=MOST)] = Field(
        default=(), description="Conditions for the rows that a run writes."
    )
    measure: Literal["steps", "result", "rows"] = Field(
        default="steps",
        description="The measurements during a run. `steps`: the rows of each step, and rows and checksum of the "
        "result. `result`: rows and checksum of the result only, so that Spark can push filters down to the sources. "
        "`rows`: only the rows of the result.",
    )


_SLUGS = distinct(lambda it: it.slug, "there is another pipeline with the slug {}; give one of them another one")
_DESTINATIONS = distinct(
    lambda it: it.destination.name, "another pipeline writes to {}; each pipeline has a destination of its own"
)


class Project(InputModel):
    """A project with one or more pipelines. `version: 2` distinguishes it from the format of the Django tool."""

    version: Literal[2] = Field(description="The version of this format.")
    name: NonEmpty = Field(description="The name of the project.")
    pipelines: Annotated[tuple[Pipeline, ...], Field(min_length=1, max_length=MOST), _SLUGS, _DESTINATIONS] = Field(
        description="The pipelines."
    )


# The format of the Django tool ---------------------------------------------------------------------------

CsvName = Annotated[FileName, _without(".csv")]


class DjangoPipeline(InputModel):
    """A pipeline in the format of the Django tool."""

    slug: FileName = Field(description="The name of the pipeline, and of its folder in `pipelines/`.")
    sources: Annotated[tuple[CsvName, ...], Field(min_length=1, max_length=MOST)] = Field(
        description="Names of data sources, with or without `.csv`. Each is the file `sources/NAME.csv`."
    )
    destination: NonEmpty | None = Field(default=None, description="The name of one data source. Default: the slug.")
    transformations: Annotated[
        tuple[Module, ...],
        Field(min_length=1, max_length=MOST),
        distinct(str, "there are two steps with the name {}; give one of them another one"),
    ] = Field(description="The modules in the pipeline's folder, with or without `.py`. They run in this order.")


class DjangoProject(InputModel):
    """A project in the format of the Django tool. Its transformations take and return pandas frames."""

    name: NonEmpty = Field(default="project", description="The name of the project.")
    pipelines: Annotated[tuple[DjangoPipeline, ...], Field(min_length=1, max_length=MOST), _SLUGS] = Field(
        description="The pipelines."
    )

    def as_project(self) -> Project:
        """Return the project in the format of OpenDataFlow."""
        # Without validation: the Django tool allows shared destinations, and sources that are read twice.
        return Project.model_construct(
            version=2, name=self.name, pipelines=tuple(_as_pipeline(pipeline) for pipeline in self.pipelines)
        )


def _as_pipeline(it: DjangoPipeline) -> Pipeline:
    return Pipeline.model_construct(
        slug=it.slug,
        sources=tuple(Source(name=name) for name in it.sources),
        destination=Destination.model_construct(name=it.destination or it.slug, format="csv"),
        transformations=tuple(Transformation(name=name, engine="pandas") for name in it.transformations),
    )


# Parsing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectFile:
    """A parsed project file. `django`: whether it has the format of the Django tool. `source`: the file's name.

    `ignored`: the paths of unknown keys, which only the format of the Django tool may have. `remarks`: further notes.
    """

    project: Project
    django: bool
    source: str
    root: Node
    ignored: tuple[tuple[str | int, ...], ...] = ()
    remarks: tuple[str, ...] = ()

    def place(self, *path: str | int) -> str:
        """Return "project.yml, line 7" for a path of keys and indices."""
        return _place(self.source, self.root, path)

    def pipeline(self, slug: str) -> tuple[int, Pipeline]:
        """Return a pipeline and its index. Raise InvalidInput if the slug is unknown."""
        for index, pipeline in enumerate(self.project.pipelines):
            if pipeline.slug == slug:
                return index, pipeline
        known = ", ".join(pipeline.slug for pipeline in self.project.pipelines)
        raise InvalidInput(f"{self.source}: there is no pipeline {slug}; known here: {known}")

    def notes(self) -> Iterator[str]:
        """Yield notes about contents that are allowed here, but are not allowed if the project is deployed."""
        yield from self.remarks
        for path in self.ignored:
            yield f"{self.place(*path)}: {path[-1]} is no field of the Django tool's form, and is ignored"
        destinations = [pipeline.destination.name for pipeline in self.project.pipelines]
        index = _first_duplicate(tuple(destinations))
        if index is not None:
            yield (
                f"{self.place('pipelines', index, 'destination')}: another pipeline has the destination "
                f"{destinations[index]} too; that is possible only with files, as here"
            )


def parse_project(text: str, source: str) -> ProjectFile:
    """Return the project in a text. `source`: the file's name, for errors.

    Raise InvalidInput: for invalid YAML with the first fault, else with one line for each fault of the file.
    """
    written = list(documents(text, source))
    if len(written) != 1:
        raise InvalidInput(f"{source}: one project is wanted, this file has {len(written) or 'none'}")
    root, value = written[0]
    if not isinstance(value, dict):
        kind = describe_value(value)
        raise InvalidInput(f"{_place(source, root, ())}: a project has a name and pipelines, this is {kind}")
    django = "version" not in value
    ignored: tuple[tuple[str | int, ...], ...] = ()
    model: type[Project | DjangoProject] = DjangoProject if django else Project
    try:
        if django:
            value, ignored = _without_unknown_keys(value)
        read = model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        faults = located_faults(model, error, root, source)
        if django and any(_has_new_format(value)):
            faults.append(
                f"{source}: without `version: {VERSION}` it is read in the form of the Django tool; write it at the top"
            )
        raise InvalidInput("\n".join(faults)) from None
    if isinstance(read, DjangoProject):
        return ProjectFile(read.as_project(), django, source, root, ignored)
    return ProjectFile(read, django, source, root)


def located_faults(model: type[InputModel], error: ValidationError, root: Node, source: str) -> list[str]:
    """Return one sentence for each fault of a file, with its line, in the order of the lines."""
    found = located_sentences(model, error, lambda path, value: source_text(root, path, value))
    lines = sorted(((line_of(node_at(root, path)), sentence) for path, sentence in found), key=lambda it: it[0])
    return [f"{source}, line {line}: {sentence}" for line, sentence in lines]


def _without_unknown_keys(value: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str | int, ...], ...]]:
    """Return a project without the keys that the format of the Django tool does not have, and their paths.

    That tool ignores them. If the project has another fault, nothing is removed: the key may be a misspelled field.
    """
    try:
        DjangoProject.model_validate(value, by_alias=True, by_name=False)
        return value, ()
    except ValidationError as error:
        paths = tuple(it["loc"] for it in error.errors(include_url=False) if it["type"] == "extra_forbidden")
    rest = copy.deepcopy(value)
    for path in paths:
        owner: Any = rest
        for key in path[:-1]:
            owner = owner[key]
        del owner[path[-1]]
    try:
        DjangoProject.model_validate(rest, by_alias=True, by_name=False)
    except ValidationError:
        return value, ()
    return rest, paths


def _place(source: str, root: Node, path: tuple[str | int, ...]) -> str:
    return f"{source}, line {line_of(node_at(root, path))}"


def _has_new_format(value: dict[str, Any]) -> Iterator[bool]:
    """Yield True for each part that only the new format has: a mapping where the old format has a name."""
    pipelines = value.get("pipelines")
    for pipeline in pipelines if isinstance(pipelines, list) else ():
        if isinstance(pipeline, dict):
            yield isinstance(pipeline.get("destination"), dict)
            for key in ("sources", "transformations"):
                items = pipeline.get(key)
                yield isinstance(items, list) and any(isinstance(item, dict) for item in items)


# For editors ---------------------------------------------------------------------------------------------


def project_schema() -> dict[str, Any]:
    """Return the JSON schema of project.yml for editors. It covers both formats."""
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
    """Return the JSON schema as the text of a file."""
    return json.dumps(project_schema(), indent=2) + "\n"


def _without_kubernetes(schema: Any) -> Any:
    """Return the schema without keywords of Kubernetes."""
    if isinstance(schema, list):
        return [_without_kubernetes(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_kubernetes(item) for key, item in schema.items() if not re.match("x-kubernetes-", key)}
