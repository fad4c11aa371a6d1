"""Creates the object of a run, or finds the one that is there already: one POST, whose answer is made certain."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from opendataflow.errors import ClusterRefused, CreateUncertain, DataflowError, NotCreatable
from opendataflow.launch.cluster.api import Api, Resource
from opendataflow.model.records.pod import PodOrder


class OfRun(Protocol):
    """What says whose it is."""

    @property
    def run(self) -> int | None:
        """The run."""

    @property
    def engine(self) -> str | None:
        """Its database."""


T = TypeVar("T", bound=OfRun)


async def created(
    api: Api, resource: Resource, order: PodOrder, project: Callable[[Mapping[str, Any]], T], engine: str
) -> T:
    """Return the object of a run; one that is there already and is ours is as good.

    Raises CreateUncertain, Backpressure, NotCreatable or NamespaceGone; a second call is always safe.
    """
    try:
        return project(await api.create(resource, order.namespace, order.manifest))
    except ClusterRefused:  # there is one of this name
        pass
    try:
        found = project(await api.get(resource, order.namespace, order.name))
    except DataflowError as error:  # also where it has just gone
        raise CreateUncertain(str(error)) from error
    if (found.run, found.engine) != (order.run, engine):
        what = order.manifest["kind"]
        what = "pod" if what == "Pod" else what
        raise NotCreatable(
            f"there is a {what} {order.namespace}/{order.name} already that is not of this run: delete or rename it"
        )
    return found
