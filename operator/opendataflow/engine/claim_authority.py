"""The right to claim, in two forms: the lease of a local engine, and the leadership of an operator.

The lease of a local engine ends with its process: other engines prove its runs dead and commit them as lost. The runs
of an operator go on without it: the next leader adopts them. This module starts no run, and commits lost runs only.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from opendataflow.engine import limits
from opendataflow.engine.ports import LocalLauncher
from opendataflow.engine.takeover import Takeover
from opendataflow.errors import CutOff, DataflowError, LeadershipLost
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.leader import NOTHING_SEEN, Home
from opendataflow.model.records.run import Host
from opendataflow.store.leader import acquire_leadership, resign
from opendataflow.store.store import Store


class LocalClaimAuthority:
    """The lease of one local engine. Takes over the runs of engines that have ended.

    `note`: prints a line. `slots`: how many runs of `jobs` together the engine starts at most, for `dataflow status`.
    """

    exclusive = False

    def __init__(
        self,
        store: Store,
        launcher: LocalLauncher,
        note: Callable[[str], None],
        slots: int | None = None,
        jobs: Collection[str] = (),
    ) -> None:
        self.lease = str(uuid.uuid4())
        self._slots, self._jobs = slots, jobs
        self._store = store
        self._launcher = launcher
        self._takeover = Takeover(store, launcher, self.lease, note)
        self._until = 0.0
        self._newest: ClaimedRun | None = None

    @property
    def unproven(self) -> Mapping[int, str]:
        """Return the runs, with their jobs, whose engine has ended and that are not proven dead."""
        return self._takeover.unproven

    async def begin(self) -> None:
        """Lock the presence file of this engine, and open its lease."""
        await self._launcher.announce(self.lease)
        await self._open()

    def holds(self) -> bool:
        """Return whether the lease is valid by the clock of this process."""
        return time.monotonic() < self._until

    async def renew(self) -> None:
        """Renew the lease. Open it again if its row was deleted. Raises HistoryLost if the newest run is missing."""
        before = time.monotonic()
        if await self._store.renew_lease(self.lease, limits.LEASE_SECONDS, self._newest):
            self._until = before + limits.LEASE_SECONDS
        else:
            await self._open()

    def record(self, run: ClaimedRun) -> None:
        """Record a run of Postgres. The renewals ask for the newest one, because a restore may lose it."""
        if self._newest is None or run.fence > self._newest.fence:
            self._newest = run

    async def take_over(self) -> set[str]:
        """Take over the runs of ended engines that can be proven dead. Return the jobs that may have QUEUED tasks."""
        return await self._takeover.take_over()

    async def end(self, _: str | None = None, /) -> None:
        """Close the lease and remove the presence file."""
        await self._store.close_lease(self.lease)
        await self._launcher.withdraw(self.lease)

    async def _open(self) -> None:
        before = time.monotonic()
        host, home = self._launcher.host, self._launcher.runs_home
        await self._store.open_lease(self.lease, "local", host, home, limits.LEASE_SECONDS, self._slots, self._jobs)
        self._until = before + limits.LEASE_SECONDS


class Leadership:
    """The leadership of one operator.

    A leader needs both servers: Postgres holds the lease, and only through the Kubernetes API can it see its runs. So a
    process that the API server does not answer neither starts to lead nor goes on leading.

    `host`: the name of this process, for people. `leads`: called with the epoch when this process starts to lead.
    `answered`: called after each answer of Postgres, with whether this process leads. A standby asks every few seconds,
    too. `missed`: returns how many checks in a row the API server has not answered. `namespaces`: the managed
    namespaces; empty means all. `home`: of the operator. The database refuses to be led by an operator of another home.
    `redact`: removes the secrets of this process from a text that is stored.
    """

    exclusive = True
    unproven: Mapping[int, str] = {}

    def __init__(  # noqa: PLR0913  # called once, by a composition root
        self,
        store: Store,
        host: Host,
        leads: Callable[[int], None],
        answered: Callable[[bool], None] = lambda _: None,
        missed: Callable[[], int] = lambda: 0,
        namespaces: Collection[str] = (),
        home: Home | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.lease = str(uuid.uuid4())
        self._store = store
        self._namespaces = namespaces
        self._home = home
        self._redact = redact
        self._host = host
        self._leads = leads
        self._answered = answered
        self._missed = missed
        self._until = 0.0
        self._seen = NOTHING_SEEN

    async def begin(self) -> None:
        """Wait until no other operator leads, and take the leadership. All runs of the previous leader come with it."""
        while True:
            try:
                epoch = None if self._missed() else await self._acquire()
            except DataflowError as error:
                if not error.retryable:
                    raise
            else:
                if epoch is not None:
                    self._leads(epoch)
                    return
            await asyncio.sleep(limits.RENEW_SECONDS)

    def holds(self) -> bool:
        """Return whether the lease is valid by the clock of this process."""
        return time.monotonic() < self._until

    async def renew(self) -> None:
        """Renew the leadership.

        Raises LeadershipLost if another operator leads, HistoryLost if Postgres lacks the newest recorded run, and
        CutOff if the API server does not answer.
        """
        if await self._acquire() is None:
            raise LeadershipLost("another operator has taken over")
        if self._missed() >= limits.MOST_MISSED_CHECKS:
            raise CutOff(
                "the Kubernetes API has not answered for 45 s: this operator gives up the leadership, so that another "
                "one leads. Pods go on"
            )

    def record(self, run: ClaimedRun) -> None:
        """Record a run of Postgres. The renewals ask for the newest one, because a failover may lose it."""
        if run.fence > (self._seen.fence or 0):
            self._seen = replace(self._seen, run=run.run, fence=run.fence)

    async def take_over(self) -> set[str]:
        """Do nothing: the runs of the previous leader came with the leadership."""
        return set()

    async def end(self, reason: str | None = None, /) -> None:
        """Give up the lease, so that the next operator leads at once."""
        await resign(self._store, self.lease, None if reason is None else self._redact(reason))

    async def _acquire(self) -> int | None:
        before = time.monotonic()
        epoch = await acquire_leadership(
            self._store,
            self.lease,
            self._host,
            limits.LEASE_SECONDS,
            self._namespaces,
            seen=self._seen,
            home=self._home,
        )
        self._answered(epoch is not None)
        if epoch is not None:
            self._until = before + limits.LEASE_SECONDS
            self._store.leader = self.lease
            self._seen = replace(self._seen, epoch=epoch)
        return epoch
