"""Takes over into the store what the resources declare, one resource at a time, and forgets what is gone.

A resource that can't be honoured gets a fault, and nothing of it starts; it is tried again when another one changes.
The store is asked only where something differs from what it has taken over before, also by an earlier operator.
"""

import asyncio
import logging
from collections.abc import Callable

from opendataflow.control.resources.catalog import Catalog, Entry, Fault, Key, Pending
from opendataflow.control.resources.orders import Makers
from opendataflow.control.resources.requests import Requests
from opendataflow.core.runs.declared import Row, dataset_row, declared_as, job_row
from opendataflow.engine.declaring import declare
from opendataflow.errors import DataflowError, IdTaken, InvalidInput, NotShared, Refused, UnknownThing
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import Reason
from opendataflow.store.resources import Declared, declared_by_resources, delete_job, disown_dataset
from opendataflow.store.store import Store

PAUSE_SECONDS = 2.0
"""How long to wait where Postgres or the API server does not answer."""

_REASONS: tuple[tuple[type[DataflowError], Reason], ...] = (
    (IdTaken, Reason.ID_TAKEN),
    (NotShared, Reason.NOT_SHARED),
    (UnknownThing, Reason.DATA_SET_MISSING),
    (InvalidInput, Reason.INVALID_SPEC),
    (Refused, Reason.INVALID_SPEC),
)

logger = logging.getLogger(__name__)


class Reconciler:
    """One loop over resources that have changed. `tell`: is told whose status may have changed."""

    def __init__(
        self, store: Store, catalog: Catalog, requests: Requests, makers: Makers, tell: Callable[[Key], None]
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._requests = requests
        self._makers = makers
        self._tell = tell
        self._pending: Pending[Key] = Pending()
        self._gone: dict[Key, Entry] = {}
        self._known: dict[tuple[str, str], Declared] = {}

    def put(self, key: Key) -> None:
        """A resource is there, or has changed."""
        self._pending.put(key)

    def removed(self, entry: Entry) -> None:
        """A resource is gone."""
        self._gone[entry.key] = entry
        self._pending.put(entry.key)

    async def begin(self, hides: Callable[[str], bool] = lambda _: False) -> None:
        """Learn what was taken over before; resources that went while no operator ran are gone now, except in
        namespaces that are hidden. Comes after the catalog has everything that can be seen, and before anything is
        started."""
        self._known = await declared_by_resources(self._store)
        for key, name in self._absent(hides):
            await self._forget(key.kind, name, key.owner)
        for entry in sorted(self._catalog, key=lambda entry: (entry.key.kind != "DataSet", entry.key)):
            await self._one(entry.key)

    def miss(self, hides: Callable[[str], bool]) -> None:
        """All that can be seen is in the catalog: what was taken over and is not there is gone. It went while it was
        hidden."""
        for key, _ in self._absent(hides):
            if key not in self._gone:
                self.removed(Entry(key, uid="", generation=0, model=None))

    def _absent(self, hides: Callable[[str], bool]) -> list[tuple[Key, str]]:
        there = {(entry.key.kind, entry.key.owner) for entry in self._catalog}
        absent = [(Key(kind, *said.owner.split("/", 1)), name) for (kind, name), said in self._known.items()]
        return [(key, name) for key, name in absent if (key.kind, key.owner) not in there and not hides(key.namespace)]

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            key = await self._pending.get()
            try:
                await self._one(key)
            except DataflowError as error:
                if error.retryable:
                    self._pending.put(key)
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    logger.error("%s %s: %s", key.kind, key.owner, error)

    @property
    def waiting(self) -> int:
        """How many resources wait to be looked at."""
        return len(self._pending)

    async def _one(self, key: Key) -> None:
        gone = self._gone.get(key)
        if gone is not None:
            await self._remove(gone)
            self._gone.pop(key, None)
        entry = self._catalog.get(key)
        if entry is None:
            return
        if key.kind == "DataFlowAction":
            await self._requests.handle_action(entry)
            return
        await self._take_over(entry)
        if isinstance(entry.model, DataFlowJob) and entry.accepted == entry.generation and entry.model.spec.resubmit:
            await self._requests.handle_resubmit(entry)
        self._tell(key)

    async def _take_over(self, entry: Entry) -> None:
        before = entry.fault
        model = entry.model
        if isinstance(model, DataSet | DataFlowJob):
            try:
                row = self._row(entry, model)
                await self._declare(entry, model, row)
            except DataflowError as error:
                if error.retryable:
                    raise
                entry.fault = Fault(_reason(error), str(error).removeprefix(f"job {model.id}: "))
        if entry.fault is not None:
            if entry.key.kind == "DataFlowJob":
                for name in self._taken_over(entry.key):
                    self._makers.gone(name)
            if entry.fault != before:
                logger.warning("%s %s: %s", entry.key.kind, entry.key.owner, entry.fault.message)

    def _row(self, entry: Entry, model: DataSet | DataFlowJob) -> Row:
        if isinstance(model, DataSet):
            row = dataset_row(model) | {"share_with": list(model.spec.share_with)}
        else:
            row = job_row(model)
        return row | {"owner": entry.key.owner, "declared_as": declared_as(model)}

    async def _declare(self, entry: Entry, model: DataSet | DataFlowJob, row: Row) -> None:
        kind, said = entry.key.kind, Declared(entry.key.owner, row["declared_as"])
        if self._known.get((kind, model.id)) != said:
            rows = ([row], []) if isinstance(model, DataSet) else ([], [row])
            await declare(self._store, *rows, f"{kind} {entry.key.owner}")
            self._known[kind, model.id] = said
            logger.info("%s %s: taken over, generation %d", kind, entry.key.owner, entry.generation)
            self._look_again_after(entry.key, model)
        if isinstance(model, DataFlowJob):
            orders = self._makers.make(entry, said.as_hash)
            orders.check((await self._store.declared_jobs([model.id]))[model.id])
            self._makers.there(orders)
        self._catalog.accept(entry)

    def _look_again_after(self, changed: Key, model: DataSet | DataFlowJob | None = None) -> None:
        """What was refused may be right now, and jobs that use a data set (`model`) may not be any more."""
        for entry in self._catalog:
            uses = isinstance(entry.model, DataFlowJob) and isinstance(model, DataSet) and _uses(entry.model, model.id)
            if entry.key != changed and entry.model is not None and (entry.fault is not None or uses):
                self._pending.put(entry.key)

    async def _remove(self, entry: Entry) -> None:
        if entry.key.kind == "DataFlowAction":
            await self._requests.forget(entry)
        for name in self._taken_over(entry.key):
            await self._forget(entry.key.kind, name, entry.key.owner)

    def _taken_over(self, key: Key) -> list[str]:
        """The ids that the store has from this resource."""
        return [name for (kind, name), said in self._known.items() if (kind, said.owner) == (key.kind, key.owner)]

    async def _forget(self, kind: str, name: str, owner: str) -> None:
        if kind == "DataFlowJob":
            if await delete_job(self._store, name, owner, f"DataFlowJob {owner}"):
                logger.info("DataFlowJob %s is gone: nothing new of it starts, its chunks stay", owner)
                self._makers.gone(name)
        else:
            await disown_dataset(self._store, name, owner)
        del self._known[kind, name]
        self._look_again_after(Key(kind, *owner.split("/", 1)))


def _uses(job: DataFlowJob, dataset: str) -> bool:
    return dataset in job.spec.inputs or dataset in job.spec.outputs


def _reason(error: DataflowError) -> Reason:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.INVALID_SPEC)
