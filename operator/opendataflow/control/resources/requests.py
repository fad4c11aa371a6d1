"""Handles one-time requests: DataFlowActions, and spec.resubmit of DataFlowJobs.

Postgres records the answer in the transaction that does the work. So after a crash the same call returns the same
answer. This module writes the status of actions; the status writer writes the status of jobs, with the recorded answer.
If Postgres or the API server is unreachable, the error goes to the caller, which retries.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from opendataflow.control.resources.catalog import Entry, Key
from opendataflow.core.text.verbs import VERB
from opendataflow.errors import ClusterRefused, UnknownThing
from opendataflow.keys import key_of
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.model.records.claim import Selection
from opendataflow.model.resources.actions import DataFlowAction, DataFlowActionSpec
from opendataflow.model.resources.jobs import DataFlowJob, Resubmit
from opendataflow.model.resources.statuses import ActionCounts, DataFlowActionStatus
from opendataflow.names import ANNOTATION_REQUESTED_BY, Refusal, TaskState
from opendataflow.stdio import visible
from opendataflow.store.requests import (
    ACTION_PREFIX,
    RecordedAnswer,
    Request,
    answer_once,
    delete_stale_answers,
    owner_of_action,
)
from opendataflow.store.store import Store

ACTIONS = custom("dataflowactions")
TARGET_SECONDS = 5.0
"""How long an action waits for its job or data set: the same `kubectl apply` may create them later."""
_RETRY_SECONDS = 0.5
_INVALID_TTL = timedelta(hours=168)
_NOT_FOUND, _CONFLICT = 404, 409

logger = logging.getLogger(__name__)


class Requests:
    """Handles requests. `retry_later`: called with an action that can't be done yet and has to be handled again."""

    def __init__(
        self,
        store: Store,
        api: Api,
        retry_later: Callable[[Key], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._api = api
        self._retry_later = retry_later
        self._now = now

    async def handle_action(self, entry: Entry) -> None:
        """Do a DataFlowAction, and write its status. Ignore an action with an answer, even if the database is new."""
        if _finished(entry):
            return
        if not isinstance(entry.model, DataFlowAction):
            message = entry.fault.message if entry.fault else "it can't be read"
            await self._write_status(entry, RecordedAnswer(0, 0, 0, message, self._now(), refusal=Refusal.INVALID))
            return
        now = self._now()
        young = now - datetime.fromisoformat(entry.created) < timedelta(seconds=TARGET_SECONDS)
        try:
            answer = await answer_once(self._store, _of_action(entry, entry.model.spec), now, target_may_come=young)
        except UnknownThing:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._retry_later, entry.key)
            return
        await self._write_status(entry, answer)

    async def handle_resubmit(self, entry: Entry) -> None:
        """Do the spec.resubmit of a job that is declared in the store. The status of the job shows the answer."""
        model = entry.model
        if not isinstance(model, DataFlowJob) or model.spec.resubmit is None:
            return
        request = _of_resubmit(entry, key_of(entry.key.namespace, model.id), model.spec.resubmit)
        answer = await answer_once(self._store, request, self._now())
        logger.info("DataFlowJob %s: resubmit %s: %s", entry.key.owner, model.spec.resubmit.id, answer.message)

    async def report_failure(self, entry: Entry, message: str) -> None:
        """Write why an action has failed, which will be tried again. If that fails, too, only the log shows it."""
        if _finished(entry):
            return
        try:
            await self._write(entry, DataFlowActionStatus(phase="Pending", message=message))
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            logger.warning("the status of DataFlowAction %s was not written: %r", entry.key.owner, error)

    async def forget(self, entry: Entry) -> None:
        """Delete the recorded answer of a deleted DataFlowAction. Its uid is never used again."""
        await self._store.row("SELECT opendataflow.delete_answers(%s)", [_owner(entry)])

    async def clean(self, entries: Iterable[Entry]) -> None:
        """Delete finished actions whose ttl is over, and the recorded answers of actions that do not exist any more.

        `entries`: all resources. Call it regularly, such as once a minute.
        """
        actions = [entry for entry in entries if entry.key.kind == "DataFlowAction"]
        for entry in actions:
            try:
                if self._is_over(entry):
                    await self._delete(entry)
            except (ValueError, OverflowError) as error:
                logger.warning("the ttl of DataFlowAction %s is not known: %s", entry.key.owner, error)
        await delete_stale_answers(self._store, ACTION_PREFIX, [_owner(entry) for entry in actions], self._now())

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

    async def _write_status(self, entry: Entry, answer: RecordedAnswer) -> None:
        await self._write(entry, _status(answer))
        logger.info("DataFlowAction %s: %s", entry.key.owner, answer.message)

    async def _write(self, entry: Entry, status: DataFlowActionStatus) -> None:
        """Write the status of an action, unless it was replaced: the API server does not check the uid of a status."""
        written = False
        while not written:
            try:
                written = await self._try_to_write(entry, status)
            except ClusterRefused as error:
                if error.code == _NOT_FOUND:
                    return
                if error.code != _CONFLICT:
                    raise

    async def _try_to_write(self, entry: Entry, status: DataFlowActionStatus) -> bool:
        namespace, name = entry.key.namespace, entry.key.name
        metadata = (await self._api.get(ACTIONS, namespace, name))["metadata"]
        if metadata["uid"] == entry.uid:
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status.body()}
            await self._api.patch_merge(ACTIONS, namespace, name, patch, status=True)
        return True


def _finished(entry: Entry) -> bool:
    return entry.status.get("phase") in ("Done", "Refused")


def _owner(entry: Entry) -> str:
    return owner_of_action(entry.uid)


def _of_action(entry: Entry, spec: DataFlowActionSpec) -> Request:
    target = spec.job or spec.dataset
    assert target is not None
    namespace = entry.key.namespace
    return Request(
        owner=_owner(entry),
        id=entry.uid,
        verb=VERB[spec.action],
        target=key_of(namespace, target),
        chosen=_chosen(spec),
        actor=_actor(entry),
        namespace=namespace,
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
    if spec.stale:
        return Selection(of_chunks=of_chunks, stale=True)
    return Selection(states=(str(spec.status),), of_chunks=of_chunks)


def _of_resubmit(entry: Entry, job: str, asked: Resubmit) -> Request:
    """Return the request of a spec. `job`: its key."""
    failed = (TaskState.FAILED,) if asked.failed else ()
    return Request(
        owner=f"job {job}",
        id=asked.id,
        verb=VERB["resubmit"],
        target=job,
        chosen=asked.ids if asked.ids is not None else Selection(asked.start, asked.end, failed, stale=asked.stale),
        actor=f"DataFlowJob {entry.key.owner}",
        namespace=entry.key.namespace,
        cascade=asked.cascade,
        reason=f"spec.resubmit {asked.id}",
    )


def _actor(entry: Entry) -> str:
    """Return the actor for the history. A resource does not contain its user; the audit log of the cluster does."""
    person = " ".join(visible(entry.annotations.get(ANNOTATION_REQUESTED_BY, "")[:200]).split())
    by = f" for {person}" if person else f" by {entry.creator}" if entry.creator else ""
    return f"DataFlowAction {entry.key.owner}{by}"


def _status(answer: RecordedAnswer) -> DataFlowActionStatus:
    return DataFlowActionStatus(
        phase="Done" if answer.refusal is None else "Refused",
        counts=ActionCounts(done=answer.done, unchanged=answer.unchanged, refused=answer.refused),
        message=answer.message,
        reason=answer.refusal,
        lines=answer.lines,
        finished_at=answer.finished_at,
    )
