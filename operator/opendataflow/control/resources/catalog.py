"""The custom resources of the cluster, as the operator sees them now: their specs and their faults.

The catalog is in memory only, and sends no request to the cluster or to Postgres. For each resource it holds the model
and a few fields of the metadata, never the body.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from opendataflow.core.status.conditions import Fault as Fault
from opendataflow.keys import key_of
from opendataflow.model.records.plan import Plan
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob

Model = DataSet | DataFlowJob | DataFlowAction
K = TypeVar("K")


@dataclass(frozen=True, order=True)
class Key:
    """The key of a resource: its kind (such as `DataFlowJob`), namespace and name."""

    kind: str
    namespace: str
    name: str

    @property
    def owner(self) -> str:
        """Return the owner of a job or data set, as the store records it."""
        return f"{self.namespace}/{self.name}"


@dataclass
class Entry:
    """One resource.

    `model`: None if the body is invalid. `fault`: why the body is invalid, or why the store refuses it. `status`: the
    status that the cluster shows. `created`: an RFC 3339 time. `creator`: the program that created it, if the API
    server knows it. `accepted`: the generation that is declared in the store; while a plan is refused, an earlier one.
    `plan`: the plan of the present generation, if it was refused. `accepted_spec`: the spec of a job that is in force,
    as JSON; None if unknown. `declaring`: whether chunks of a data set are being declared; None if unknown.
    """

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
    plan: Plan | None = None
    accepted_spec: str | None = None
    declaring: bool | None = None

    @property
    def store_key(self) -> str | None:
        """The key of the job or data set in the store; None if the body is invalid, and for actions."""
        return key_of(self.key.namespace, self.model.id) if isinstance(self.model, DataSet | DataFlowJob) else None


class Catalog:
    """All resources by key, and by their key in the store."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._ids: dict[tuple[str, str], Key] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, key: Key) -> Entry | None:
        """Return a resource, or None."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """Add or replace a resource."""
        self._entries[entry.key] = entry

    def remove(self, key: Key) -> Entry | None:
        """Remove a resource and return it; None if there was none."""
        return self._entries.pop(key, None)

    def job(self, job: str) -> Entry | None:
        """Return the resource that declares a job, by its key in the store."""
        return self._declared("DataFlowJob", job)

    def dataset(self, dataset: str) -> Entry | None:
        """Return the resource that declares a data set, by its key in the store."""
        return self._declared("DataSet", dataset)

    def _declared(self, kind: str, name: str) -> Entry | None:
        key = self._ids.get((kind, name))
        return None if key is None else self._entries.get(key)

    def accept(self, entry: Entry) -> None:
        """Record that a resource is declared in the store."""
        entry.accepted, entry.fault, entry.plan = entry.generation, None, None
        self._identify(entry)

    def keep(self, entry: Entry) -> None:
        """Record that an earlier spec of a resource stays declared in the store. Its figures are still reported."""
        entry.accepted = entry.generation - 1
        self._identify(entry)

    def _identify(self, entry: Entry) -> None:
        assert entry.store_key is not None
        self._ids[entry.key.kind, entry.store_key] = entry.key


class KeyQueue(Generic[K]):
    """A queue of keys. A key that is put several times is in the queue once.

    `share`: returns the share of a key, such as its namespace. Shares take turns; within a share the order is that of
    the arrival. So a share with many keys delays another one by at most one key.
    """

    def __init__(self, share: Callable[[K], str] = lambda _: "") -> None:
        self._share = share
        self._shares: dict[str, dict[K, None]] = {}
        self._filled = asyncio.Event()

    def put(self, key: K) -> None:
        """Add a key."""
        self._shares.setdefault(self._share(key), {})[key] = None
        self._filled.set()

    def __len__(self) -> int:
        return sum(map(len, self._shares.values()))

    async def get(self) -> K:
        """Wait for the next key, remove it and return it."""
        while not self._shares:
            self._filled.clear()
            await self._filled.wait()
        share = next(iter(self._shares))
        keys = self._shares.pop(share)
        key = next(iter(keys))
        del keys[key]
        if keys:
            self._shares[share] = keys  # at the end: the other shares are first
        return key
