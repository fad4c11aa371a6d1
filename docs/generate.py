"""Generate reference pages: `python docs/generate.py`. A test compares the pages with what this module returns.

Job files, custom resources and projects come from the models, the chart from its values, the command line from its
commands. This module writes these pages, and the tables of layers and folders in docs/architecture.md (folders.py).
"""

import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import chart_values
import command_line
import folders
import output_schemas
from opendataflow.model.projects.data_sources import DataSources
from opendataflow.model.projects.project import DjangoProject, Project, schema_text
from opendataflow.model.resources.api import DataFlowAction, DataFlowJob, DataSet
from opendataflow.model.resources.crd import KINDS, Kind
from opendataflow.model.resources.spark import SparkRuntime
from opendataflow.names import CATEGORY

FOLDER = Path(__file__).parent / "reference"

JOB_FILES = """# Job files

<!-- Written by docs/generate.py from operator/opendataflow/model. -->

A job file contains any number of resources, separated by `---`. A field that is not listed here is refused, by name.
Numbers in place of text are refused: quote data ids like `"1.0"`. Durations are like `90s`, `5m` or `1h30m`.
Passwords are never written in plain text. On a cluster the same resources are
[custom resources](custom-resources.md).
"""

CUSTOM_RESOURCES = f"""# Custom resources

<!-- Written by docs/generate.py from operator/opendataflow/model. -->

`kubectl apply -f crds/` installs their definitions in a cluster (tested with Kubernetes 1.34).
`kubectl explain dfj.spec` shows the fields of this page. `kubectl get {CATEGORY}` lists all resources.

The specs of `DataSet` and `DataFlowJob` are [those of job files](job-file.md). Fields for a cluster only, or for one
machine only, are marked. An API server refuses invalid resources, with the error messages of job files. The operator
reports errors that an API server can't find in the condition `Stalled`:

- errors that need more than one resource, such as an id that another resource has, or `encryptedPassword` with a
  script that has no command;
- variables that would be set twice;
- the character NUL in keys.

To request chunks again, choose an id. A second command with the same id has no effect:

    kubectl patch dfj NAME --type=merge -p '{{"spec":{{"resubmit":{{"id":"fix-42","chunks":["2013-02-03"]}}}}}}'

The API server refuses a second id until `status.resubmit.id` is the first one. For all other verbs, or to record the
person and the reason, create a `DataFlowAction`:

```yaml
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowAction
metadata:
  generateName: hold-
spec:
  job: delays
  action: hold
  range: {{from: 2013-02-01, to: 2013-02-28}}
  reason: the source is being repaired
```
"""


PROJECT = """# project.yml

<!-- Written by docs/generate.py from operator/opendataflow/model/projects/project.py. -->

A folder with this file is a project of pipelines: see [Pipelines](../how-to/pipelines.md). With `version: 2`, the file
has the form below. Without `version`, it has [the Django tool's form](#in-the-form-of-the-django-tool). A field that is
not listed here is refused, by name.

Editors validate and complete the file with [project.schema.json](project.schema.json), which covers both forms.
`dataflow pipeline schema` prints this schema. For the YAML language server, put its path into the first line:
`# yaml-language-server: $schema=project.schema.json`. `dataflow pipeline init` writes both.
"""

DJANGO_PROJECT = """## In the form of the Django tool

Without `version` the file has the Django tool's keys and no others. Transformations take and return frames of pandas.
"""

DATA_SOURCES = """
## data-sources.yml

A project in the form of the Django tool may have this file beside `project.yml`: see [tables and
buckets](../how-to/pipeline-from-django.md#tables-and-buckets).
"""


def pages() -> dict[str, str]:
    """Return file name -> text of each page."""
    custom = [CUSTOM_RESOURCES, *_request(DataFlowAction)]
    for kind in KINDS:
        custom += _status(kind)
    project = [PROJECT, *_resource(Project), DJANGO_PROJECT, *_rows(DjangoProject), DATA_SOURCES, *_rows(DataSources)]
    return {
        "job-file.md": "\n".join([JOB_FILES, *_resource(DataSet), *_resource(DataFlowJob)]),
        "custom-resources.md": "\n".join(custom),
        "chart.md": chart_values.page(),
        "command-line.md": command_line.page(),
        "project.md": "\n".join(project) + "\n",
        "project.schema.json": schema_text(),
        **dict(output_schemas.pages()),
    }


def _rows(model: type[BaseModel]) -> Iterator[str]:
    yield _TABLE
    yield from _fields(model, "")


_TABLE = "| field | type | default | what it is |\n|---|---|---|---|"


def _resource(model: type[BaseModel]) -> Iterator[str]:
    yield f"## {model.__name__}\n\n{model.__doc__}\n"
    yield _TABLE
    yield from _fields(model, "")
    yield ""


def _request(model: type[BaseModel]) -> Iterator[str]:
    yield f"## {model.__name__}\n\n{model.__doc__}\n"
    yield _TABLE
    spec = _model(model.model_fields["spec"].annotation)
    assert spec is not None
    yield from _fields(spec, "spec.")
    yield ""


def _status(kind: Kind) -> Iterator[str]:
    yield f"## The status of a {kind.name}\n"
    yield f"`kubectl get {kind.short}` shows, with `-o wide` also those in brackets:\n"
    yield "| column | what it is |\n|---|---|"
    for column in kind.columns:
        if column.description:
            yield f"| {f'({column.name})' if column.priority else column.name} | {column.description} |"
    yield f"\n{_TABLE.replace(' default |', '').replace('|---|---|---|---|', '|---|---|---|')}"
    for line in _fields(kind.status, "status."):
        field, kind_of, _, text = line.strip("| ").split(" | ", 3)
        yield f"| {field} | {kind_of} | {text} |"
    yield ""


def _fields(model: type[BaseModel], path: str) -> Iterator[str]:
    # The fields of this model come before the fields that it shares with all Spark programs.
    shared = SparkRuntime.model_fields if model is not SparkRuntime and issubclass(model, SparkRuntime) else {}
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] in shared):
        spelled = f"{path}{field.alias or name}"
        nested = _model(field.annotation)
        listed = nested is not None and get_origin(field.annotation) is tuple
        kind = "list" if listed else "" if nested else _type(field.annotation)
        yield f"| `{spelled}` | {kind} | {_default(field)} | {field.description} |"
        if nested is not None:
            yield from _fields(nested, f"{spelled}[]." if listed else f"{spelled}.")


def _model(annotation: Any) -> type[BaseModel] | None:
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, UnionType):
        kinds = list(dict.fromkeys(_type(a) for a in arguments if a is not NoneType))
        return " or ".join(kind for kind in kinds if kind != "whole number" or "number" not in kinds)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "map" if arguments[1] is Any else "map of text"
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", datetime: "time"}
    return words[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
    folders.PAGE.write_text(folders.page(folders.PAGE.read_text("utf-8")), "utf-8")
