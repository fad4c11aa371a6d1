"""The rights that the programs need, and the sentences about missing ones. Pure.

tests/helm/test_rights.py compares them with the roles of the chart and of the reference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from opendataflow.names import GROUP


class Purpose(StrEnum):
    """The purpose of a right, the most important first: reading the resources, starting runs, optional features."""

    RESOURCES = "resources"
    RUNS = "runs"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Right:
    """One verb on one resource. `group`: empty for the core group. `sub`: a subresource, or empty."""

    verb: str
    resource: str
    group: str = ""
    sub: str = ""
    needed_for: Purpose = Purpose.RUNS

    @property
    def full_resource(self) -> str:
        """The resource as `kubectl` writes it, such as pods/log or dataflowjobs.opendataflow.io."""
        return self.resource + (f".{self.group}" if self.group else "") + (f"/{self.sub}" if self.sub else "")


_OURS = ("dataflowactions", "dataflowjobs", "datasets")

_OBJECTS = ("get", "list", "watch", "create", "patch", "delete")
"""The verbs on the objects of runs: pods and SparkApplications."""
_SPARK = "sparkoperator.k8s.io"

RIGHTS: tuple[Right, ...] = (
    *(Right(verb, kind, GROUP, needed_for=Purpose.RESOURCES) for kind in _OURS for verb in ("list", "watch")),
    Right("get", "dataflowactions", GROUP, needed_for=Purpose.RESOURCES),
    *(Right("patch", kind, GROUP, "status", Purpose.RESOURCES) for kind in _OURS),
    *(Right(verb, "pods") for verb in (*_OBJECTS, "deletecollection")),
    Right("get", "pods", sub="log", needed_for=Purpose.OPTIONAL),
    Right("delete", "dataflowactions", GROUP, needed_for=Purpose.OPTIONAL),
    *(Right(verb, "events", "events.k8s.io", needed_for=Purpose.OPTIONAL) for verb in ("create", "patch")),
)
"""The rights that the operator needs in each namespace. It checks them at its start, and then at intervals."""

APPLICATIONS: tuple[Right, ...] = tuple(Right(verb, "sparkapplications", _SPARK) for verb in _OBJECTS)
"""Additional rights for jobs with SparkApplications. They are optional, so missing ones are not reported."""

READ_NODES = (Right("get", "nodes", needed_for=Purpose.OPTIONAL),)
"""The right to find out that a node does not exist any more."""

WHOLE_CLUSTER: tuple[Right, ...] = tuple(
    Right(verb, "customresourcedefinitions", "apiextensions.k8s.io", needed_for=Purpose.OPTIONAL)
    for verb in ("list", "watch")
)
"""Additional rights that kopf needs if the operator watches all namespaces."""

DRIVER: tuple[Right, ...] = tuple(
    Right(verb, "pods") for verb in ("get", "list", "watch", "create", "delete", "deletecollection")
)
"""The rights of the service account of Spark drivers, for their executors."""

CLEANUP: tuple[Right, ...] = tuple(Right(verb, "pods") for verb in ("list", "patch"))
CLEANUP_APPLICATIONS: tuple[Right, ...] = tuple(
    Right(verb, "sparkapplications", _SPARK) for verb in ("get", "list", "patch")
)
"""The rights to remove finalizers without an operator (control/cleanup.py)."""
STOP = (Right("patch", "deployments", "apps", "scale"),)
"""The right to stop the operator before the cleanup."""


def missing_sentence(namespace: str | None, missing: Iterable[Right]) -> str:
    """Return a sentence: the missing rights, the consequence and the remedy. `namespace`: None for all."""
    missing = list(missing)
    by_resource = groupby(missing, lambda right: right.full_resource)
    lacks = "; ".join(f"{', '.join(right.verb for right in rights)} {resource}" for resource, rights in by_resource)
    consequence = {
        Purpose.RESOURCES: "nothing is done there",
        Purpose.RUNS: "no runs start there",
        Purpose.OPTIONAL: "the rest works",
    }[most_important(missing)]
    if namespace is None:
        remedy = "a ClusterRole has to allow it, or DATAFLOW_NAMESPACES name the namespaces that it may work in"
        return f"this operator may not {lacks} in all namespaces, so {consequence}: {remedy}"
    return (
        f"this operator may not {lacks} in namespace {namespace}, so {consequence}: a Role and a RoleBinding in "
        f"{namespace} have to allow it, where that namespace is there"
    )


def most_important(missing: Iterable[Right]) -> Purpose:
    """Return the most important purpose of some rights."""
    kinds = {right.needed_for for right in missing}
    return next(kind for kind in Purpose if kind in kinds)
