"""Follows all objects of a kind: a list, then a watch from there, for ever and through whatever breaks.

    list in pages -> SYNCED -> watch -> ended by the API: watch on from the last version, at once
                               ^    -> connection broken, 5xx, 429: the same, after a pause that grows
                               |    -> version too old (410): list anew
                               '--------'

Objects are projected as they come and never kept. It says once that the API is away, and once that it is back.
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
from opendataflow.launch.cluster.answers import expired, refusal
from opendataflow.launch.cluster.api import Api, Resource

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
WATCH_SECONDS = 300
"""How long one watch lasts; with up to a half more, so that those of many programs do not end together."""
SHORTEST_WATCH = 1.0
"""Seconds; a watch that is ended earlier is not begun again without a pause."""

T = TypeVar("T")


class Happening(StrEnum):
    """What became of an object. LISTING: a list begins; LISTED: one of its objects; SYNCED: that was all."""

    LISTING = "LISTING"
    LISTED = "LISTED"
    SYNCED = "SYNCED"
    CHANGED = "CHANGED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Change(Generic[T]):
    """`what`: the object's projection, None for LISTING and SYNCED."""

    happening: Happening
    what: T | None = None


class _Expired(Exception):
    """The watch can't go on from its version."""


class Follower(Generic[T]):
    """Follows the objects of a kind in a namespace, or in all, that a label selector finds.

    `project`: makes what is handed on of an object; it must not fail. `note`: tells a person.
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
        self._away = False

    async def changes(self) -> AsyncGenerator[Change[T], None]:
        """Yield changes without an end. ClusterRefused where the API will never allow it (no such kind)."""
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
                # 403 and 404: rights and kinds come and go while a chart is installed.
                await self._pause(error)

    async def _list(self) -> AsyncGenerator[Change[T], None]:
        yield Change(Happening.LISTING)
        version = ""
        async for items, version in self._api.pages(self._resource, self._namespace, selector=self._selector):  # noqa: B007
            self._answered()
            for item in items:
                yield Change(Happening.LISTED, self._project(item))
        self._version = version
        yield Change(Happening.SYNCED)

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
                self._answered()
                self._version = (found.get("metadata") or {}).get("resourceVersion") or self._version
                if kind != "BOOKMARK":
                    deleted = kind == "DELETED"
                    yield Change(Happening.DELETED if deleted else Happening.CHANGED, self._project(found))
        if time.monotonic() - begun < SHORTEST_WATCH:
            raise ClusterUnreachable(f"watch {self._resource.plural}: the Kubernetes API ends it at once")

    def _error(self, status: dict[str, Any]) -> Exception:
        code = status.get("code")
        code = code if isinstance(code, int) else 500
        return _Expired() if expired(code, status) else refusal(f"watch {self._resource.plural}", code, status)

    def _answered(self) -> None:
        self._failures = 0
        if self._away:
            self._away = False
            self._note("The Kubernetes API answers again.")

    async def _pause(self, error: DataflowError) -> None:
        """Wait longer after each failure, and by chance: not everybody comes back at the same moment."""
        self._failures += 1
        # A connection that broke once is everyday life.
        if self._failures > 2 and not self._away:
            self._away = True
            self._note(f"{error}. Pods go on; their ends are seen when it answers.")
        pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 16), LONGEST_PAUSE)
        if isinstance(error, ClusterUnreachable) and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
