"""Decides whether a command uses Postgres or a cluster, and opens the connection to the cluster.

The first of these that is set decides: the options --kube, --context and --namespace; DATAFLOW_KUBE; the database of
DATAFLOW_DSN or of `dataflow.properties`; KUBECONFIG, unless this machine has an embedded database.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from opendataflow.cli.options import Options
from opendataflow.errors import InvalidInput
from opendataflow.keys import namespace_of
from opendataflow.settings import has_named_database, read_settings

if TYPE_CHECKING:  # few commands go through a cluster, and its client takes a fifth of a second to load
    from opendataflow.launch.cluster.api import Api

T = TypeVar("T")

CLUSTER_OPTIONS: Options = {
    "kube": (Annotated[bool, typer.Option("--kube", help="Use the cluster, not Postgres.")], False),
    "context": (
        Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig. Implies --kube.")],
        None,
    ),
    "namespace": (
        Annotated[str | None, typer.Option("--namespace", "-n", help="The namespace in the cluster. Implies --kube.")],
        None,
    ),
}


@dataclass(frozen=True)
class _ClusterChoice:
    """The values of the options that choose a cluster."""

    kube: bool = False
    context: str | None = None
    namespace: str | None = None

    def __bool__(self) -> bool:
        return self.kube or self.context is not None or self.namespace is not None


_choice: ContextVar[_ClusterChoice] = ContextVar("_choice", default=_ClusterChoice())  # noqa: B039  frozen


@dataclass(frozen=True)
class Cluster:
    """An open connection to a cluster, and the chosen namespace."""

    api: "Api"
    namespace: str


@contextmanager
def chosen_cluster(**choice: Any) -> Iterator[None]:
    """Use the cluster that the values of CLUSTER_OPTIONS choose, during the block."""
    token = _choice.set(_ClusterChoice(**choice))
    try:
        yield
    finally:
        _choice.reset(token)


def through_cluster() -> bool:
    """Return whether a command that supports both uses the cluster."""
    settings = read_settings()
    if _choice.get() or settings.kube:
        return True
    return settings.kubeconfig and not has_named_database(settings) and not settings.postgres_home.exists()


def require_postgres() -> None:
    """Raise InvalidInput if the cluster was chosen for a command that needs Postgres."""
    settings = read_settings()
    if _choice.get() or (settings.kube and not has_named_database(settings)):
        raise InvalidInput(
            "only Postgres can answer this, and a kubeconfig does not lead there: set DATAFLOW_DSN to the address of "
            "the operator's database, and leave --kube, --context, --namespace and DATAFLOW_KUBE out"
        )


def with_cluster(ask: Callable[[Cluster], Awaitable[T]], about: str = "") -> T:
    """Connect to the chosen cluster, call `ask`, disconnect, and return the result.

    `about`: the job or data set that the user has written, perhaps with its namespace, as `namespace/id`. Raise
    InvalidInput if --namespace names another one.
    """
    from opendataflow.launch.cluster.access import find_access
    from opendataflow.launch.cluster.api import Api

    choice = _choice.get()
    written = namespace_of(about)
    if written and choice.namespace not in (None, written):
        raise InvalidInput(f"{about} is in namespace {written}, and --namespace names {choice.namespace}: write one")

    async def connect_and_ask() -> T:
        access = find_access(os.environ, context=choice.context)
        async with Api(access) as api:
            return await ask(Cluster(api, written or choice.namespace or access.namespace))

    return asyncio.run(connect_and_ask())
