"""From a claim to a started run: asks the launcher, again and again, until the answer is certain.

A claimed run is never given up because nobody knows whether it was started. It commits nothing: what can't be started
arrives at the outcomes like every other end.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from opendataflow.engine import limits
from opendataflow.engine.ports import Launcher, Observer, OrderMaker, Tenure
from opendataflow.engine.view import JobView
from opendataflow.errors import Backpressure, CreateUncertain, DataflowError, NoRights, NotStarted
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.run import Ended, Outcome
from opendataflow.names import OutcomeClass

OrderT = TypeVar("OrderT")

logger = logging.getLogger(__name__)


class Starts(Generic[OrderT]):
    """The starts of one engine. `ended`: takes the ends of runs that were not started."""

    def __init__(
        self,
        launcher: Launcher[OrderT],
        makers: Mapping[str, OrderMaker[OrderT]],
        tenure: Tenure,
        observer: Observer,
        ended: Callable[[Ended], None],
    ) -> None:
        self._launcher = launcher
        self._makers = makers
        self._tenure = tenure
        self._observer = observer
        self._ended = ended
        self._at_once = asyncio.Semaphore(limits.STARTS_AT_ONCE)
        self._cancelled: set[int] = set()
        self._killing = False
        self.adopting: dict[int, asyncio.Task[None]] = {}
        """Runs of which nobody knows yet whether they were started: that may take until a person decides."""

    def cancel(self, run: int) -> None:
        """End a run before it starts, where that is still possible."""
        self._cancelled.add(run)

    def kill(self) -> None:
        """Start nothing more; what is not started ends as lost."""
        self._killing = True

    async def start(self, run: ClaimedRun, declared: DeclaredJob, view: JobView, *, adopting: bool) -> None:
        """Start one run, or end it. `adopting`: an earlier process, or an answer that was lost, may have started it."""
        try:
            if adopting and await self._adopted(run):
                return
            end = await self._started(run, declared, view)
            if end is not None and not await self._launcher.arrives(run):
                self._ended(end)
        finally:
            self._cancelled.discard(run.run)

    async def _started(self, run: ClaimedRun, declared: DeclaredJob, view: JobView) -> Ended | None:
        view.starting += 1
        try:
            order = self._order(run, declared)
            return order if isinstance(order, Ended) else await self._until_certain(run, order, view)
        finally:
            view.starting -= 1

    async def _adopted(self, run: ClaimedRun) -> bool:
        future = asyncio.current_task()
        assert future is not None
        self.adopting[run.run] = future
        try:
            return await self._launcher.adopt(run)
        finally:
            self.adopting.pop(run.run, None)

    def _order(self, run: ClaimedRun, declared: DeclaredJob) -> OrderT | Ended:
        maker = self._makers.get(run.job)
        if maker is None:
            return _given_back(run, "its job was deleted before it was started")
        if not maker.fits(declared):
            return _given_back(run, "the job was applied anew just before it started")
        try:
            return maker(run, declared)
        except DataflowError as error:
            return Ended(run.run, exit_code=126, log_tail=str(error))
        except Exception as error:  # what one job has written must not end the runs of all others
            logger.exception("run %d of job %s: nothing could be made of what the job says", run.run, run.job)
            return Ended(
                run.run, exit_code=126, log_tail=f"a fault of this program: {type(error).__name__}; see its log"
            )

    async def _until_certain(self, run: ClaimedRun, order: OrderT, view: JobView) -> Ended | None:
        """Start it; return its end where it certainly was not started and will not be. None: it runs."""
        certainly_not = True
        for pause in _pauses():
            async with self._at_once:
                await self._until_allowed()
                if certainly_not and (end := self._end_before_start(run, view)) is not None:
                    return end
                begin = time.monotonic()
                try:
                    await self._launcher.start(order)
                except CreateUncertain as error:
                    certainly_not = False
                    self._hold_back(run.job, view, error, pause)
                except Backpressure as error:
                    certainly_not, pause = True, max(pause, error.retry_after or 0)
                    self._hold_back(run.job, view, error, pause)
                except NotStarted as error:
                    self._hold_back(run.job, view, error, limits.NOT_CREATABLE_SECONDS)
                    if certainly_not or not isinstance(error, NoRights):  # that one tells nothing of an earlier try
                        return _given_back(run, str(error))
                else:
                    self._let_go(run.job, view)
                    if self._killing:  # it may have come between
                        await self._launcher.kill(run.run, cancelled=False)
                    return None
                finally:
                    self._observer.took("create", time.monotonic() - begin)
            await view.pause(pause)
        raise AssertionError("the pauses never end")

    async def _until_allowed(self) -> None:
        """A lease that has ended may mean that another engine is proving this run dead right now."""
        while not (self._tenure.holds() or self._killing):  # noqa: ASYNC110 # a clock sets no event
            await asyncio.sleep(limits.RECONNECT_SECONDS)

    def _end_before_start(self, run: ClaimedRun, view: JobView) -> Ended | None:
        if run.run in self._cancelled:
            return Ended(run.run, cancelled=True)
        if self._killing:
            return Ended(run.run, lost="stopped before it started")
        if not view.active and view.held_back is not None:
            return _given_back(run, f"{view.held_back}; it is not tried any more, as the job is suspended or deleted")
        return None

    def _hold_back(self, job: str, view: JobView, error: NotStarted, pause: float) -> None:
        told = view.held_back
        view.hold_back(error, pause)
        if type(told) is not type(error):
            self._observer.held_back(job, error)

    def _let_go(self, job: str, view: JobView) -> None:
        told = view.held_back
        view.started()
        if told is not None:
            self._observer.held_back(job, None)


def _given_back(run: ClaimedRun, reason: str) -> Ended:
    """The end of a run that costs no attempt: its task is what it was before the claim."""
    return Ended(run.run, outcome=Outcome(OutcomeClass.NOT_STARTED, reason), lost=reason)


def _pauses() -> Iterator[float]:
    pause = limits.FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, limits.LONGEST_PAUSE_SECONDS)
