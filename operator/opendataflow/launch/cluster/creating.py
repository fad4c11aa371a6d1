"""Creates the object of a run, or finds the existing one. It sends one POST, and a GET if the name is taken."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from opendataflow.errors import ClusterRefused, CreateUncertain, DataflowError, NotCreatable
from opendataflow.launch.cluster.api import Api, Resource
from opendataflow.model.records.pod import PodOrder


class RunObject(Protocol):
    """An object that belongs to a run."""

    @property
    def run(self) -> int | None:
        """Return the id of the run."""

    @property
    def engine(self) -> str | None:
        """Return the identity of the run's database."""


T = TypeVar("T", bound=RunObject)


async def create_or_find(
    api: Api, resource: Resource, order: PodOrder, project: Callable[[Mapping[str, Any]], T], engine: str
) -> T:
    """Create the object of a run and return it. Return the existing object if it belongs to the same run.

    `project`: extracts the facts. `engine`: the identity of the database. Raises CreateUncertain, Backpressure,
    NotCreatable or NamespaceGone. A second call is always safe.
    """
    try:
        return project(await api.create(resource, order.namespace, order.manifest))
    except ClusterRefused:  # an object of this name exists
        pass
    try:
        found = project(await api.get(resource, order.namespace, order.name))
    except DataflowError as error:  # also if it was deleted meanwhile
        raise CreateUncertain(str(error)) from error
    if (found.run, found.engine) != (order.run, engine):
        what = order.manifest["kind"]
        there = f"there is a {'pod' if what == 'Pod' else what} {order.namespace}/{order.name} already that is"
        if found.engine not in (None, engine):
            raise NotCreatable(
                f"{there} of another OpenDataFlow database ({found.engine}; this one is {engine}): let each database "
                "run its jobs in namespaces of its own"
            )
        raise NotCreatable(f"{there} not of this run: delete or rename it")
    return found
