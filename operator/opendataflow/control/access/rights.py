"""Checks the rights of this operator by namespace, and reports missing rights: in the log, at /readyz and as a metric.

Without the rights to read resources, a namespace is not watched, and its declared jobs and data sets stay unchanged.
Without the rights to run pods, no run starts there. Other namespaces go on. The checks are repeated, so that granted
rights take effect within seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from opendataflow.control.monitoring.logs import RateLimitedLogger
from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.control.monitoring.probes import Health
from opendataflow.core.kubernetes.rights import RIGHTS, Purpose, Right, missing_sentence, most_important
from opendataflow.errors import ClusterUnreachable
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.rights import missing_rights

CHECK_SECONDS = 60.0
CHECK_MISSING_SECONDS = 5.0
"""The interval while rights are missing."""

logger = logging.getLogger(__name__)


class Runs(Protocol):
    """Starts runs in namespaces."""

    def open_namespace(self, namespace: str | None) -> None:
        """Allow starts in a namespace (None: in all)."""

    def close_namespace(self, namespace: str | None, why: str) -> None:
        """Start no run in a namespace (None: in any), because rights are missing."""


class Rights:
    """The rights in some namespaces (empty: all).

    `changed`: called when the visible namespaces have changed; the event `visibility_changed` is set then, too.
    """

    def __init__(
        self,
        api: Api,
        namespaces: Collection[str],
        runs: Runs,
        changed: Callable[[], None],
        metrics: Metrics,
        health: Health,
    ) -> None:
        self._api = api
        self._managed: tuple[str | None, ...] = tuple(sorted(namespaces)) or (None,)
        self._runs = runs
        self._changed = changed
        self.visibility_changed = asyncio.Event()
        self._metrics = metrics
        self._health = health
        self._missing: dict[str | None, list[Right]] = {}
        self._limited_logger = RateLimitedLogger(logger)

    def visible_namespaces(self) -> Collection[str] | None:
        """Return the namespaces whose resources may be read: empty means all, None means none."""
        seen = [where for where in self._managed if self._sees(where)]
        return [where for where in seen if where is not None] if seen else None

    def hides(self, namespace: str) -> bool:
        """Return whether a namespace may have resources that this operator can't read, or does not manage."""
        where = None if self._managed == (None,) else namespace
        return where not in self._managed or not self._sees(where)

    async def check(self) -> None:
        """Check the rights in all namespaces, and report missing ones. Raises ClusterUnreachable."""
        for where in self._managed:
            self._apply(where, await missing_rights(self._api, where, RIGHTS))
        blind = all(
            self._missing[where] and most_important(self._missing[where]) is not Purpose.OPTIONAL
            for where in self._managed
        )
        for where, missing in self._missing.items():
            sentence = missing_sentence(where, missing) if missing else None
            self._health.report(f"rights {where}", sentence, blocks=blind)

    async def run(self) -> None:
        """Repeat the check until cancelled."""
        while True:
            await asyncio.sleep(CHECK_MISSING_SECONDS if any(self._missing.values()) else CHECK_SECONDS)
            with suppress(ClusterUnreachable):
                await self.check()

    def _sees(self, where: str | None) -> bool:
        return all(right.needed_for is not Purpose.RESOURCES for right in self._missing.get(where, ()))

    def _apply(self, where: str | None, missing: list[Right]) -> None:
        before, saw = self._missing.get(where), self._sees(where)
        self._missing[where] = missing
        self._metrics.rights(where or "", missing=bool(missing))
        if missing:
            self._limited_logger.warn(missing_sentence(where, missing))
        elif before:
            logger.info("this operator has all its rights in %s now", where or "all namespaces")
        lacks = [right for right in missing if right.needed_for is not Purpose.OPTIONAL]
        if lacks:
            self._runs.close_namespace(where, missing_sentence(where, lacks))
        else:
            self._runs.open_namespace(where)
        if self._sees(where) != saw:
            self.visibility_changed.set()
            self._changed()
