"""Declares custom resources in the store, one at a time, and removes the declarations of deleted resources.

A refused resource gets a fault, and no run of it starts. It is tried again when another resource of its namespace
changes, or any resource if it reads shared data. So the refused resources of one tenant cost others nothing. The store
is asked only if a resource differs from its recorded declaration, which an earlier operator may have written. Any
failure of one resource becomes its fault, and others are handled as before.
"""

import asyncio
import logging
from collections.abc import Callable

from opendataflow.control.resources.accepted import accepted_job, accepted_text
from opendataflow.control.resources.catalog import Catalog, Entry, Fault, Key, KeyQueue
from opendataflow.control.resources.failures import Retries, concerns_one_resource, failure
from opendataflow.control.resources.orders import OrderMakers, PodOrders
from opendataflow.control.resources.requests import Requests
from opendataflow.core.runs.declared import Row, dataset_row, job_row, spec_digest
from opendataflow.core.text.plan import refused_sentence, resource_sentence
from opendataflow.engine.declaring import declare
from opendataflow.errors import (
    DataflowError,
    IdTaken,
    InvalidInput,
    LimitReached,
    LocationNotAccepted,
    NotShared,
    PlanRefused,
    PolicyViolated,
    Refused,
    UnknownThing,
)
from opendataflow.keys import input_key, key_of, namespace_of, sentence_seen_from
from opendataflow.model.records.plan import NO_LIMITS, Consent, NamespaceLimits, Plan
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import Backfill, Reason
from opendataflow.store.resources import Declared, declared_by_resources, delete_job, disown_dataset, require_shared
from opendataflow.store.store import Store

PAUSE_SECONDS = 2.0
"""The pause after Postgres or the API server did not answer."""

_REASONS: tuple[tuple[type[DataflowError], Reason], ...] = (
    (IdTaken, Reason.ID_TAKEN),
    (NotShared, Reason.NOT_SHARED),
    (LimitReached, Reason.LIMIT_REACHED),
    (UnknownThing, Reason.DATA_SET_MISSING),
    (PolicyViolated, Reason.POD_POLICY),
    (LocationNotAccepted, Reason.LOCATION_NOT_ACCEPTED),
    (InvalidInput, Reason.INVALID_SPEC),
    (Refused, Reason.INVALID_SPEC),
)

logger = logging.getLogger(__name__)


class Reconciler:
    """One loop over changed resources.

    `status_changed`: called with a resource whose status may have changed. `failed`: called after a failure, with the
    kind of the resource. `limits`: what one namespace may declare.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        requests: Requests,
        makers: OrderMakers,
        status_changed: Callable[[Key], None],
        failed: Callable[[str], None] = lambda _kind: None,
        limits: NamespaceLimits = NO_LIMITS,
    ) -> None:
        self._limits = limits
        self._store = store
        self._catalog = catalog
        self._requests = requests
        self._makers = makers
        self._status_changed = status_changed
        self._failed = failed
        self._retries = Retries(self.enqueue)
        self._pending: KeyQueue[Key] = KeyQueue(lambda key: key.namespace)
        self._gone: dict[Key, Entry] = {}
        self._known: dict[tuple[str, str], Declared] = {}

    def enqueue(self, key: Key) -> None:
        """Enqueue a new or changed resource."""
        self._pending.put(key)

    def enqueue_removed(self, entry: Entry) -> None:
        """Enqueue a deleted resource."""
        self._gone[entry.key] = entry
        self._pending.put(entry.key)

    async def begin(self, hides: Callable[[str], bool] = lambda _: False) -> None:
        """Read the recorded declarations, and reconcile all resources. The catalog contains all visible resources.

        Remove the declarations of resources that were deleted while no operator ran, except in hidden namespaces. No
        run starts before. `hides`: whether a namespace may have resources that this operator can't read.
        """
        self._known = await declared_by_resources(self._store)
        self.enqueue_missing(hides)
        for key in list(self._gone):
            await self._handle(key)
        for entry in sorted(self._catalog, key=lambda entry: (entry.key.kind != "DataSet", entry.key)):
            await self._handle(entry.key)

    def enqueue_missing(self, hides: Callable[[str], bool]) -> None:
        """Enqueue declared resources that are missing in the catalog: they were deleted while they were hidden."""
        for key, _ in self._missing(hides):
            if key not in self._gone:
                self.enqueue_removed(Entry(key, uid="", generation=0, model=None))

    def _missing(self, hides: Callable[[str], bool]) -> list[tuple[Key, str]]:
        present = {(entry.key.kind, entry.key.owner) for entry in self._catalog}
        missing = [(Key(kind, *declared.owner.split("/", 1)), name) for (kind, name), declared in self._known.items()]
        return [
            (key, name) for key, name in missing if (key.kind, key.owner) not in present and not hides(key.namespace)
        ]

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            key = await self._pending.get()
            try:
                await self._handle(key)
            except DataflowError as error:
                if error.retryable:
                    self._pending.put(key)
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    logger.error("%s %s: %s", key.kind, key.owner, error)

    @property
    def waiting(self) -> int:
        """Return how many resources are in the queue."""
        return len(self._pending)

    async def _handle(self, key: Key) -> None:
        """Handle one resource. Raises errors from which all resources suffer; see `concerns_one_resource`."""
        try:
            await self._reconcile(key)
        except Exception as error:
            if not concerns_one_resource(error):
                raise
            await self._fail(key, error)
        else:
            self._retries.succeeded(key)

    async def _fail(self, key: Key, error: Exception) -> None:
        """Record a failure as the fault of the resource, and try it again later."""
        self._failed(key.kind)
        self._retries.failed(key)
        entry, fault = self._catalog.get(key), failure(error)
        if entry is None or entry.fault != fault:
            unexpected = None if isinstance(error, DataflowError) else error
            logger.error("%s %s: %s", key.kind, key.owner, fault.message, exc_info=unexpected)
        if entry is None:
            return
        if entry.accepted != entry.generation:
            self._stop(entry)
        entry.fault = fault
        if key.kind == "DataFlowAction":
            await self._requests.report_failure(entry, fault.message)
        else:
            self._status_changed(key)

    async def _reconcile(self, key: Key) -> None:
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
        self._status_changed(key)

    async def _take_over(self, entry: Entry) -> None:
        before = entry.fault
        model = entry.model
        if isinstance(model, DataSet | DataFlowJob):
            try:
                row = self._row(entry, model)
                await self._declare(entry, model, row)
            except PlanRefused as error:
                await self._refuse_plan(entry, model, error)
            except (InvalidInput, Refused) as error:
                entry.plan = None
                sentence = sentence_seen_from(entry.key.namespace, str(error))
                entry.fault = Fault(_reason(error), sentence.removeprefix(f"job {model.id}: "))
        if entry.fault is not None:
            self._stop(entry)
            if entry.fault != before:
                logger.warning("%s %s: %s", entry.key.kind, entry.key.owner, entry.fault.message)

    def _stop(self, entry: Entry) -> None:
        """Start no more runs of a job with a fault, unless its earlier declaration stays in force."""
        if entry.key.kind == "DataFlowJob" and entry.plan is None:
            for name in self._ids_of(entry.key):
                self._makers.remove(name)

    async def _refuse_plan(self, entry: Entry, model: DataSet | DataFlowJob, error: PlanRefused) -> None:
        """Record a refused plan. The declaration before stays in force, and so do its runs."""
        plan, allow = Plan.of_json(error.plan).seen_from(entry.key.namespace), model.spec.allow
        message = f"{refused_sentence(plan)}; {resource_sentence(plan, None if allow is None else allow.change)}"
        name = key_of(entry.key.namespace, model.id)
        known = self._known.get((entry.key.kind, name))
        if known is not None and known.owner == entry.key.owner:
            if isinstance(model, DataFlowJob):
                try:
                    await self._keep_program(entry, name, known.as_hash)
                except InvalidInput as cause:
                    message += f"; until then, or until the old spec is back, no new run starts, because {cause}"
            self._catalog.keep(entry)
        entry.plan, entry.fault = plan, Fault(Reason.PLAN_REFUSED, message)

    async def _keep_program(self, entry: Entry, job: str, declared_as: str) -> None:
        """Keep starting runs of the accepted spec. It is in the status, for an operator that has just started.

        Raises InvalidInput if no new run can start.
        """
        orders = self._makers.makers.get(job)
        if orders is None or orders.declared_as != declared_as:
            orders = await self._use(accepted_job(entry.key, entry.status, declared_as), declared_as)
            logger.info("DataFlowJob %s: its accepted spec stays in force", entry.key.owner)
        entry.accepted_spec = accepted_text(orders.job, declared_as)

    def _row(self, entry: Entry, model: DataSet | DataFlowJob) -> Row:
        if isinstance(model, DataSet):
            row = dataset_row(model, entry.key.namespace) | {"share_with": list(model.spec.share_with)}
        else:
            row = job_row(model, entry.key.namespace)
        return row | {"owner": entry.key.owner, "declared_as": spec_digest(model)}

    async def _declare(self, entry: Entry, model: DataSet | DataFlowJob, row: Row) -> None:
        kind, name, declared = entry.key.kind, row["id"], Declared(entry.key.owner, row["declared_as"])
        if self._known.get((kind, name)) != declared:
            rows = ([row], []) if isinstance(model, DataSet) else ([], [row])
            actor = f"{kind} {entry.key.owner}"
            applied = await declare(self._store, *rows, actor, _consent(model), self._limits)
            entry.declaring = applied.declaring
            self._known[kind, name] = declared
            logger.info("%s %s: taken over, generation %d", kind, entry.key.owner, entry.generation)
            self._requeue_dependents(entry.key, dataset=name if isinstance(model, DataSet) else None)
        elif isinstance(model, DataFlowJob):
            await require_shared(self._store, name)
        if isinstance(model, DataFlowJob):
            await self._use(model, declared.as_hash)
            entry.accepted_spec = accepted_text(model, declared.as_hash)
        self._catalog.accept(entry)

    async def _use(self, job: DataFlowJob, declared_as: str) -> PodOrders:
        """Start runs of this job from now on. Raises InvalidInput if no pods can be made for it."""
        orders = self._makers.make(job, declared_as)
        orders.check((await self._store.declared_jobs([orders.key]))[orders.key])
        self._makers.add(orders)
        return orders

    def _requeue_dependents(self, changed: Key, dataset: str | None = None) -> None:
        """Enqueue refused resources that may be valid now, and the jobs of a changed data set, given by its key."""
        for entry in self._catalog:
            uses = isinstance(entry.model, DataFlowJob) and _uses(entry.key.namespace, entry.model, dataset)
            refused = entry.fault is not None and _depends(entry, changed.namespace)
            if entry.key != changed and entry.model is not None and (refused or uses):
                self._pending.put(entry.key)

    async def _remove(self, entry: Entry) -> None:
        if entry.key.kind == "DataFlowAction":
            await self._requests.forget(entry)
        for name in self._ids_of(entry.key):
            await self._forget(entry.key.kind, name, entry.key.owner)

    def _ids_of(self, key: Key) -> list[str]:
        """Return the ids that a resource has declared in the store."""
        return [
            name for (kind, name), declared in self._known.items() if (kind, declared.owner) == (key.kind, key.owner)
        ]

    async def _forget(self, kind: str, name: str, owner: str) -> None:
        if kind == "DataFlowJob":
            if await delete_job(self._store, name, owner, f"DataFlowJob {owner}"):
                logger.info("DataFlowJob %s is gone: nothing new of it starts, its chunks stay", owner)
                self._makers.remove(name)
        else:
            await disown_dataset(self._store, name, owner)
        del self._known[kind, name]
        self._requeue_dependents(Key(kind, *owner.split("/", 1)))


def _consent(model: DataSet | DataFlowJob) -> Consent:
    allow = model.spec.allow
    if allow is None:
        return Consent()
    return Consent(change=allow.change, backfill=None if allow.backfill is None else Backfill(allow.backfill))


def _uses(namespace: str, job: DataFlowJob, dataset: str | None) -> bool:
    inputs = (input_key(namespace, written) for written in job.spec.inputs)
    return dataset in (*inputs, *(key_of(namespace, written) for written in job.spec.outputs))


def _depends(entry: Entry, namespace: str) -> bool:
    """Return whether a change in a namespace can make a refused resource valid: it is in it, or reads shared data."""
    inputs = entry.model.spec.inputs if isinstance(entry.model, DataFlowJob) else ()
    return entry.key.namespace == namespace or any(map(namespace_of, inputs))


def _reason(error: InvalidInput | Refused) -> Reason:
    return next(reason for kind, reason in _REASONS if isinstance(error, kind))
