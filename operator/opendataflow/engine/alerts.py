"""Tells people what begins to fail and what is well again, beside the engine and never in its way.

Postgres knows what is failing and what each target was told last; nothing is kept here. A message that could not be
delivered waits there, and what is well again meanwhile is not told. At least once: who crashes between the delivery and
its record leaves a message to be sent again.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from opendataflow.engine.ports import Target
from opendataflow.errors import DataflowError, NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.store.alerts import claim_alerts, record_alert, release_alerts
from opendataflow.store.store import Store

LOOK_SECONDS = 5.0
"""How often what is failing is looked for."""

PAUSE_SECONDS = 60.0
"""The least time between two messages about the same job and kind: what flaps is not told each time."""

AT_ONCE = 10
"""How many messages one engine takes on at a time."""

CLAIM_SECONDS = 120.0
"""How long it may take to deliver them before another engine does it: each has 10 s."""

LONGEST_WAIT = 300.0
"""The longest pause before a target is tried again that does not work."""

FINISH_SECONDS = 10.0
"""How long the end of the engine may be held up by what has still to be told."""


class Alerts:
    """One loop for each target, none of which can hold up another. `note`: tells the person at the engine."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[Target],
        note: Callable[[str], None],
        *,
        look: float = LOOK_SECONDS,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._targets = {_id(target): target for target in targets}
        self._note = note
        self._look = look
        self._pause = pause
        self._broken: set[str] = set()

    async def run(self) -> None:
        """Tell, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._serve(target), name=f"notifications {target}")

    async def finish(self) -> None:
        """Tell what there is to be told at the end of the engine, in a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await asyncio.gather(*map(self._tell_all, self._targets), return_exceptions=True)

    async def _serve(self, target: str) -> None:
        while True:
            async for trial in AsyncRetrying(
                retry=retry_if_exception_type(DataflowError), wait=wait_exponential(min=1, max=LONGEST_WAIT)
            ):
                with trial:
                    await self._tell_all(target)
            await asyncio.sleep(self._look)

    async def _tell_all(self, target: str) -> None:
        """Deliver what a target is to be told now; what could not be delivered waits in Postgres."""
        while alerts := await claim_alerts(self._store, target, AT_ONCE, self._pause, CLAIM_SECONDS):
            for place, alert in enumerate(alerts):
                try:
                    await self._deliver(target, alert)
                except NotDelivered:
                    await release_alerts(self._store, target, alerts[place:])
                    raise
                await record_alert(self._store, target, alert)

    async def _deliver(self, target: str, alert: Alert) -> None:
        """Deliver one message; one line at the engine when a target breaks, one when it works again."""
        name = self._targets[target].name
        try:
            await self._targets[target].deliver(alert)
        except Exception as error:  # whatever it is, work is not to be disturbed
            reason = str(error) if isinstance(error, NotDelivered) else type(error).__name__
            if target not in self._broken:
                self._broken.add(target)
                self._note(
                    f"{name}: a notification could not be sent: {reason}. It is tried again, with growing pauses"
                )
            raise NotDelivered(reason) from error
        if target in self._broken:
            self._broken.remove(target)
            self._note(f"{name}: notifications are sent again")


def _id(target: Target) -> str:
    """What Postgres remembers a target by: nothing that can be read or used."""
    kind = target.name.split()[0]
    return f"{kind} {hashlib.sha256(target.address.encode()).hexdigest()[:16]}"
