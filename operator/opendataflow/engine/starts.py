"""Starts claimed runs: asks the launcher again until the answer is certain.

A claimed run is never given up while it is unknown whether it was started. This module commits nothing: a run that
can't be started is reported as an end, like any other.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from opendataflow.core.runs.preflight import Locations
from opendataflow.engine import limits
from opendataflow.engine.ports import ClaimAuthority, Launcher, Observer, OrderMaker
from opendataflow.engine.view import JobView
from opendataflow.errors import (
    Backpressure,
    CreateUncertain,
    DataflowError,
    LocationNotAccepted,
    NoRights,
    NotStarted,
)
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.run import Ended, Outcome
from opendataflow.names import OutcomeClass, Preflight

OrderT = TypeVar("OrderT")

_STOPPED = "its job was deleted or stopped before it was started"

logger = logging.getLogger(__name__)


class Starts(Generic[OrderT]):
    """The starts of one engine. `ended`: called with the end of a run that was not started."""

    def __init__(
        self,
        launcher: Launcher[OrderT],
        makers: Mapping[str, OrderMaker[OrderT]],
        authority: ClaimAuthority,
        observer: Observer,
        ended: Callable[[Ended], None],
    ) -> None:
        self._launcher = launcher
        self._makers = makers
        self._authority = authority
        self._observer = observer
        self._report_end = ended
        self._concurrency = asyncio.Semaphore(limits.STARTS_AT_ONCE)
        self._cancelled: set[int] = set()
        self._killing = False
        self._locations: dict[int, Locations] = {}
        self.adopting: dict[int, asyncio.Task[None]] = {}
        """Runs that are being adopted: it is unknown whether they were started, perhaps until a person decides."""

    def cancel(self, run: int) -> None:
        """End a run before it starts, if it has not started yet."""
        self._cancelled.add(run)

    def kill(self) -> None:
        """Start no more runs. Claimed runs that have not started end as lost."""
        self._killing = True

    async def start(self, run: ClaimedRun, declared: DeclaredJob, view: JobView, *, adopting: bool) -> None:
        """Start one run, or report its end. `adopting`: the run may have been started already, for example by an
        earlier process."""
        try:
            if adopting and await self._try_to_adopt(run):
                return
            # A lost run of its task may have used a newer fencing token.
            end = _gone(run) if run.before_restore else await self._try_to_start(run, declared, view)
            if end is not None and not await self._launcher.wait_for_late_start(run):
                self._report_end(end)
        finally:
            self._cancelled.discard(run.run)

    async def _try_to_start(self, run: ClaimedRun, declared: DeclaredJob, view: JobView) -> Ended | None:
        view.starting += 1
        try:
            missing = await self._look(run, declared)
            if missing is not None:
                return missing
            order = self._make_order(run, declared, view)
            return order if isinstance(order, Ended) else await self._start_until_certain(run, order, view)
        finally:
            view.starting -= 1

    async def _look(self, run: ClaimedRun, declared: DeclaredJob) -> Ended | None:
        """Look at the locations of a run, if its job wants it. Return the end of the run if it may not start."""
        maker = self._makers.get(run.job)
        check = None if maker is None else maker.preflight(declared)
        if check is None:
            return None
        found = self._locations[run.run] = await asyncio.to_thread(check)
        return None if found.verdict is Preflight.PASSED else _not_started(run, found.sentence)

    def with_looks(self, ended: Ended) -> Ended:
        """Return an end with what was found at the locations of the run. A report of the run itself counts more."""
        found = self._locations.pop(ended.run, None)
        if found is None:
            return ended
        metrics = {**found.report_fields(), **ended.report.metrics}
        return replace(ended, report=replace(ended.report, metrics=metrics))

    async def _try_to_adopt(self, run: ClaimedRun) -> bool:
        future = asyncio.current_task()
        assert future is not None
        self.adopting[run.run] = future
        try:
            return await self._launcher.adopt(run)
        finally:
            self.adopting.pop(run.run, None)

    def _make_order(self, run: ClaimedRun, declared: DeclaredJob, view: JobView) -> OrderT | Ended:
        maker = self._makers.get(run.job)
        if maker is None:
            return _not_started(run, _STOPPED)
        if not maker.matches(declared):
            return _not_started(run, "the job was applied anew just before it started")
        try:
            return maker(run, declared)
        except LocationNotAccepted as error:  # its owner has moved a data set; the operator is about to stop the job
            view.claim_failed(limits.CLAIM_REFUSED_SECONDS)
            return _not_started(run, str(error))
        except DataflowError as error:
            return Ended(run.run, exit_code=126, log_tail=str(error))
        except Exception as error:  # a fault in the spec of one job must not stop the engine
            logger.exception("run %d of job %s: no order could be made from the job", run.run, run.job)
            return Ended(
                run.run, exit_code=126, log_tail=f"a fault of this program: {type(error).__name__}; see its log"
            )

    async def _start_until_certain(self, run: ClaimedRun, order: OrderT, view: JobView) -> Ended | None:
        """Start a run; return None when it runs. Return its end if it was not started and never will be."""
        certainly_not = True
        for pause in _pauses():
            async with self._concurrency:
                await self._wait_until_allowed()
                if certainly_not and (end := self._end_before_start(run, view)) is not None:
                    return end
                begin = time.monotonic()
                try:
                    await self._launcher.start(order)
                except CreateUncertain as error:
                    certainly_not = False
                    self._report_failed_start(run.job, view, error, pause)
                except Backpressure as error:
                    certainly_not, pause = True, max(pause, error.retry_after or 0)
                    self._report_failed_start(run.job, view, error, pause)
                except NotStarted as error:
                    self._report_failed_start(run.job, view, error, limits.NOT_CREATABLE_SECONDS)
                    if certainly_not or not isinstance(error, NoRights):  # NoRights says nothing about an earlier try
                        return _not_started(run, str(error))
                else:
                    self._report_recovery(run.job, view)
                    if self._killing:  # `kill` may have been called during the start
                        await self._launcher.kill(run.run, cancelled=False)
                    return None
                finally:
                    self._observer.observe_duration("create", time.monotonic() - begin)
            await view.pause(pause)
        raise AssertionError("the pauses never end")

    async def _wait_until_allowed(self) -> None:
        """Wait until the lease is valid: after its end another engine may be proving this run dead."""
        while not (self._authority.holds() or self._killing):  # noqa: ASYNC110 # a clock sets no event
            await asyncio.sleep(limits.RECONNECT_SECONDS)

    def _end_before_start(self, run: ClaimedRun, view: JobView) -> Ended | None:
        if run.run in self._cancelled:
            return Ended(run.run, cancelled=True)
        if self._killing:
            return Ended(run.run, lost="stopped before it started")
        if not view.active and view.start_error is not None:
            return _not_started(
                run, f"{view.start_error}; it is not tried any more, as the job is suspended or deleted"
            )
        if run.job not in self._makers:  # such as after the end of a sharing
            return _not_started(run, _STOPPED)
        return None

    def _report_failed_start(self, job: str, view: JobView, error: NotStarted, pause: float) -> None:
        before = view.start_error
        view.start_failed(error, pause)
        if type(before) is not type(error):
            self._observer.starts_blocked(job, error)

    def _report_recovery(self, job: str, view: JobView) -> None:
        before = view.start_error
        view.start_succeeded()
        if before is not None:
            self._observer.starts_blocked(job, None)


def _not_started(run: ClaimedRun, reason: str) -> Ended:
    """Return the end of a run that consumes no attempt: its task returns to its state before the claim."""
    return Ended(run.run, outcome=Outcome(OutcomeClass.NOT_STARTED, reason), lost=reason)


def _gone(run: ClaimedRun) -> Ended:
    """Return the end of a run that is not created again. The next run of its task has a newer fencing token."""
    return Ended(run.run, lost="its pod is gone, and Postgres was restored after it was claimed")


def _pauses() -> Iterator[float]:
    pause = limits.FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, limits.LONGEST_PAUSE_SECONDS)
