"""What resources ask for once: the spec.resubmit of a DataFlowJob, and DataFlowActions.

Postgres remembers what was done, in the transaction that does it: after a crash anywhere the same call tells the answer
again. An action's status is written here, a job's where all statuses are (it tells of the remembered answer). Where
Postgres or the API server is away, what they raise goes to the caller, who comes again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from opendataflow.control.resources.catalog import Entry, Key
from opendataflow.core.text.verbs import VERB
from opendataflow.errors import ClusterRefused, UnknownThing
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.model.records.claim import Selection
from opendataflow.model.resources.actions import DataFlowAction, DataFlowActionSpec
from opendataflow.model.resources.jobs import DataFlowJob, Resubmit
from opendataflow.model.resources.statuses import ActionCounts, DataFlowActionStatus
from opendataflow.names import ANNOTATION_REQUESTED_BY, Refusal, TaskState
from opendataflow.store.requests import Remembered, Request, answer_once, delete_stale_answers
from opendataflow.store.store import Store

ACTIONS = custom("dataflowactions")
TARGET_SECONDS = 5.0
"""How long an action waits for its job or data set: they may come from the same `kubectl apply`."""
_LOOK_AGAIN_SECONDS = 0.5
_INVALID_TTL = timedelta(hours=168)
_PREFIX = "action "
_NOT_FOUND, _CONFLICT = 404, 409

logger = logging.getLogger(__name__)


class Requests:
    """Does what resources ask for. `look_again`: is told of an action that can't be done yet and has to come again."""

    def __init__(
        self,
        store: Store,
        api: Api,
        look_again: Callable[[Key], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._api = api
        self._look_again = look_again
        self._now = now

    async def handle_action(self, entry: Entry) -> None:
        """Do a DataFlowAction, and write its status. One that has been answered is left alone: what was done before
        stays done, also where the database is a new one."""
        if _finished(entry):
            return
        if not isinstance(entry.model, DataFlowAction):
            message = entry.fault.message if entry.fault else "it can't be read"
            await self._tell(entry, Remembered(0, 0, 0, message, self._now(), refusal=Refusal.INVALID))
            return
        now = self._now()
        young = now - datetime.fromisoformat(entry.created) < timedelta(seconds=TARGET_SECONDS)
        try:
            answer = await answer_once(self._store, _of_action(entry, entry.model.spec), now, target_may_come=young)
        except UnknownThing:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_SECONDS, self._look_again, entry.key)
            return
        await self._tell(entry, answer)

    async def handle_resubmit(self, entry: Entry) -> None:
        """Do the spec.resubmit of a job that the store has taken over; its status tells of the answer."""
        model = entry.model
        if not isinstance(model, DataFlowJob) or model.spec.resubmit is None:
            return
        answer = await answer_once(self._store, _of_resubmit(entry, model.id, model.spec.resubmit), self._now())
        logger.info("DataFlowJob %s: resubmit %s: %s", entry.key.owner, model.spec.resubmit.id, answer.message)

    async def forget(self, entry: Entry) -> None:
        """A DataFlowAction is gone: its uid never comes again."""
        await self._store.row("SELECT opendataflow.delete_answers(%s)", [_owner(entry)])

    async def clean(self, entries: Iterable[Entry]) -> None:
        """Delete the finished actions whose ttl is over, and forget the answers of those that went while nobody looked.

        `entries`: all there are. Call it now and then, such as once a minute.
        """
        actions = [entry for entry in entries if entry.key.kind == "DataFlowAction"]
        for entry in actions:
            if self._is_over(entry):
                await self._delete(entry)
        await delete_stale_answers(self._store, _PREFIX, [_owner(entry) for entry in actions], self._now())

    def _is_over(self, entry: Entry) -> bool:
        if not _finished(entry):
            return False
        finished = datetime.fromisoformat(entry.status.get("finishedAt") or entry.created)
        seconds = entry.model.spec.ttl_seconds if isinstance(entry.model, DataFlowAction) else None
        return self._now() >= finished + (_INVALID_TTL if seconds is None else timedelta(seconds=seconds))

    async def _delete(self, entry: Entry) -> None:
        try:
            await self._api.delete(ACTIONS, entry.key.namespace, entry.key.name, uid=entry.uid)
        except ClusterRefused as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                logger.warning("DataFlowAction %s can't be deleted, though its ttl is over: %s", entry.key.owner, error)

    async def _tell(self, entry: Entry, answer: Remembered) -> None:
        """Write the status of this very resource: an API server takes a status also where its uid is another one's."""
        told = False
        while not told:
            try:
                told = await self._told(entry, answer)
            except ClusterRefused as error:
                if error.code == _NOT_FOUND:
                    return
                if error.code != _CONFLICT:
                    raise
        logger.info("DataFlowAction %s: %s", entry.key.owner, answer.message)

    async def _told(self, entry: Entry, answer: Remembered) -> bool:
        namespace, name = entry.key.namespace, entry.key.name
        metadata = (await self._api.get(ACTIONS, namespace, name))["metadata"]
        if metadata["uid"] == entry.uid:
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": _status(answer)}
            await self._api.patch_merge(ACTIONS, namespace, name, patch, status=True)
        return True


def _finished(entry: Entry) -> bool:
    return entry.status.get("phase") in ("Done", "Refused")


def _owner(entry: Entry) -> str:
    return f"{_PREFIX}{entry.uid}"


def _of_action(entry: Entry, spec: DataFlowActionSpec) -> Request:
    target = spec.job or spec.dataset
    assert target is not None
    return Request(
        owner=_owner(entry),
        id=entry.uid,
        verb=VERB[spec.action],
        target=target,
        chosen=_chosen(spec),
        actor=_actor(entry),
        namespace=entry.key.namespace,
        of_chunks=spec.job is None,
        cascade=spec.cascade,
        reason=spec.reason,
    )


def _chosen(spec: DataFlowActionSpec) -> tuple[str, ...] | Selection:
    of_chunks = spec.job is None
    if spec.chunks is not None:
        return spec.chunks
    if spec.range is not None:
        return Selection(spec.range.start, spec.range.end, of_chunks=of_chunks)
    return Selection(states=(str(spec.status),), of_chunks=of_chunks)


def _of_resubmit(entry: Entry, job: str, asked: Resubmit) -> Request:
    failed = (TaskState.FAILED,) if asked.failed else ()
    return Request(
        owner=f"job {job}",
        id=asked.id,
        verb=VERB["resubmit"],
        target=job,
        chosen=asked.ids if asked.ids is not None else Selection(asked.start, asked.end, failed),
        actor=f"DataFlowJob {entry.key.owner}",
        namespace=entry.key.namespace,
        cascade=asked.cascade,
        reason=f"spec.resubmit {asked.id}",
    )


def _actor(entry: Entry) -> str:
    """Who has asked, as far as the resource tells. No resource has its user's name: the cluster's audit log has it."""
    said = entry.annotations.get(ANNOTATION_REQUESTED_BY, "")[:200]
    by = f" for {said}" if said else f" by {entry.creator}" if entry.creator else ""
    return f"DataFlowAction {entry.key.owner}{by}"


def _status(answer: Remembered) -> dict[str, Any]:
    return DataFlowActionStatus(
        phase="Done" if answer.refusal is None else "Refused",
        counts=ActionCounts(done=answer.done, unchanged=answer.unchanged, refused=answer.refused),
        message=answer.message,
        reason=answer.refusal,
        lines=answer.lines,
        finished_at=answer.finished_at,
    ).body()
