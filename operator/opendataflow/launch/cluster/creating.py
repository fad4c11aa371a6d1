"""Creates the object of a run, or finds the existing one. It sends one POST, and a GET if the name is taken."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from opendataflow.core.kubernetes.run_identity import Identified, Match
from opendataflow.errors import ClusterRefused, CreateUncertain, DataflowError, NotCreatable
from opendataflow.launch.cluster.api import Api, Resource
from opendataflow.model.records.pod import PodOrder, RunIdentity

T = TypeVar("T", bound=Identified)


async def create_or_find(
    api: Api,
    resource: Resource,
    order: PodOrder,
    project: Callable[[Mapping[str, Any]], T],
    match: Callable[[T, RunIdentity], Match],
    protect: Callable[[Api, T], Awaitable[T]],
) -> T:
    """Create the object of a run and return it. Return the existing object if it belongs to the same run.

    `project`: extracts the facts. `match`: compares them with a run. `protect`: puts our finalizer back. Raises
    CreateUncertain, Backpressure, NotCreatable or NamespaceGone. A second call is always safe.
    """
    try:
        return project(await api.create(resource, order.namespace, order.manifest))
    except ClusterRefused:  # an object of this name exists
        pass
    try:
        found = project(await api.get(resource, order.namespace, order.name))
        verdict = match(found, order.identity)
        if verdict is Match.UNPROTECTED:
            found, verdict = await protect(api, found), Match.OURS
    except DataflowError as error:  # also if it was deleted meanwhile
        raise CreateUncertain(str(error)) from error
    if verdict is not Match.OURS:
        what = "pod" if order.manifest["kind"] == "Pod" else order.manifest["kind"]
        raise NotCreatable(
            f"there is a {what} {order.namespace}/{order.name} already that is not of this run: it is left alone, and "
            "the next run gets another name; find out who creates it, and delete it"
        )
    return found
