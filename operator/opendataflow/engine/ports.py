"""What the engine needs of a launcher, and whom it tells what happens. The store is used directly: there is only one.

A launcher starts runs, tells when they have ended, and proves earlier ones dead. It never commits anything.
"""

from collections.abc import Callable
from typing import Protocol

from opendataflow.model.alert import Alert
from opendataflow.model.claim import ClaimedRun, Completed, Completion, DeclaredJob
from opendataflow.model.run import Ended, Host, Proof, RunOrder


class Launcher(Protocol):
    """A place where runs are processes or pods."""

    @property
    def host(self) -> Host:
        """Where this launcher's runs live."""

    @property
    def runs_home(self) -> str:
        """The folder (or namespace) of its runs; a run of another one can't be judged here."""

    async def announce(self, lease: str) -> None:
        """Show that the engine with this lease lives, in a way that ends with its process. Comes before its claims."""

    async def depart(self, lease: str) -> None:
        """Stop showing it and leave nothing behind: every run of the engine is committed."""

    async def owner_gone(self, lease: str, host: Host) -> Proof:
        """Say whether the engine with this lease has certainly ended."""

    async def start(self, order: RunOrder) -> None:
        """Start the run, once: a second call with the same name does nothing. Its end arrives at `ended`.

        A run that can't be started at all (no such program, no such folder) ends at once, with an exit code
        of 126 or 127 and the reason in its log tail, as a shell would tell it.
        """

    async def ended(self) -> Ended:
        """Wait for the next run to end. Each run that was started is returned once."""

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """End the run's processes now; `ended` returns it with `cancelled` or with `lost`."""

    async def prove_dead(self, name: str, host: Host) -> Proof:
        """Make certain that an earlier process's run `name`, started at `host`, does not run and never will.

        Ends what is left of it. Says no where nothing can be known, such as a run of another host.
        """

    async def release(self, name: str) -> None:
        """Forget a run whose outcome is committed. Keeps its logs."""

    async def close(self) -> None:
        """End every run that is left."""


class Target(Protocol):
    """Where notifications go. `name`: for people; `address`: what makes it another target, may hold a token."""

    name: str
    address: str

    async def deliver(self, alert: Alert) -> None:
        """Deliver one message within a few seconds; raise NotDelivered with the reason where that can't be done."""


class OrderMaker(Protocol):
    """Knows what one job executes."""

    def fits(self, declared: DeclaredJob) -> bool:
        """Whether what it knows is about the data sets that the job has now; else nothing of the job may start."""

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        """Make the order for a claimed run. May raise DataflowError: the run ends with its sentence."""

    def redactor(self) -> Callable[[str], str] | None:
        """Return what takes the secrets that orders carry out of a text; None where there are none."""


class Observer(Protocol):
    """Is told what the engine does, for a person to see. It must return at once and never raise."""

    def claimed(self, run: ClaimedRun) -> None:
        """A run was claimed and is about to start."""

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """The outcome of a run is committed."""

    def note(self, text: str) -> None:
        """Something else that a person should know: the database is away, a run was taken over."""
