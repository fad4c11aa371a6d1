"""The custom resources of the cluster, as the operator sees them now: what users wrote, and what is wrong with it.

Memory only, filled by whoever watches; nothing here asks the cluster or Postgres. What it holds of a resource is its
model and the few fields of its metadata that are needed, never the body.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from opendataflow.core.status.conditions import Fault as Fault
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob

Model = DataSet | DataFlowJob | DataFlowAction
K = TypeVar("K")


@dataclass(frozen=True, order=True)
class Key:
    """Which resource: its kind, as in `DataFlowJob`, and where it is."""

    kind: str
    namespace: str
    name: str

    @property
    def owner(self) -> str:
        """As the store remembers whose a job or data set is."""
        return f"{self.namespace}/{self.name}"


@dataclass
class Entry:
    """One resource. `model`: None where the body is none, then `fault` says why. `fault`: also why the store refuses
    it. `status`: what the cluster shows as its status. `created`: an RFC 3339 time. `creator`: the program that has
    created it, as far as the API server knows. `accepted`: the generation that the store has taken over."""

    key: Key
    uid: str
    generation: int
    model: Model | None
    fault: Fault | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    creator: str = ""
    accepted: int | None = None


class Catalog:
    """All resources by key, and by the id that they have in the store."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._ids: dict[tuple[str, str], Key] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, key: Key) -> Entry | None:
        """One resource, or None."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """A resource is there, or has changed."""
        self._entries[entry.key] = entry

    def remove(self, key: Key) -> Entry | None:
        """A resource is gone; return what it was."""
        return self._entries.pop(key, None)

    def job(self, job: str) -> Entry | None:
        """The resource that has declared a job, by the job's id."""
        return self._declared("DataFlowJob", job)

    def dataset(self, dataset: str) -> Entry | None:
        """The resource that has declared a data set, by its id."""
        return self._declared("DataSet", dataset)

    def _declared(self, kind: str, name: str) -> Entry | None:
        key = self._ids.get((kind, name))
        return None if key is None else self._entries.get(key)

    def accept(self, entry: Entry) -> None:
        """The store has taken over what a resource declares."""
        assert isinstance(entry.model, DataSet | DataFlowJob)
        entry.accepted, entry.fault = entry.generation, None
        self._ids[entry.key.kind, entry.model.id] = entry.key


class Pending(Generic[K]):
    """Keys that somebody has to look at, each once however often it was put; in the order of their first arrival."""

    def __init__(self) -> None:
        self._keys: dict[K, None] = {}
        self._there = asyncio.Event()

    def put(self, key: K) -> None:
        """Ask for a look at a key."""
        self._keys[key] = None
        self._there.set()

    def __len__(self) -> int:
        return len(self._keys)

    async def get(self) -> K:
        """Wait for the next one."""
        while not self._keys:
            self._there.clear()
            await self._there.wait()
        key = next(iter(self._keys))
        del self._keys[key]
        return key
