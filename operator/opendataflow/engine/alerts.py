"""Sends notifications about failures and recoveries. Runs beside the engine and never delays it.

Postgres records the failures, and the last message that each target received. This module keeps no state. An
undelivered message waits in Postgres; if the failure is over meanwhile, the message is dropped. Delivery is at least
once: after a crash between a delivery and its record, the message is sent again.
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

POLL_SECONDS = 5.0
"""The interval between two queries for failures."""

PAUSE_SECONDS = 60.0
"""The minimum time between two messages about the same job and kind, so that a flapping job sends few messages."""

BATCH_SIZE = 10
"""How many messages one engine claims at a time."""

CLAIM_SECONDS = 120.0
"""How long one engine may take to deliver a batch before another engine delivers it: 10 s for each message."""

LONGEST_BACKOFF_SECONDS = 300.0
"""The longest pause before a failing target is tried again."""

FINISH_SECONDS = 10.0
"""How long undelivered messages may delay the end of the engine."""


class Alerts:
    """Runs one loop for each target, so that no target delays another. `note`: prints a line for the user."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[Target],
        note: Callable[[str], None],
        *,
        poll_seconds: float = POLL_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._store = store
        self._targets = {_target_id(target): target for target in targets}
        self._note = note
        self._poll_seconds = poll_seconds
        self._pause_seconds = pause_seconds
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._serve(target), name=f"notifications {target}")

    async def finish(self) -> None:
        """Deliver the last messages at the end of the engine, for at most `FINISH_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await asyncio.gather(*map(self._deliver_all, self._targets), return_exceptions=True)

    async def _serve(self, target: str) -> None:
        while True:
            async for trial in AsyncRetrying(
                retry=retry_if_exception_type(DataflowError), wait=wait_exponential(min=1, max=LONGEST_BACKOFF_SECONDS)
            ):
                with trial:
                    await self._deliver_all(target)
            await asyncio.sleep(self._poll_seconds)

    async def _deliver_all(self, target: str) -> None:
        """Deliver all due messages to a target. Undelivered messages wait in Postgres."""
        while alerts := await claim_alerts(self._store, target, BATCH_SIZE, self._pause_seconds, CLAIM_SECONDS):
            for place, alert in enumerate(alerts):
                try:
                    await self._deliver(target, alert)
                except NotDelivered:
                    await release_alerts(self._store, target, alerts[place:])
                    raise
                await record_alert(self._store, target, alert)

    async def _deliver(self, target: str, alert: Alert) -> None:
        """Deliver one message. Print one line when a target starts to fail, and one when it works again."""
        name = self._targets[target].name
        try:
            await self._targets[target].deliver(alert)
        except Exception as error:  # no error of a target may stop the engine
            reason = str(error) if isinstance(error, NotDelivered) else type(error).__name__
            if target not in self._failing:
                self._failing.add(target)
                self._note(
                    f"{name}: a notification could not be sent: {reason}. It is tried again, with growing pauses"
                )
            raise NotDelivered(reason) from error
        if target in self._failing:
            self._failing.remove(target)
            self._note(f"{name}: notifications are sent again")


def _target_id(target: Target) -> str:
    """Return the key of a target in Postgres. It is a hash, because the address may hold a token."""
    kind = target.name.split()[0]
    return f"{kind} {hashlib.sha256(target.address.encode()).hexdigest()[:16]}"
