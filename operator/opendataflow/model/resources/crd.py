"""Convert the models to custom resource definitions. Pure: `make crds` writes them to `crds/*.yaml`.

An API server requires a structural schema: without references, and without alternatives of types. A model that a
structural schema can't express is an error here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from opendataflow.model.fields.rules import VALIDATIONS
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.model.resources.statuses import DataFlowActionStatus, DataFlowJobStatus, DataSetStatus
from opendataflow.names import CATEGORY, GROUP, VERSION

Schema = dict[str, Any]

HEAD = "# Written by `make crds` out of operator/opendataflow/model; do not edit.\n"

_KEPT = (
    "description",
    "type",
    "format",
    "nullable",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "required",
    "properties",
    "items",
    "additionalProperties",
    VALIDATIONS,
)
"""The keywords of a structural schema, in the order of the output."""

_LARGEST_EXACT = 2**53
"""API servers read bounds as floating-point numbers. Larger bounds are omitted; the format implies them."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`. `priority`: 1 for `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of resource: its models, its names and its columns."""

    model: type[BaseModel]
    status: type[BaseModel]
    short: str
    columns: tuple[Column, ...]
    scale: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.model.__name__

    @property
    def plural(self) -> str:
        """The plural name, used in URLs."""
        return f"{self.name.lower()}s"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS = (
    Kind(
        DataSet,
        DataSetStatus,
        "dset",
        (
            Column("Ready", ".status.progress", description="READY chunks and all chunks."),
            Column("Running", ".status.counts.running", "integer", description="Chunks that a run is writing."),
            Column("Failed", ".status.counts.failed", "integer", description="Chunks whose last attempt failed."),
            Column("Watermark", ".status.watermark", description="The data id up to which every chunk is READY."),
            Column("Id", ".spec.id", priority=1, description="The id in the database, if it is not the name."),
            Column(
                "Stalled",
                '.status.conditions[?(@.type=="Stalled")].message',
                priority=1,
                description="Why the operator can't accept the resource.",
            ),
            _AGE,
        ),
    ),
    Kind(
        DataFlowJob,
        DataFlowJobStatus,
        "dfj",
        (
            Column("State", ".status.state", description="The state of the job, in one word."),
            Column("Done", ".status.progress", description="DONE tasks and all tasks, and how many are stale."),
            Column("Running", ".status.counts.running", "integer", description="Tasks with an active run."),
            Column("Failed", ".status.counts.failed", "integer", description="Tasks without any retries left."),
            Column("Parallelism", ".spec.parallelism", "integer", description="The maximum number of runs at a time."),
            Column("ETA", ".status.eta", description="The remaining time at the present rate."),
            Column("Rate", ".status.rate", "number", priority=1, description="Processed chunks per hour."),
            Column("Watermark", ".status.watermark", priority=1, description="The data id up to which all is DONE."),
            Column(
                "Message",
                '.status.conditions[?(@.type=="Ready")].message',
                priority=1,
                description="The state of the job, in a sentence.",
            ),
            _AGE,
        ),
        {
            "specReplicasPath": ".spec.parallelism",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Kind(
        DataFlowAction,
        DataFlowActionStatus,
        "dfa",
        (
            Column("Action", ".spec.action", description="The verb of the request."),
            Column("Job", ".spec.job", description="The job of the request."),
            Column("Dataset", ".spec.dataset", description="The data set of the request."),
            Column("Phase", ".status.phase", description="The phase of the request."),
            Column("Done", ".status.counts.done", "integer", description="The number of changed tasks or chunks."),
            Column("Message", ".status.message", priority=1, description="The result, or the cause of a refusal."),
            Column("Reason", ".spec.reason", priority=1, description="The reason of the request."),
            _AGE,
        ),
    ),
)


def crd_files(annotations: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return file name -> text of each definition, with these annotations."""
    return {
        f"{GROUP}_{kind.plural}.yaml": HEAD
        + yaml.dump(definition(kind, annotations), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        for kind in KINDS
    }


def definition(kind: Kind, annotations: Mapping[str, str] | None = None) -> Schema:
    """Return the custom resource definition of a kind."""
    metadata = {"name": f"{kind.plural}.{GROUP}"} | ({"annotations": dict(annotations)} if annotations else {})
    subresources: Schema = {"status": {}} | ({"scale": dict(kind.scale)} if kind.scale else {})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": _root(kind)},
                }
            ],
        },
    }


def _column(column: Column) -> Schema:
    wide = {"priority": column.priority} if column.priority else {}
    about = {"description": column.description} if column.description else {}
    return {"name": column.name, "type": column.type, "jsonPath": column.path, **wide, **about}


def _root(kind: Kind) -> Schema:
    """Return the schema of the whole resource. The API server defines the schema of metadata."""
    schema = _structural(kind.model.model_json_schema(by_alias=True), {}, spec=True)
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        del properties[name]["enum"]  # the API server checks them itself
    properties["metadata"] = {"type": "object"}
    status = _structural(kind.status.model_json_schema(by_alias=True), {}, spec=False)
    properties["status"] = {**status, "description": f"{status['description']} Written by the operator only."}
    required = [name for name in schema["required"] if name == "spec"]
    schema = {key: value for key, value in schema.items() if key != "required"}
    return _ordered({**schema, **({"required": required} if required else {})})


def _structural(schema: Schema, definitions: Schema, *, spec: bool) -> Schema:
    """Return a pydantic schema as a structural schema. `spec`: whether to keep defaults and null."""
    definitions = schema.get("$defs", definitions)
    schema = {key: value for key, value in schema.items() if key not in ("$defs", "title")}
    while reference := schema.pop("$ref", None):
        schema = {**definitions[reference.removeprefix("#/$defs/")], **schema}
        schema.pop("title", None)
    if choices := schema.pop("anyOf", None):
        return _structural(_nullable(choices, schema, spec=spec), definitions, spec=spec)
    schema = _values(schema, spec=spec)
    extra = schema.pop("additionalProperties", False)
    if extra is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    elif extra:
        schema["additionalProperties"] = _structural(extra, definitions, spec=spec)
    if "properties" in schema:
        schema["properties"] = {
            name: _structural(field, definitions, spec=spec) for name, field in schema["properties"].items()
        }
    if "items" in schema:
        schema["items"] = _structural(schema["items"], definitions, spec=spec)
    return _ordered(_number(schema))


def _values(schema: Schema, *, spec: bool) -> Schema:
    """Return the schema with `enum` for constants, and without superfluous null and default."""
    schema = {**schema}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if not schema.get("nullable"):
        schema.pop("nullable", None)
    elif "enum" in schema:
        raise ValueError(f"an API server does not accept null in an enum; say NEVER_NULL: {schema}")
    if not spec or schema.get("default") in (None, [], {}):
        schema.pop("default", None)
    return schema


def _nullable(choices: list[Schema], rest: Schema, *, spec: bool) -> Schema:
    """Return the schema of "X or null"."""
    wanted = [choice for choice in choices if choice != {"type": "null"}]
    if len(wanted) != 1 or len(choices) != 2:
        raise ValueError(f"a structural schema has no choice between types: {choices}")
    return {**wanted[0], **({"nullable": True} if spec else {}), **rest}


def _number(schema: Schema) -> Schema:
    """Return the schema with the format of a number, without inexact bounds, and without the type of int-or-string."""
    if schema.get("x-kubernetes-int-or-string"):
        return {key: value for key, value in schema.items() if key != "type"}
    bounds = {name: schema[name] for name in ("minimum", "maximum") if name in schema}
    if schema.get("type") == "integer":
        small = bounds and all(abs(bound) < 2**31 for bound in bounds.values())
        schema["format"] = "int32" if small else "int64"
    if schema.get("type") == "number":
        schema["format"] = "double"
    return {key: value for key, value in schema.items() if key not in bounds or abs(value) < _LARGEST_EXACT}


def _ordered(schema: Schema) -> Schema:
    unknown = schema.keys() - set(_KEPT)
    if unknown:
        raise ValueError(f"a structural schema has no {', '.join(sorted(unknown))}: {schema}")
    return {key: schema[key] for key in _KEPT if key in schema}


class _Dumper(yaml.SafeDumper):
    """A YAML writer without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 # PyYAML calls it with the value
        """Return True, so that a repeated value is written again, not as an alias."""
        return True
