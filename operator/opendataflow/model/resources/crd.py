"""Makes the custom resource definitions out of the models: `crds/*.yaml`, written by `make crds`.

An API server wants a structural schema: everything in its place, no references, no choices between types. What a model
says that such a schema can't is an error here, not a field that means something else there. Pure: nothing is written.
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
"""What a structural schema may say, in the order in which it is written."""

_LARGEST_EXACT = 2**53
"""An API server reads bounds as floating-point numbers: larger ones are left to the format."""


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
        """The kind."""
        return self.model.__name__

    @property
    def plural(self) -> str:
        """Its name in addresses."""
        return f"{self.name.lower()}s"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS = (
    Kind(
        DataSet,
        DataSetStatus,
        "dset",
        (
            Column("Ready", ".status.progress", description="Chunks that are ready and all."),
            Column("Running", ".status.counts.running", "integer", description="Chunks that are being written."),
            Column("Failed", ".status.counts.failed", "integer", description="Chunks whose last attempt failed."),
            Column("Watermark", ".status.watermark", description="Up to here every chunk is ready."),
            Column("Id", ".spec.id", priority=1, description="The id in the database, where it is not the name."),
            Column(
                "Stalled",
                '.status.conditions[?(@.type=="Stalled")].message',
                priority=1,
                description="Why the operator can't honour it.",
            ),
            _AGE,
        ),
    ),
    Kind(
        DataFlowJob,
        DataFlowJobStatus,
        "dfj",
        (
            Column("State", ".status.state", description="How the job is, in one word."),
            Column("Done", ".status.progress", description="Tasks that are done and all."),
            Column("Running", ".status.counts.running", "integer", description="Tasks that a run is at."),
            Column("Failed", ".status.counts.failed", "integer", description="Tasks whose retries are used up."),
            Column("Parallelism", ".spec.parallelism", "integer", description="The most runs at a time."),
            Column("ETA", ".status.eta", description="How long the rest takes at the present rate."),
            Column("Rate", ".status.rate", "number", priority=1, description="Chunks an hour, of late."),
            Column("Watermark", ".status.watermark", priority=1, description="Up to here all tasks are done."),
            Column(
                "Message",
                '.status.conditions[?(@.type=="Ready")].message',
                priority=1,
                description="How the job is, in a sentence.",
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
            Column("Action", ".spec.action", description="What is asked."),
            Column("Job", ".spec.job", description="Of which job."),
            Column("Dataset", ".spec.dataset", description="Of which data set."),
            Column("Phase", ".status.phase", description="How far it is."),
            Column("Done", ".status.counts.done", "integer", description="How many chunks were changed."),
            Column("Message", ".status.message", priority=1, description="What was done, or why not."),
            Column("Reason", ".spec.reason", priority=1, description="Why it was asked."),
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
    """The schema of the whole resource; its metadata is the API server's own matter."""
    schema = _structural(kind.model.model_json_schema(by_alias=True), {}, spec=True)
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        del properties[name]["enum"]  # the API server compares them before
    properties["metadata"] = {"type": "object"}
    told = _structural(kind.status.model_json_schema(by_alias=True), {}, spec=False)
    properties["status"] = {**told, "description": f"{told['description']} Written by the operator only."}
    required = [name for name in schema["required"] if name == "spec"]
    schema = {key: value for key, value in schema.items() if key != "required"}
    return _ordered({**schema, **({"required": required} if required else {})})


def _structural(schema: Schema, definitions: Schema, *, spec: bool) -> Schema:
    """Return a schema of pydantic as a structural one. `spec`: with defaults and null, which a status has not."""
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
    """Say which words, null and default there are."""
    schema = {**schema}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if not schema.get("nullable"):
        schema.pop("nullable", None)
    elif "enum" in schema:
        raise ValueError(f"an API server takes no null among words; say NEVER_NULL: {schema}")
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
    """Add the format of a number, drop bounds that are not exact, and drop the type of what has two."""
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
        raise ValueError(f"a structural schema can't say {', '.join(sorted(unknown))}: {schema}")
    return {key: schema[key] for key in _KEPT if key in schema}


class _Dumper(yaml.SafeDumper):
    """Writes each value where it is, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 # PyYAML calls it with the value
        """Write the same value again rather than a reference to it."""
        return True
