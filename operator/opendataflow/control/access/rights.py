"""Knows where this operator may do what, and says what is missing: in the log, at /readyz and in a figure.

Where the rights to see resources are missing nothing is looked at, and what was taken over from there stays as it is;
where those to run pods are, no run starts. The other namespaces go on. It looks again and again, so that rights which
are given count within seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Protocol

from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.monitoring.metrics import Figures
from opendataflow.control.monitoring.probes import Health
from opendataflow.core.kubernetes.rights import RIGHTS, For, Right, missing_sentence, worst
from opendataflow.errors import ClusterUnreachable
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.rights import missing_rights

LOOK_SECONDS = 60.0
AGAIN_SECONDS = 5.0
"""How often rights are looked at of which some are missing."""

logger = logging.getLogger(__name__)


class Runs(Protocol):
    """Who starts runs in namespaces."""

    def open(self, namespace: str | None) -> None:
        """There are rights in a namespace, None for all."""

    def shut(self, namespace: str | None, why: str) -> None:
        """There are none."""


class Rights:
    """The rights in some namespaces; none means all. `changed`: is told when something else may be seen than before;
    `moved` is set then, too."""

    def __init__(
        self,
        api: Api,
        namespaces: Collection[str],
        runs: Runs,
        changed: Callable[[], None],
        figures: Figures,
        health: Health,
    ) -> None:
        self._api = api
        self._where: tuple[str | None, ...] = tuple(sorted(namespaces)) or (None,)
        self._runs = runs
        self._changed = changed
        self.moved = asyncio.Event()
        self._figures = figures
        self._health = health
        self._missing: dict[str | None, list[Right]] = {}
        self._sparing = Sparing(logger)

    def visible(self) -> Collection[str] | None:
        """The namespaces whose resources may be seen; empty for all, None for nothing at all."""
        seen = [where for where in self._where if self._sees(where)]
        return [where for where in seen if where is not None] if seen else None

    def hides(self, namespace: str) -> bool:
        """Whether the resources of a namespace may be there and not be seen. Outside of a list all are hidden."""
        where = None if self._where == (None,) else namespace
        return where not in self._where or not self._sees(where)

    async def look(self) -> None:
        """Find out what is missing where. ClusterUnreachable where there is no answer."""
        for where in self._where:
            self._take(where, await missing_rights(self._api, where, RIGHTS))
        blind = all(self._missing[where] and worst(self._missing[where]) is not For.COMFORT for where in self._where)
        for where, missing in self._missing.items():
            sentence = missing_sentence(where, missing) if missing else None
            self._health.say(f"rights {where}", sentence, blocks=blind)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS if any(self._missing.values()) else LOOK_SECONDS)
            with suppress(ClusterUnreachable):
                await self.look()

    def _sees(self, where: str | None) -> bool:
        return all(right.needed_for is not For.SIGHT for right in self._missing.get(where, ()))

    def _take(self, where: str | None, missing: list[Right]) -> None:
        before, saw = self._missing.get(where), self._sees(where)
        self._missing[where] = missing
        self._figures.rights(where or "", missing=bool(missing))
        if missing:
            self._sparing.warn(missing_sentence(where, missing))
        elif before:
            logger.info("this operator has all its rights in %s now", where or "all namespaces")
        lacks = [right for right in missing if right.needed_for is not For.COMFORT]
        if lacks:
            self._runs.shut(where, missing_sentence(where, lacks))
        else:
            self._runs.open(where)
        if self._sees(where) != saw:
            self.moved.set()
            self._changed()
