"""Writes Kubernetes Events about custom resources: `kubectl describe` shows them beside the resource.

The first Event of its kind is written at once. Repeats within five minutes are counted in the same Event (a series),
which is written at most every 30 seconds and keeps its first text. `record` never blocks and never raises. If the API
server does not answer, the write is retried. Refused and excess Events are dropped and logged. This module does not
decide which events to record (core/status/status_events.py does).
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from opendataflow.control.resources.catalog import Key
from opendataflow.core.status.conditions import truncated
from opendataflow.core.status.status_events import StatusEvent
from opendataflow.errors import ClusterRefused, DataflowError
from opendataflow.launch.cluster.api import EVENTS, Api
from opendataflow.names import API_VERSION

SERIES_SECONDS = 300.0
"""The longest pause between two repeats of a series. After a longer pause a new Event is created."""
COUNT_SECONDS = 30.0
"""The minimum time between two writes of one Event."""
RETRY_SECONDS = 5.0
"""The pause before a failed write is retried."""
MAX_SERIES = 1000
"""The maximum number of series in memory. The series without a repeat for the longest time is dropped first."""
MAX_WAITING = 500
"""The maximum number of Events that wait for a write. Further ones are dropped."""
NOTE_BYTES = 1000
CONTROLLER = "opendataflow.io/operator"

logger = logging.getLogger(__name__)


_Which = tuple[str, str, str]


@dataclass
class _Series:
    """An event and its repeats. `name`: the name of its Event. `created`: the Event exists in the cluster. `write_at`:
    when the next write is allowed."""

    key: Key
    uid: str
    event: StatusEvent
    seen_at: float
    name: str
    created: bool = False
    count: int = 1
    write_at: float = 0.0


class EventWriter:
    """Writes Events. `instance`: the name of this process, such as the name of its pod."""

    def __init__(self, api: Api, instance: str, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._series: OrderedDict[_Which, _Series] = OrderedDict()
        self._waiting: set[_Which] = set()
        self._woken = asyncio.Event()
        self._dropped = 0

    def record(self, key: Key, uid: str, event: StatusEvent) -> None:
        """Queue an event about a resource. Never blocks and never raises."""
        now = self._clock()
        # A Normal event with another text gets an Event of its own, because an Event keeps its first text.
        which = (uid, event.reason, event.message if event.type == "Normal" else "")
        series = self._series.pop(which, None)
        if series is not None and now - series.seen_at <= SERIES_SECONDS:
            series.count += 1
            series.seen_at, series.event = now, event
        else:
            series = _Series(key, uid, event, now, _new_name(key))
        self._series[which] = series
        if len(self._series) > MAX_SERIES:
            oldest, _ = self._series.popitem(last=False)
            self._dropped += oldest in self._waiting
            self._waiting.discard(oldest)
        if len(self._waiting) < MAX_WAITING or which in self._waiting:
            self._waiting.add(which)
            self._woken.set()
        else:
            self._dropped += 1

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            now = self._clock()
            for which in [which for which in self._waiting if self._series[which].write_at <= now]:
                if which in self._waiting:  # it may have been dropped meanwhile
                    self._waiting.remove(which)
                    await self._write(which, self._series[which])
            if self._dropped:
                logger.warning("%d events were dropped: too many at a time", self._dropped)
                self._dropped = 0
            await self._sleep()

    async def _sleep(self) -> None:
        self._woken.clear()
        soonest = min((self._series[which].write_at for which in self._waiting), default=None)
        pause = None if soonest is None else max(0.05, soonest - self._clock())
        try:
            async with asyncio.timeout(pause):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _write(self, which: _Which, series: _Series) -> None:
        """Create the Event of a series, or update its count."""
        series.write_at = self._clock() + COUNT_SECONDS
        try:
            if series.created and not await self._update_count(series):
                # The API server deletes Events after an hour.
                series.name, series.created = _new_name(series.key), False
            if not series.created:
                await self._create(series)
        except DataflowError as error:
            if error.retryable and self._series.get(which) is series:
                series.write_at = self._clock() + RETRY_SECONDS
                self._waiting.add(which)
                logger.debug("event %s of %s waits: %s", series.event.reason, series.key.owner, error)
            else:
                logger.info("event %s of %s was not recorded: %s", series.event.reason, series.key.owner, error)
        except ValueError as error:  # a value that an Event can't have
            logger.warning("event %s of %s was not recorded: %r", series.event.reason, series.key.owner, error)

    async def _create(self, series: _Series) -> None:
        try:
            await self._api.create(EVENTS, series.key.namespace, self._event(series))
        except ClusterRefused:  # it exists: only the answer was lost
            await self._update_count(series)
        series.created = True

    async def _update_count(self, series: _Series) -> bool:
        """Update the count of an Event. Return False if the Event does not exist any more."""
        if series.count == 1:
            return True
        patch = {"series": self._series_of(series)}  # no other field of an Event can be changed
        try:
            await self._api.patch_merge(EVENTS, series.key.namespace, series.name, patch)
        except ClusterRefused as error:
            if error.code != 404:
                raise
            return False
        return True

    def _event(self, series: _Series) -> dict[str, Any]:
        key = series.key
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": key.namespace},
            "eventTime": _micro_time(series.seen_at),
            "type": series.event.type,
            "reason": series.event.reason,
            "note": _note(series.event),
            "action": series.event.reason,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance[:128],
            "regarding": regarding(key, series.uid),
        }
        if series.count > 1:
            body["series"] = self._series_of(series)
        return body

    def _series_of(self, series: _Series) -> dict[str, Any]:
        return {"count": max(series.count, 2), "lastObservedTime": _micro_time(series.seen_at)}


def regarding(key: Key, uid: str) -> Mapping[str, str]:
    """Return the reference to the resource of an Event."""
    version = "v1" if key.kind == "Pod" else API_VERSION
    return {"apiVersion": version, "kind": key.kind, "namespace": key.namespace, "name": key.name, "uid": uid}


def _new_name(key: Key) -> str:
    return f"{key.name[:200]}.{secrets.token_hex(8)}"


def _note(event: StatusEvent) -> str:
    return truncated(event.message, NOTE_BYTES)


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
