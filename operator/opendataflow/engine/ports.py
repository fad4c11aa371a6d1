"""The protocols that the engine works with: launcher, claim authority, order maker, observer and notification target.

The store has no protocol, because there is only one. A launcher starts runs, reports their ends, and proves earlier
runs dead. It never commits anything.
"""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeVar

from opendataflow.core.runs.preflight import Locations
from opendataflow.errors import NotStarted
from opendataflow.model.records.alert import Alert
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion, DeclaredJob
from opendataflow.model.records.run import Ended, Host, Proof, Report, RunOrder

O_co = TypeVar("O_co", covariant=True)
O_contra = TypeVar("O_contra", contravariant=True)


Step = Literal["claim", "create", "commit"]


class Launcher(Protocol[O_contra]):
    """Starts and watches runs as processes or pods. An order describes one run."""

    @property
    def host(self) -> Host:
        """Return the host of this launcher's runs."""

    @property
    def runs_home(self) -> str:
        """Return the folder of the runs; empty if runs are in the namespace of their job."""

    async def start(self, order: O_contra) -> None:
        """Start a run, once: a second call with the same name does nothing. `ended` returns its end.

        If the program or the folder does not exist, the run ends at once with exit code 126 or 127, as in a shell. The
        log tail has the reason. Raises NotStarted if the run was not started, or if that is unknown. The engine then
        calls again with the same order.
        """

    async def adopt(self, run: ClaimedRun) -> bool:
        """Watch a run that an earlier process may have started. Return False if there is no such run."""

    async def wait_for_late_start(self, run: ClaimedRun) -> bool:
        """Return whether a run exists that the engine is about to give up; then it is watched.

        Wait until every request to start it has arrived or can't arrive any more, also those of earlier processes.
        """

    async def ended(self) -> Ended:
        """Wait for the next end. Each started run is returned once."""

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """End a run now. `ended` returns it with `cancelled` or with `lost`."""

    async def release(self, run: ClaimedRun) -> None:
        """Release a run whose outcome is committed. Its log stays."""

    async def close(self) -> None:
        """Stop watching, and end every run that can't go on without this process."""


class LocalLauncher(Launcher[RunOrder], Protocol):
    """A launcher of processes on this host. It can prove runs of earlier engines of the same host dead."""

    def of_home(self, runs_home: str) -> "LocalLauncher | None":
        """Return the launcher for runs of earlier engines in `runs_home`; None if this engine has another home."""

    async def announce(self, lease: str) -> None:
        """Show that the engine with this lease is alive, until its process ends. The engine claims nothing before."""

    async def withdraw(self, lease: str) -> None:
        """Undo `announce`: every run of the engine is committed."""

    async def prove_owner_dead(self, lease: str, host: Host) -> Proof:
        """Prove that the engine with this lease has ended."""

    async def prove_dead(self, name: str, host: Host) -> Proof:
        """Prove that the run `name` of an earlier process, started at `host`, does not run and never will.

        Kill its remaining processes. Return a negative proof if nothing is known, for example about another host.
        """

    async def recover_report(self, name: str) -> Report:
        """Return the reported steps of an earlier process's run, without texts that may hold a secret."""


class ClaimAuthority(Protocol):
    """The right to claim. Also takes over the runs of processes that held the right before."""

    @property
    def lease(self) -> str:
        """Return the id of the lease under which runs are claimed."""

    @property
    def exclusive(self) -> bool:
        """Return whether this process may commit runs of its lease only, because another one may take them over."""

    @property
    def unproven(self) -> Mapping[int, str]:
        """Return the runs, with their jobs, whose engine has ended and that are not proven dead."""

    async def begin(self) -> None:
        """Acquire the right. Wait until that is possible."""

    def holds(self) -> bool:
        """Return whether this process holds the right, by its own clock."""

    async def renew(self) -> None:
        """Renew the right. Raises LeadershipLost, HistoryLost or CutOff if this process has to end."""

    def record(self, run: ClaimedRun) -> None:
        """Record a run of Postgres, for `renew`."""

    async def take_over(self) -> set[str]:
        """Take over the runs of earlier processes. Return the jobs that may have QUEUED tasks now."""

    async def end(self, reason: str | None = None, /) -> None:
        """Give up the right: every run is committed, or goes on without this process.

        `reason`: the error that ends this process, for people. None: it was stopped.
        """


class Target(Protocol):
    """A target of notifications. `name`: for people. `address`: identifies the target; may hold a token."""

    name: str
    address: str

    async def deliver(self, alert: Alert) -> None:
        """Deliver one message within a few seconds. Raises NotDelivered with the reason."""


class OrderMaker(Protocol[O_co]):
    """Makes the orders for the runs of one job."""

    def matches(self, declared: DeclaredJob) -> bool:
        """Return whether this maker describes the job as it is declared now. If not, no run of the job may start."""

    def preflight(self, declared: DeclaredJob) -> Callable[[], Locations] | None:
        """Return the check of locations before a run starts, which may take seconds; None if nothing is checked."""

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> O_co:
        """Return the order for a claimed run. If it raises DataflowError, the run ends with the text of the error."""


class Observer(Protocol):
    """Receives the events of the engine, for people to see. No method may block or raise."""

    def claimed(self, run: ClaimedRun) -> None:
        """Handle the claim of a run, which starts next."""

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """Handle the committed outcome of a run."""

    def starts_blocked(self, job: str, reason: NotStarted | None) -> None:
        """Handle that runs of a job can't be started, or can again (None). Called once for each change."""

    def observe_duration(self, step: Step, seconds: float) -> None:
        """Record the duration of one step, successful or not."""

    def heartbeat(self, loop: str) -> None:
        """Record that a loop of the engine starts its next iteration."""

    def outdated(self, job: str) -> None:
        """Handle that a job was applied in a version that the engine does not have. No new run of the job starts."""

    def note(self, text: str) -> None:
        """Show another message to people, for example that the database is unreachable."""
