"""Tells people what has happened, as Events of Kubernetes: `kubectl describe` shows them beside the resource.

The first of its kind is told at once; repeats within five minutes are counted in the same Event (a series), which is
written at most every half minute and keeps the words of the first. Whoever tells never waits and never gets an error:
where the API server does not answer it is asked again, what it refuses or is too much is dropped, and the log says so.
It does not decide what is worth telling (core/status/status_events.py).
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
from opendataflow.core.status.conditions import fitting
from opendataflow.core.status.status_events import Happening
from opendataflow.errors import ClusterRefused, DataflowError
from opendataflow.launch.cluster.api import EVENTS, Api
from opendataflow.names import API_VERSION

SERIES_SECONDS = 300.0
"""A repeat after a longer pause is a new Event."""
COUNT_SECONDS = 30.0
"""At least this long between two writes of one Event."""
AGAIN_SECONDS = 5.0
"""The pause before an Event is written again that the API server has not answered."""
MOST = 1000
"""Objects and reasons that are remembered for their repeats; the one that was told longest ago is forgotten first."""
MOST_WAITING = 500
"""Events that may wait to be written; more are dropped."""
NOTE_BYTES = 1000
CONTROLLER = "opendataflow.io/operator"

logger = logging.getLogger(__name__)


_Which = tuple[str, str, str]


@dataclass
class _Series:
    """Repeats of one happening. `name`: of its Event, `created` once that is there. `write_at`: when it may be written
    again."""

    key: Key
    uid: str
    happening: Happening
    seen_at: float
    name: str
    created: bool = False
    count: int = 1
    write_at: float = 0.0


class Reporter:
    """Writes Events. `instance`: which process this is, such as the pod's name."""

    def __init__(self, api: Api, instance: str, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._series: OrderedDict[_Which, _Series] = OrderedDict()
        self._waiting: set[_Which] = set()
        self._woken = asyncio.Event()
        self._dropped = 0

    def tell(self, key: Key, uid: str, happening: Happening) -> None:
        """Tell one thing about a resource. Returns at once and never raises."""
        now = self._clock()
        # What a person has done is told each time: an Event keeps the words that it was made with.
        which = (uid, happening.reason, happening.message if happening.type == "Normal" else "")
        series = self._series.pop(which, None)
        if series is not None and now - series.seen_at <= SERIES_SECONDS:
            series.count += 1
            series.seen_at, series.happening = now, happening
        else:
            series = _Series(key, uid, happening, now, _new_name(key))
        self._series[which] = series
        if len(self._series) > MOST:
            oldest, _ = self._series.popitem(last=False)
            self._dropped += oldest in self._waiting
            self._waiting.discard(oldest)
        if len(self._waiting) < MOST_WAITING or which in self._waiting:
            self._waiting.add(which)
            self._woken.set()
        else:
            self._dropped += 1

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            now = self._clock()
            for which in [which for which in self._waiting if self._series[which].write_at <= now]:
                if which in self._waiting:  # nor forgotten meanwhile
                    self._waiting.remove(which)
                    await self._write(which, self._series[which])
            if self._dropped:
                logger.warning("%d events were not told: too many at a time", self._dropped)
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
        """Create the Event, or write how often it has happened."""
        series.write_at = self._clock() + COUNT_SECONDS
        try:
            if series.created and not await self._counted(series):
                series.name, series.created = _new_name(series.key), False  # they are forgotten after an hour
            if not series.created:
                await self._create(series)
        except DataflowError as error:
            if error.retryable and self._series.get(which) is series:
                series.write_at = self._clock() + AGAIN_SECONDS
                self._waiting.add(which)
                logger.debug("event %s of %s waits: %s", series.happening.reason, series.key.owner, error)
            else:
                logger.info("event %s of %s was not told: %s", series.happening.reason, series.key.owner, error)

    async def _create(self, series: _Series) -> None:
        try:
            await self._api.create(EVENTS, series.key.namespace, self._event(series))
        except ClusterRefused:  # it is there: only the answer was lost
            await self._counted(series)
        series.created = True

    async def _counted(self, series: _Series) -> bool:
        """Write how often it has happened; False: there is no such Event any more."""
        if series.count == 1:
            return True
        patch = {"series": self._series_of(series)}  # all else of an Event can't be changed
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
            "type": series.happening.type,
            "reason": series.happening.reason,
            "note": _note(series.happening),
            "action": series.happening.reason,
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
    """What an Event is about, as Kubernetes refers to objects."""
    version = "v1" if key.kind == "Pod" else API_VERSION
    return {"apiVersion": version, "kind": key.kind, "namespace": key.namespace, "name": key.name, "uid": uid}


def _new_name(key: Key) -> str:
    return f"{key.name[:200]}.{secrets.token_hex(8)}"


def _note(happening: Happening) -> str:
    return fitting(happening.message, NOTE_BYTES)


def _micro_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
