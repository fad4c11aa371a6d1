"""Follows all objects of a kind: a list, then a watch from its version, without end and through all errors.

    list in pages -> SYNCED -> watch -> ended by the API: watch again from the last version, at once
                               ^    -> connection broken, 5xx, 429: the same, after a growing pause
                               |    -> version too old (410): list again
                               '--------'

Objects are projected as they arrive and are not kept. One message reports that the API is unreachable, and one that it
answers again.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from opendataflow.errors import ClusterRefused, ClusterUnreachable, DataflowError
from opendataflow.launch.cluster.answers import error_of, is_expired
from opendataflow.launch.cluster.api import Api, Resource

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
WATCH_SECONDS = 300
"""How long one watch lasts, plus up to a half at random, so that the watches of many programs do not end together."""
SHORTEST_WATCH = 1.0
"""Seconds. If a watch ends earlier, the next one starts after a pause."""

T = TypeVar("T")


class ChangeKind(StrEnum):
    """The kind of a change. LISTING: a list begins. LISTED: one of its objects. SYNCED: the list is complete."""

    LISTING = "LISTING"
    LISTED = "LISTED"
    SYNCED = "SYNCED"
    CHANGED = "CHANGED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Change(Generic[T]):
    """One change. `object`: the projected object; None for LISTING and SYNCED."""

    kind: ChangeKind
    object: T | None = None


class _Expired(Exception):
    """Raised if a watch can't continue from its version."""


class Follower(Generic[T]):
    """Follows the objects of a kind that match a label selector, in a namespace (None: in all).

    `project`: extracts the facts from an object; it must not raise. `note`: shows a message to people.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        project: Callable[[dict[str, Any]], T],
        *,
        note: Callable[[str], None],
        namespace: str | None = None,
        selector: str = "",
    ) -> None:
        self._api = api
        self._resource = resource
        self._project = project
        self._note = note
        self._namespace = namespace
        self._selector = selector
        self._version: str | None = None
        self._failures = 0
        self._unreachable = False

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """Yield changes without end. Raises ClusterRefused if a retry can't help."""
        while True:
            try:
                async with aclosing(self._list() if self._version is None else self._watch(self._version)) as changes:
                    async for change in changes:
                        yield change
            except _Expired:
                self._version = None
            except ClusterUnreachable as error:
                await self._pause(error)
            except ClusterRefused as error:
                if error.code == 410:
                    self._version = None
                elif error.code not in (403, 404, 409):
                    raise
                # 403 and 404: the chart that brings the rights and kinds may be installed later.
                await self._pause(error)

    async def _list(self) -> AsyncGenerator[Change[T], None]:
        yield Change(ChangeKind.LISTING)
        version = ""
        async for items, version in self._api.pages(self._resource, self._namespace, selector=self._selector):  # noqa: B007
            self._record_answer()
            for item in items:
                yield Change(ChangeKind.LISTED, self._project(item))
        self._version = version
        yield Change(ChangeKind.SYNCED)

    async def _watch(self, version: str) -> AsyncGenerator[Change[T], None]:
        seconds = random.randint(WATCH_SECONDS, WATCH_SECONDS * 3 // 2)
        events = self._api.watch(
            self._resource, self._namespace, selector=self._selector, version=version, seconds=seconds
        )
        begun = time.monotonic()
        async with aclosing(events):
            async for event in events:
                kind, found = event.get("type"), event.get("object")
                if kind == "ERROR" or not isinstance(found, dict):
                    raise self._error(found if isinstance(found, dict) else {})
                self._record_answer()
                self._version = (found.get("metadata") or {}).get("resourceVersion") or self._version
                if kind != "BOOKMARK":
                    deleted = kind == "DELETED"
                    yield Change(ChangeKind.DELETED if deleted else ChangeKind.CHANGED, self._project(found))
        if time.monotonic() - begun < SHORTEST_WATCH:
            raise ClusterUnreachable(f"watch {self._resource.plural}: the Kubernetes API ends it at once")

    def _error(self, status: dict[str, Any]) -> Exception:
        code = status.get("code")
        code = code if isinstance(code, int) else 500
        return _Expired() if is_expired(code, status) else error_of(f"watch {self._resource.plural}", code, status)

    def _record_answer(self) -> None:
        self._failures = 0
        if self._unreachable:
            self._unreachable = False
            self._note("The Kubernetes API answers again.")

    async def _pause(self, error: DataflowError) -> None:
        """Wait longer after each failure. The pause is partly random, so that clients do not return together."""
        self._failures += 1
        # One broken connection is normal and not reported.
        if self._failures > 2 and not self._unreachable:
            self._unreachable = True
            self._note(f"{error}. Pods go on; their ends are seen when it answers.")
        pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE)
        if isinstance(error, ClusterUnreachable) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
