"""Which rights the programs need, what follows where the operator lacks some, and how that is said. Pure.

The roles of the chart and of the reference are compared with these (tests/helm/test_rights.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from opendataflow.names import GROUP


class For(StrEnum):
    """What a right is for. SIGHT: to see the resources; RUNS: to run their jobs; COMFORT: it works without."""

    SIGHT = "sight"
    RUNS = "runs"
    COMFORT = "comfort"


@dataclass(frozen=True)
class Right:
    """One verb on one resource. `group`: empty for those of Kubernetes' core; `sub`: a subresource, or empty."""

    verb: str
    resource: str
    group: str = ""
    sub: str = ""
    needed_for: For = For.RUNS

    @property
    def what(self) -> str:
        """The resource as `kubectl` writes it, like pods/log or dataflowjobs.opendataflow.io."""
        return self.resource + (f".{self.group}" if self.group else "") + (f"/{self.sub}" if self.sub else "")


_OURS = ("dataflowactions", "dataflowjobs", "datasets")

_PODS = ("get", "list", "watch", "create", "patch", "delete", "deletecollection")
_SPARK = "sparkoperator.k8s.io"

RIGHTS: tuple[Right, ...] = (
    *(Right(verb, kind, GROUP, needed_for=For.SIGHT) for kind in _OURS for verb in ("list", "watch")),
    Right("get", "dataflowactions", GROUP, needed_for=For.SIGHT),
    *(Right("patch", kind, GROUP, "status", For.SIGHT) for kind in _OURS),
    *(Right(verb, "pods") for verb in _PODS),
    Right("get", "pods", sub="log", needed_for=For.COMFORT),
    Right("delete", "dataflowactions", GROUP, needed_for=For.COMFORT),
    *(Right(verb, "events", "events.k8s.io", needed_for=For.COMFORT) for verb in ("create", "patch")),
)
"""What the operator needs in each namespace, and asks for at its start and again and again."""

APPLICATIONS: tuple[Right, ...] = tuple(Right(verb, "sparkapplications", _SPARK) for verb in _PODS)
"""What it needs beside them for jobs that are SparkApplications: an option, so that nobody is told what is missing."""

READ_NODES = (Right("get", "nodes", needed_for=For.COMFORT),)
"""To know that a node is gone."""

WHOLE_CLUSTER: tuple[Right, ...] = tuple(
    Right(verb, "customresourcedefinitions", "apiextensions.k8s.io", needed_for=For.COMFORT)
    for verb in ("list", "watch")
)
"""What kopf looks at beside them where all namespaces are watched."""

DRIVER: tuple[Right, ...] = tuple(
    Right(verb, "pods") for verb in ("get", "list", "watch", "create", "delete", "deletecollection")
)
"""What the driver of a Spark job needs for its executors, by an account of its own."""

CLEANUP: tuple[Right, ...] = tuple(Right(verb, "pods") for verb in ("list", "patch"))
CLEANUP_APPLICATIONS: tuple[Right, ...] = tuple(
    Right(verb, "sparkapplications", _SPARK) for verb in ("get", "list", "patch")
)
"""To free what is left (control/cleanup.py)."""
STOP = (Right("patch", "deployments", "apps", "scale"),)
"""To stop the operator before that."""


def missing_sentence(namespace: str | None, missing: Iterable[Right]) -> str:
    """Say what is missing where, what follows, and what to do. `namespace`: None for all."""
    missing = list(missing)
    lacks = "; ".join(
        f"{', '.join(right.verb for right in rights)} {what}" for what, rights in groupby(missing, lambda r: r.what)
    )
    follows = {
        For.SIGHT: "nothing is done there",
        For.RUNS: "no runs start there",
        For.COMFORT: "the rest works",
    }[worst(missing)]
    if namespace is None:
        remedy = "a ClusterRole has to allow it, or DATAFLOW_NAMESPACES name the namespaces that it may work in"
        return f"this operator may not {lacks} in all namespaces, so {follows}: {remedy}"
    return (
        f"this operator may not {lacks} in namespace {namespace}, so {follows}: a Role and a RoleBinding in "
        f"{namespace} have to allow it, where that namespace is there"
    )


def worst(missing: Iterable[Right]) -> For:
    """What the most important one of some rights is for."""
    kinds = {right.needed_for for right in missing}
    return next(kind for kind in For if kind in kinds)
