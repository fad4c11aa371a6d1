"""The custom resource definitions: made of the models, structural, small, and each rule of a model in its place.

That an API server takes them and judges as the models do is tested in tests/kube.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml
from hypothesis import given, settings
from pydantic import Field, ValidationError

from opendataflow.model.fields.field_types import InputModel, Metadata
from opendataflow.model.fields.rules import CLUSTER_CONTEXT, VALIDATIONS, Place, Rule
from opendataflow.model.resources.crd import KINDS, Kind, crd_files, definition
from opendataflow.model.resources.statuses import DataFlowJobStatus
from tests import specs
from tests.share import soaked

FOLDER = Path(__file__).parents[2] / "crds"
LARGEST_ANNOTATION = 256 * 1024
Schema = dict[str, Any]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def version(kind: Kind) -> Schema:
    (found,) = definition(kind)["spec"]["versions"]
    return dict(found)


def root(kind: Kind) -> Schema:
    return dict(version(kind)["schema"]["openAPIV3Schema"])


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in schema:
            yield from nodes(schema[below], f"{path}[]")


def at(kind: Kind, path: str) -> Schema:
    return dict(nodes(root(kind)))[path]


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def test_the_files_are_what_the_models_say() -> None:
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.yaml")}
    assert found == crd_files(), "run: make crds"


@every_kind
def test_a_file_says_that_it_is_made(kind: Kind) -> None:
    text = crd_files()[f"opendataflow.io_{kind.plural}.yaml"]
    assert text.startswith("# Written by `make crds`")
    assert yaml.safe_load(text) == definition(kind)


@every_kind
def test_a_client_side_apply_can_keep_a_copy_of_it_in_an_annotation(kind: Kind) -> None:
    assert len(json.dumps(definition(kind))) < 100 * 1024 < LARGEST_ANNOTATION


@every_kind
def test_every_node_has_a_type(kind: Kind) -> None:
    untyped = [path for path, node in nodes(root(kind)) if "type" not in node]
    assert [path for path in untyped if not at(kind, path).get("x-kubernetes-int-or-string")] == []


@every_kind
def test_nothing_is_written_that_a_structural_schema_can_not_express(kind: Kind) -> None:
    forbidden = {"$ref", "anyOf", "oneOf", "allOf", "not", "const", "title", "uniqueItems", "patternProperties"}
    for path, node in nodes(root(kind)):
        assert not forbidden & node.keys(), path
        assert not {"properties", "additionalProperties"} <= node.keys(), path
        assert node.get("additionalProperties") not in (True, False), path


@every_kind
def test_every_field_has_a_description(kind: Kind) -> None:
    missing = [
        f"{path}.{name}"
        for path, node in nodes(root(kind))
        for name, field in node.get("properties", {}).items()
        if not field.get("description", "").endswith((".", "..."))
    ]
    assert missing == [".metadata"]


@every_kind
def test_everything_in_a_status_is_bounded(kind: Kind) -> None:
    for path, node in nodes(root(kind)["properties"]["status"]):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "string":
            assert {"maxLength", "enum", "format"} & node.keys(), path
        assert not {"default", "nullable"} & node.keys(), path


@every_kind
def test_every_rule_names_what_is_wrong_and_a_field_that_there_is(kind: Kind) -> None:
    for path, node in nodes(root(kind)):
        for rule in node.get(VALIDATIONS, ()):
            assert rule["message"], path
            field = node
            for name in filter(None, rule.get("fieldPath", "").split(".")):
                field = field["properties"][name]


@pytest.mark.parametrize(("name", "short"), [("DataSet", "dset"), ("DataFlowJob", "dfj"), ("DataFlowAction", "dfa")])
def test_a_kind_has_a_short_name_a_category_and_a_status_of_its_own(name: str, short: str) -> None:
    names = definition(kind_of(name))["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == ([short], ["dataflow"])
    assert version(kind_of(name))["subresources"]["status"] == {}


def test_a_job_shows_state_done_running_failed_parallelism_eta_and_age() -> None:
    columns = version(kind_of("DataFlowJob"))["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["State", "Done", "Running", "Failed", "Parallelism", "ETA", "Age"]


@every_kind
def test_a_column_shows_a_field_that_there_is(kind: Kind) -> None:
    known = {path for path, _ in nodes(root(kind))} | {".metadata.creationTimestamp"}
    for column in kind.columns:
        assert column.path.replace('[?(@.type=="Stalled")]', "[]").replace('[?(@.type=="Ready")]', "[]") in known


def test_scale_is_the_parallelism_which_has_a_default() -> None:
    kind = kind_of("DataFlowJob")
    assert set(version(kind)["subresources"]["scale"].values()) <= {path for path, _ in nodes(root(kind))}
    assert at(kind, ".spec.parallelism")["default"] == 1


# Rules ---------------------------------------------------------------------------------------------------


class Invented(InputModel):
    """A resource of this test."""

    rules: ClassVar = (
        Rule("a is not b", lambda it: it.kind != "b", "self.kind != 'b'", at="kind"),
        Rule("only here", lambda it: it.kind != "c", "never shown", place=Place.MACHINE),
        Rule("only there", lambda it: it.kind != "d", "self.kind != 'd'", place=Place.CLUSTER),
        Rule("not to be shown", lambda it: it.kind != "e"),
    )

    api_version: str = Field(description="Some.")
    kind: str = Field(description="Some.")
    metadata: Metadata | None = Field(default=None, description="Some.")


def fault(kind: str, context: dict[str, Any] | None = None) -> str | None:
    try:
        Invented.model_validate({"apiVersion": "v", "kind": kind}, context=context)
    except ValidationError as error:
        (found,) = error.errors()
        return found["msg"]
    return None


def test_a_rule_is_checked_where_it_holds() -> None:
    assert [fault(kind) for kind in "abcde"] == [None, "a is not b", "only here", None, "not to be shown"]
    assert [fault(kind, CLUSTER_CONTEXT) for kind in "abcde"] == [
        None,
        "a is not b",
        None,
        "only there",
        "not to be shown",
    ]


def test_a_schema_has_the_rules_that_hold_on_a_cluster_and_can_be_expressed() -> None:
    assert Invented.model_json_schema()[VALIDATIONS] == [
        {"rule": "self.kind != 'b'", "message": "a is not b", "fieldPath": ".kind"},
        {"rule": "self.kind != 'd'", "message": "only there"},
    ]


class Ambiguous(Invented):
    """A resource that no structural schema can describe."""

    spec: str | int = Field(description="Either.")


class Silent(Invented):
    """A resource with a choice of words that may be null."""

    spec: Literal["a"] | None = Field(default=None, description="A word.")


@pytest.mark.parametrize(("model", "sentence"), [(Ambiguous, "no choice between types"), (Silent, "say NEVER_NULL")])
def test_what_a_schema_can_not_say_is_an_error(model: type[InputModel], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        definition(Kind(model, DataFlowJobStatus, "x", ()))


# Generated resources -------------------------------------------------------------------------------------


@given(specs.valid)
def test_good_resources_are_valid_on_a_cluster(body: specs.Body) -> None:
    kind_of(body["kind"]).model.model_validate(body, by_alias=True, by_name=False, context=CLUSTER_CONTEXT)


@given(specs.resources)
@settings(max_examples=soaked(150, 3000))
def test_whatever_is_written_is_valid_or_an_error_of_validation(body: specs.Body) -> None:
    model = kind_of(body["kind"]).model
    for context in (None, CLUSTER_CONTEXT):
        with contextlib.suppress(ValidationError):
            assert model.model_validate(body, by_alias=True, by_name=False, context=context).model_dump_json()
