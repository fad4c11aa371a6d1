"""Whether a command goes to Postgres or through a cluster, and the way to the cluster.

What is said goes first: --kube, --context and --namespace; then DATAFLOW_KUBE; then the database of DATAFLOW_DSN or of
`dataflow.properties`; then KUBECONFIG, unless this machine has an embedded database. It asks for nothing itself.
"""

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from opendataflow.errors import InvalidInput
from opendataflow.opening.database import is_named
from opendataflow.settings import read_settings

if TYPE_CHECKING:  # few commands go through a cluster, and its client takes a fifth of a second to load
    from opendataflow.launch.cluster.api import Api

T = TypeVar("T")

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "kube": (Annotated[bool, typer.Option("--kube", help="Through the cluster, not through Postgres.")], False),
    "context": (
        Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig; means --kube.")],
        None,
    ),
    "namespace": (
        Annotated[str | None, typer.Option("--namespace", "-n", help="The namespace in the cluster; means --kube.")],
        None,
    ),
}


@dataclass(frozen=True)
class _Said:
    kube: bool = False
    context: str | None = None
    namespace: str | None = None

    def __bool__(self) -> bool:
        return self.kube or self.context is not None or self.namespace is not None


_said: ContextVar[_Said] = ContextVar("_said", default=_Said())  # noqa: B039  frozen


@dataclass(frozen=True)
class Cluster:
    """An open door to a cluster, and the namespace that is meant."""

    api: "Api"
    namespace: str


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which cluster is meant."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def reached(**given: Any) -> Any:
        token = _said.set(_Said(*(given.pop(name) for name in _OPTIONS)))
        try:
            return command(**given)
        finally:
            _said.reset(token)

    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(n, keyword, annotation=a, default=d) for n, (a, d) in _OPTIONS.items()]
    parameters = [parameter.replace(kind=keyword) for parameter in signature.parameters.values()]
    reached.__signature__ = signature.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]  # PEP 362
    return reached


def add_to(app: typer.Typer, panels: set[str]) -> None:
    """Give the options to all commands and groups of commands below these headings of the help."""
    for command in app.registered_commands:
        if command.rich_help_panel in panels and command.callback is not None:
            command.callback = reaching(command.callback)
    for group in app.registered_groups:
        if group.rich_help_panel in panels and group.typer_instance is not None:
            for command in group.typer_instance.registered_commands:
                assert command.callback is not None
                command.callback = reaching(command.callback)


def through_cluster() -> bool:
    """Whether a command that can do both goes through the cluster."""
    settings = read_settings()
    if _said.get() or settings.kube:
        return True
    return settings.kubeconfig and not is_named(settings) and not settings.postgres_home.exists()


def require_postgres() -> None:
    """Refuse, for a command that only Postgres can answer, where it was said that the cluster is meant."""
    settings = read_settings()
    if _said.get() or (settings.kube and not is_named(settings)):
        raise InvalidInput(
            "only Postgres can answer this, and a kubeconfig does not lead there: set DATAFLOW_DSN to the address of "
            "the operator's database, and leave --kube, --context, --namespace and DATAFLOW_KUBE out"
        )


def with_cluster(ask: Callable[[Cluster], Awaitable[T]]) -> T:
    """Open the cluster that is meant, ask it, close it."""
    from opendataflow.launch.cluster.access import find_access
    from opendataflow.launch.cluster.api import Api

    said = _said.get()

    async def asked() -> T:
        access = find_access(os.environ, context=said.context)
        async with Api(access) as api:
            return await ask(Cluster(api, said.namespace or access.namespace))

    return asyncio.run(asked())
