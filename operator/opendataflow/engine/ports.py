"""What the engine needs of a launcher and of its right to claim, and whom it tells what happens. The store is used
directly: there is only one.

A launcher starts runs, tells when they have ended, and proves earlier ones dead. It never commits anything.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeVar

from opendataflow.errors import NotStarted
from opendataflow.model.records.alert import Alert
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion, DeclaredJob
from opendataflow.model.records.run import Ended, Host, Proof, Report, RunOrder

O_co = TypeVar("O_co", covariant=True)
O_contra = TypeVar("O_contra", contravariant=True)


Step = Literal["claim", "create", "commit"]


class Launcher(Protocol[O_contra]):
    """A place where runs are processes or pods. Its orders say what is to be started there."""

    @property
    def host(self) -> Host:
        """Where this launcher's runs live."""

    @property
    def runs_home(self) -> str:
        """The folder of its runs, where they don't live in the namespace of their job."""

    async def start(self, order: O_contra) -> None:
        """Start the run, once: a second call with the same name does nothing. Its end arrives at `ended`.

        A run that can't be started at all (no such program, no such folder) ends at once, with an exit code
        of 126 or 127 and the reason in its log tail, as a shell would tell it. Raises NotStarted where it was not
        started, or where nobody knows: the engine calls again, with the same order.
        """

    async def adopt(self, run: ClaimedRun) -> bool:
        """Watch a run that an earlier process may have started; its end arrives at `ended`. False: nothing is there."""

    async def arrives(self, run: ClaimedRun) -> bool:
        """Whether a run that is about to be given up is there after all: waits until all that was sent to start it,
        also by an earlier process, must have arrived. True: it is watched now."""

    async def ended(self) -> Ended:
        """Wait for the next run to end. Each run that was started is returned once."""

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """End the run's processes now; `ended` returns it with `cancelled` or with `lost`."""

    async def release(self, name: str) -> None:
        """Forget a run whose outcome is committed. Keeps its logs."""

    async def close(self) -> None:
        """End every run that would not go on without this process; stop watching."""


class LocalLauncher(Launcher[RunOrder], Protocol):
    """A launcher whose runs end with their host: what an engine leaves behind there can be proven dead."""

    async def announce(self, lease: str) -> None:
        """Show that the engine with this lease lives, in a way that ends with its process. Comes before its claims."""

    async def depart(self, lease: str) -> None:
        """Stop showing it and leave nothing behind: every run of the engine is committed."""

    async def owner_gone(self, lease: str, host: Host) -> Proof:
        """Say whether the engine with this lease has certainly ended."""

    async def prove_dead(self, name: str, host: Host) -> Proof:
        """Make certain that an earlier process's run `name`, started at `host`, does not run and never will.

        Ends what is left of it. Says no where nothing can be known, such as a run of another host.
        """

    async def left_behind(self, name: str) -> Report:
        """Return what an earlier process's run `name` has told of its steps, and no text that may hold a secret."""


class Tenure(Protocol):
    """The right to claim, and what becomes of the runs of those who had it before."""

    @property
    def lease(self) -> str:
        """The lease under which runs are claimed."""

    @property
    def exclusive(self) -> bool:
        """Whether only runs of this lease may be committed: another process may take them over."""

    @property
    def unproven(self) -> Mapping[int, str]:
        """Runs that have no engine any more and are not known to be dead, with their jobs."""

    async def begin(self) -> None:
        """Take it; wait until that is possible."""

    def holds(self) -> bool:
        """Whether it holds at this moment, by this process's own clock."""

    async def renew(self) -> None:
        """Renew it. Raises Deposed where another process has taken over."""

    async def take_over(self) -> set[str]:
        """Take over what processes before have left behind; return the jobs that may have QUEUED tasks now."""

    async def end(self) -> None:
        """Give it back: every run is committed, or goes on without this process."""


class Target(Protocol):
    """Where notifications go. `name`: for people; `address`: what makes it another target, may hold a token."""

    name: str
    address: str

    async def deliver(self, alert: Alert) -> None:
        """Deliver one message within a few seconds; raise NotDelivered with the reason where that can't be done."""


class OrderMaker(Protocol[O_co]):
    """Knows what one job executes."""

    def fits(self, declared: DeclaredJob) -> bool:
        """Whether what it knows is about the job as it is declared now; else nothing of the job may start."""

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> O_co:
        """Make the order for a claimed run. May raise DataflowError: the run ends with its sentence."""


class Observer(Protocol):
    """Is told what the engine does, for a person to see. It must return at once and never raise."""

    def claimed(self, run: ClaimedRun) -> None:
        """A run was claimed and is about to start."""

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """The outcome of a run is committed."""

    def held_back(self, job: str, reason: NotStarted | None) -> None:
        """Runs of a job can't be started for now, or can again (None). Told once for each change."""

    def took(self, step: Step, seconds: float) -> None:
        """A step of a run's life was done, or tried, in so many seconds."""

    def turned(self, loop: str) -> None:
        """A loop of the engine has begun its next turn."""

    def unfit(self, job: str) -> None:
        """A job was applied, and what this engine knows of it is about another version: nothing new of it starts."""

    def note(self, text: str) -> None:
        """Something else that a person should know: the database is away, a run was taken over."""
