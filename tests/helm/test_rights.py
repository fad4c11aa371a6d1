"""The roles of the chart and of the reference allow what the programs need: nothing is missing, nothing too much."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from opendataflow.core.kubernetes.rights import (
    APPLICATIONS,
    CLEANUP,
    CLEANUP_APPLICATIONS,
    DRIVER,
    READ_NODES,
    RIGHTS,
    STOP,
    WHOLE_CLUSTER,
    Right,
)
from tests.helm.chart import ROOT, Helm, Object, of_kind

Grant = tuple[str, str, str]
"""A group, a resource with its subresource, and a verb."""

SETTINGS: list[tuple[dict[str, Any], dict[str, Iterable[Right]]]] = [
    (
        {},
        {
            "ClusterRole dataflow:dataflow": (*RIGHTS, *WHOLE_CLUSTER, *READ_NODES),
            "ClusterRole dataflow:dataflow:cleanup": CLEANUP,
            "Role dataflow/dataflow-cleanup-stop": STOP,
        },
    ),
    (
        {"namespaces": ["a"], "rbac": {"sparkApplications": True, "readNodes": True}},
        {
            "ClusterRole dataflow:dataflow": READ_NODES,
            "Role a/dataflow": (*RIGHTS, *APPLICATIONS),
            "Role a/dataflow-cleanup": (*CLEANUP, *CLEANUP_APPLICATIONS),
            "Role dataflow/dataflow-cleanup-stop": STOP,
            "Role a/opendataflow-spark": DRIVER,
        },
    ),
    (
        {"namespaces": ["a"], "spark": {"enabled": False}, "uninstall": {"cleanup": False}},
        {"Role a/dataflow": RIGHTS},
    ),
]


def granted(rules: Iterable[dict[str, list[str]]]) -> list[Grant]:
    """What rules allow, one by one."""
    each = (
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )
    return sorted(each)


def needed(rights: Iterable[Right]) -> list[Grant]:
    return sorted((r.group, r.resource + (f"/{r.sub}" if r.sub else ""), r.verb) for r in rights)


def name(role: Object) -> str:
    metadata = role["metadata"]
    place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"{role['kind']} {place}{metadata['name']}"


@pytest.mark.parametrize(("values", "roles"), SETTINGS, ids=["cluster", "everything", "namespace"])
def test_each_role_of_the_chart_allows_what_its_program_needs_and_nothing_else(
    helm: Helm, values: dict[str, Any], roles: dict[str, Iterable[Right]]
) -> None:
    merged = {"rbac": {"aggregate": False, **values.get("rbac", {})}, "crds": {"install": False}}
    found = of_kind(helm.objects(values=values | merged), "Role", "ClusterRole")
    assert {name(role): granted(role["rules"]) for role in found} == {
        role: needed(rights) for role, rights in roles.items()
    }


def test_the_role_of_the_reference_allows_the_same() -> None:
    text = (ROOT / "docs" / "reference" / "operator.md").read_text("utf-8")
    found = re.search(r"^```yaml\n(rules:\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert granted(yaml.safe_load(found[1])["rules"]) == needed(RIGHTS)
