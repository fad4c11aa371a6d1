"""What of a cluster is too old, and which rights are reported as missing."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.cluster_version import too_old
from opendataflow.core.kubernetes.definitions import outdated_sentences
from opendataflow.core.kubernetes.rights import RIGHTS, Purpose, missing_sentence, most_important
from opendataflow.model.resources.crd import KINDS, definition


@pytest.mark.parametrize(
    ("major", "minor"), [("1", "29"), ("1", "29+"), ("1", "34"), ("2", "0"), ("", ""), ("1", ""), ("x", "y")]
)
def test_a_version_that_is_new_enough_or_unknown_is_taken(major: str, minor: str) -> None:
    assert too_old({"major": major, "minor": minor, "gitVersion": "v1"}) is None


@pytest.mark.parametrize(("major", "minor"), [("1", "28"), ("1", "28+"), ("1", "9"), ("0", "99")])
def test_an_older_version_is_named_with_the_oldest_that_works(major: str, minor: str) -> None:
    sentence = too_old({"major": major, "minor": minor, "gitVersion": "v1.28.4-eks"})
    assert sentence == "the cluster is Kubernetes v1.28.4-eks; OpenDataFlow needs v1.29 or newer: upgrade it first"


def test_a_version_without_a_name_is_named_by_its_numbers() -> None:
    assert "Kubernetes v1.27;" in str(too_old({"major": "1", "minor": "27"}))


def test_missing_rights_are_named_by_verb_resource_and_namespace() -> None:
    some = [
        right
        for right in RIGHTS
        if right.full_resource in ("pods", "pods/log") and right.verb in ("create", "patch", "get")
    ]
    sentence = missing_sentence("team", some)
    assert sentence.startswith(
        "this operator may not get, create, patch pods; get pods/log in namespace team, so no runs start"
    )
    assert sentence.endswith("a Role and a RoleBinding in team have to allow it, where that namespace is there")


def test_rights_that_are_missing_everywhere_ask_for_a_cluster_role() -> None:
    sentence = missing_sentence(None, RIGHTS)
    assert "in all namespaces, so nothing is done there: a ClusterRole" in sentence
    assert "patch datasets.opendataflow.io/status" in sentence


def test_what_follows_is_that_of_the_most_important_right() -> None:
    assert most_important(RIGHTS) is Purpose.RESOURCES
    assert most_important(right for right in RIGHTS if right.resource == "pods") is Purpose.RUNS
    assert most_important(right for right in RIGHTS if right.resource == "events") is Purpose.OPTIONAL


def published(**changes: Any) -> dict[str, Any]:
    """What an API server publishes of the definitions. `changes`: fields of a spec that are not there, by kind."""
    schemas = {}
    for kind in KINDS:
        schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for field in changes.get(kind.name, ()):
            del schema["properties"]["spec"]["properties"][field]
        named = [{"group": "opendataflow.io", "kind": kind.name, "version": "v1alpha1"}]
        schemas[f"io.opendataflow.v1alpha1.{kind.name}"] = {**schema, "x-kubernetes-group-version-kind": named}
    return {"components": {"schemas": schemas}}


def test_definitions_of_this_version_and_ones_that_are_not_reported_are_fine() -> None:
    assert outdated_sentences(published()) == []
    assert outdated_sentences({}) == []


def test_a_field_that_a_definition_lacks_is_named() -> None:
    (sentence,) = outdated_sentences(published(DataFlowJob=["priority"]))
    assert sentence.startswith(
        "the definition of DataFlowJob in this cluster is older than this operator, it lacks spec.priority:"
    )
    assert "kubectl apply" in sentence


def test_of_many_fields_some_are_named() -> None:
    (sentence,) = outdated_sentences(published(DataFlowJob=["priority", "retry", "inputs", "outputs", "suspend"]))
    assert "and 2 more:" in sentence
