"""The two ways to hold the right to claim: an engine on one machine, and the operator that leads.

A local engine's lease ends with its process: others prove its runs dead and commit them as lost. An operator's runs
go on without it: whoever leads next has them as its own. It starts nothing and commits nothing but lost runs.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Mapping

from opendataflow.engine import limits
from opendataflow.engine.ports import LocalLauncher
from opendataflow.engine.takeover import Takeover
from opendataflow.errors import DataflowError, Deposed
from opendataflow.model.records.run import Host
from opendataflow.store.leader import acquire_leadership
from opendataflow.store.store import Store


class LocalTenure:
    """The right of one engine among any number; those that ended are looked after. `note`: tells a person."""

    exclusive = False

    def __init__(self, store: Store, launcher: LocalLauncher, note: Callable[[str], None]) -> None:
        self.lease = str(uuid.uuid4())
        self._store = store
        self._launcher = launcher
        self._takeover = Takeover(store, launcher, self.lease, note)
        self._until = 0.0

    @property
    def unproven(self) -> Mapping[int, str]:
        """Runs that have no engine any more and are not known to be dead, with their jobs."""
        return self._takeover.unproven

    async def begin(self) -> None:
        """Show that this engine lives, and open its lease."""
        await self._launcher.announce(self.lease)
        await self._open()

    def holds(self) -> bool:
        """Whether the lease holds by this process's own clock."""
        return time.monotonic() < self._until

    async def renew(self) -> None:
        """Renew the lease, or open it again where its row is gone."""
        before = time.monotonic()
        if await self._store.renew_lease(self.lease, limits.LEASE_SECONDS):
            self._until = before + limits.LEASE_SECONDS
        else:
            await self._open()

    async def take_over(self) -> set[str]:
        """Take over the runs of engines that have ended, where they can be proven dead."""
        return await self._takeover.look()

    async def end(self) -> None:
        """Close the lease and stop showing it."""
        await self._store.close_lease(self.lease)
        await self._launcher.depart(self.lease)

    async def _open(self) -> None:
        before = time.monotonic()
        await self._store.open_lease(
            self.lease, "local", self._launcher.host, self._launcher.runs_home, limits.LEASE_SECONDS
        )
        self._until = before + limits.LEASE_SECONDS


class Leadership:
    """The right of the one operator that leads. `host`: which process this is, for people. `leads`: is told the epoch
    when this process begins to lead; `answered`: hears each time whether Postgres says that it leads, which is asked
    every few seconds, by those that wait, too. `namespaces`: the only ones that it works in; none means all."""

    exclusive = True
    unproven: Mapping[int, str] = {}

    def __init__(
        self,
        store: Store,
        host: Host,
        leads: Callable[[int], None],
        answered: Callable[[bool], None] = lambda _: None,
        namespaces: Collection[str] = (),
    ) -> None:
        self.lease = str(uuid.uuid4())
        self._store = store
        self._namespaces = namespaces
        self._host = host
        self._leads = leads
        self._answered = answered
        self._until = 0.0

    async def begin(self) -> None:
        """Wait until no other operator leads; then all of its runs are this one's."""
        while True:
            try:
                epoch = await self._lead()
            except DataflowError as error:
                if not error.retryable:
                    raise
            else:
                if epoch is not None:
                    self._leads(epoch)
                    return
            await asyncio.sleep(limits.RENEW_SECONDS)

    def holds(self) -> bool:
        """Whether the lease holds by this process's own clock."""
        return time.monotonic() < self._until

    async def renew(self) -> None:
        """Renew the leadership; Deposed where another operator has it."""
        if await self._lead() is None:
            raise Deposed("another operator has taken over")

    async def take_over(self) -> set[str]:
        """Nothing: the runs of the operator before came with the leadership."""
        return set()

    async def end(self) -> None:
        """Let the next operator lead at once."""
        await self._store.close_lease(self.lease)

    async def _lead(self) -> int | None:
        before = time.monotonic()
        epoch = await acquire_leadership(self._store, self.lease, self._host, limits.LEASE_SECONDS, self._namespaces)
        self._answered(epoch is not None)
        if epoch is not None:
            self._until = before + limits.LEASE_SECONDS
            self._store.leader = self.lease
        return epoch
