"""The loop that every run's life goes through: claim, start, watch, complete, release.

The intent of a run (its row, fence and locks) is committed before the launcher hears of it, and its outcome before
the launcher forgets it; whatever the moment at which this process ends, the next one finds each run in a state that
it can go on from. While Postgres does not answer, runs go on, nothing new starts, and outcomes wait here.

It never decides which task is queued (Postgres does), never judges an end (core/ does) and never touches a process.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from opendataflow.core.runs.completion import completion
from opendataflow.core.runs.plan import Demand, plan
from opendataflow.core.text.explain import breaker_note
from opendataflow.engine import limits
from opendataflow.engine.days import Clock, current_day, local_time
from opendataflow.engine.patience import Patience
from opendataflow.engine.ports import Launcher, Observer, OrderMaker, Tenure
from opendataflow.engine.starts import Starts
from opendataflow.engine.view import JobView
from opendataflow.errors import DataflowError, LeaseLost
from opendataflow.model.records.claim import ClaimedRun, Completion, DeclaredJob, Position, Progress
from opendataflow.model.records.run import Ended
from opendataflow.names import TaskState
from opendataflow.store.store import Store

OrderT = TypeVar("OrderT")
UNFINISHED = (TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING)


class Engine(Generic[OrderT]):
    """Runs the tasks of some jobs until it is told to stop, or until nothing is left that it could do.

    `makers`: what the jobs execute; its owner may change it at any time, and says so with `look_again`.
    """

    def __init__(  # noqa: PLR0913  # what a composition root puts together
        self,
        store: Store,
        launcher: Launcher[OrderT],
        tenure: Tenure,
        makers: Mapping[str, OrderMaker[OrderT]],
        observer: Observer,
        *,
        parallelism: int,
        until_caught_up: bool = False,
        clock: Clock = local_time,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._makers = makers
        self._observer = observer
        self._parallelism = parallelism
        self._until_caught_up = until_caught_up
        self._clock = clock
        self._day: str | None = None
        self._tenure = tenure
        self._actor = f"engine {launcher.host.name}"
        self._jobs: dict[str, JobView] = {}
        self._runs: dict[int, ClaimedRun] = {}
        self._wake = asyncio.Event()
        self._finished = asyncio.Event()
        self._outcomes: asyncio.Queue[Ended] = asyncio.Queue()
        self._starts = Starts(launcher, makers, tenure, observer, self._outcomes.put_nowait)
        self._starting: set[asyncio.Task[None]] = set()
        self._draining = False
        self._leaving = False
        self._uncertain = True  # an earlier process may have left runs behind under this lease
        self._changed = False
        self._adopt_at = 0.0
        self._away: type[DataflowError] | None = None
        self._patience = Patience()

    # -- from outside ----------------------------------------------------------------------------------------

    async def run(self, prepare: Callable[[], Awaitable[None]] | None = None) -> list[Progress]:
        """Work until the end; return how far the jobs are. `prepare`: what has to be done when the right to claim is
        held and nothing has been claimed yet."""
        await self._tenure.begin()
        try:
            await self._work(prepare)
        except BaseExceptionGroup as group:
            await self._hand_over()
            # Any one of the loops ending ends the process; the first reason is the one to tell.
            raise group.exceptions[0] from group
        finally:
            await self._launcher.close()
        if self._leaving:  # Postgres may be away
            await self._hand_over()
            return []
        progress = await self._store.progress(list(self._makers))
        await self._tenure.end()
        return progress

    async def _hand_over(self) -> None:
        """Runs that go on without this process need another one that leads, and soon; those of one machine have to be
        proven dead first, and its lease says until when that is not so."""
        if self._tenure.exclusive:
            with suppress(DataflowError, TimeoutError):
                async with asyncio.timeout(limits.HAND_OVER_SECONDS):
                    await self._tenure.end()

    async def _work(self, prepare: Callable[[], Awaitable[None]] | None) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            lease = group.create_task(self._every(limits.RENEW_SECONDS, self._tenure.renew, "lease"))
            if prepare is not None:
                await prepare()
            await self._until_answered(self._look_at_jobs)
            await self._until_answered(self._look_at_day)
            loops = [
                lease,
                group.create_task(self._whenever_woken(self._claim_all, limits.PROBE_SECONDS, "claims")),
                group.create_task(self._every(limits.TAKEOVER_SECONDS, self._take_over, "takeovers")),
                group.create_task(self._every(limits.PROBE_SECONDS, self._probe, "probe")),
                group.create_task(self._watch(), name="watch"),
                group.create_task(self._commit(), name="commits"),
                group.create_task(self._listen(), name="listen"),
            ]
            await self._finished.wait()
            for loop in loops:
                loop.cancel()

    def drain(self) -> None:
        """Start nothing new; end when the runs have ended."""
        self._draining = True
        self._wake.set()

    async def kill(self) -> None:
        """Start nothing new and end the runs now; their tasks are tried again."""
        self._starts.kill()
        self.drain()
        for run in list(self._runs):
            await self._launcher.kill(run, cancelled=False)

    def leave(self) -> None:
        """Start nothing new and end at once; the runs go on, and the next process finds them."""
        self._leaving = True
        for start in self._starting:
            start.cancel()
        self.drain()

    def look_again(self) -> None:
        """What some job executes has changed, or its limits: look at it now."""
        self._changed = self._uncertain = True
        self._wake.set()

    def queues(self) -> dict[str, int]:
        """How much waits: runs to be started, and ends to be committed."""
        return {"starts": len(self._starting), "ends": self._outcomes.qsize()}

    # -- claim and start -------------------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        """Fill the free slots, then see whether there is anything left to wait for."""
        if self._changed:
            self._changed = False  # what changes from here on is looked at again
            await self._look_at_jobs()
        if not self._draining and (self._uncertain or time.monotonic() > self._adopt_at):
            await self._adopt_own()
        while not self._draining and self._tenure.holds():
            orders = plan(self._demands(), self._parallelism - len(self._runs))
            if not orders:
                break
            for order in orders:
                await self._claim(order.job, order.limit)
        await self._finish_if_done()

    def _demands(self) -> list[Demand]:
        running: dict[str, int] = dict.fromkeys(self._jobs, 0)
        for run in self._runs.values():
            running[run.job] += 1
        demands = (view.demand(running[job]) for job, view in self._jobs.items() if job in self._makers)
        return [demand for demand in demands if demand is not None]

    async def _claim(self, job: str, limit: int) -> None:
        view = self._jobs[job]
        now = time.monotonic()
        if view.position == Position():
            view.searched_at = now
        view.hungry = False  # whatever wakes the job while the claim is under way counts
        self._uncertain = True  # until the answer is here, runs may exist that nobody starts
        claimed = await self._store.claim(self._tenure.lease, job, limit, view.position)
        self._observer.took("claim", time.monotonic() - now)
        self._uncertain = False
        if claimed.declared is not None:
            view.declare(claimed.declared)
        for run in claimed.runs:
            self._begin(run, view.declared)
        if len(claimed.runs) == limit:
            view.position, view.hungry = claimed.position, True
        elif view.position != Position() and now - view.searched_at > limits.REWIND_SECONDS:
            view.position, view.hungry = Position(), True
        else:
            view.position, view.hungry = claimed.position, view.hungry or claimed.dropped > 0
        if claimed.dropped:
            await asyncio.sleep(limits.DROPPED_SECONDS)

    def _begin(self, run: ClaimedRun, declared: DeclaredJob, *, adopting: bool = False) -> None:
        self._runs[run.run] = run
        self._observer.claimed(run)
        start = self._starts.start(run, declared, self._jobs[run.job], adopting=adopting)
        future = self._group.create_task(start, name=f"start of run {run.run}")
        self._starting.add(future)
        future.add_done_callback(self._starting.discard)

    async def _adopt_own(self) -> None:
        """Go on with runs that are this engine's and that it does not know: of the process that led before it, or of a
        claim that was never answered, because the connection broke.

        A claim may be committed long after its connection broke, so this is done again and again.
        """
        known = set(self._runs)  # before the question: a run that ends meanwhile is not to be begun again
        waiting = set(self._starts.adopting)
        running = [run for run, _ in await self._store.running_runs(self._tenure.lease, own=True)]
        self._wait_no_more(waiting - {run.run for run in running})
        found = [run for run in running if run.run not in known and run.run not in self._runs]
        if found:
            await self._look_at_jobs({run.job for run in found})
        for run in found:
            self._begin(run, self._jobs[run.job].declared, adopting=True)
        self._uncertain = False
        self._adopt_at = time.monotonic() + limits.TAKEOVER_SECONDS

    def _wait_no_more(self, ended: Collection[int]) -> None:
        """A person has ended runs that were to be adopted: the commit finds out what they are."""
        for run in ended:
            if (future := self._starts.adopting.pop(run, None)) is not None:
                future.cancel()
                self._outcomes.put_nowait(Ended(run, lost="ended by a person"))

    async def _finish_if_done(self) -> None:
        if self._leaving:
            self._finished.set()
        if self._runs:
            return
        if self._draining:
            self._finished.set()
        elif self._until_caught_up:
            progress = await self._store.progress(list(self._makers))
            stuck = Counter(self._tenure.unproven.values())  # nobody here can end what they wait for
            going_on = [p for p in progress if self._jobs[p.job].active and not p.probed_in_vain]
            if not any(p.of(*UNFINISHED) > stuck[p.job] for p in going_on):
                self._finished.set()

    # -- watch and complete ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._outcomes.put(await self._launcher.ended())

    async def _commit(self) -> None:
        """Commit outcomes as they come; those that come while a commit is under way, or close behind it, go together in
        the next."""
        committed = 0.0
        while True:
            ended = [await self._outcomes.get()]
            gather = min(limits.GATHER_SECONDS * len(self._runs), limits.MOST_GATHER_SECONDS)
            await asyncio.sleep(max(0.0, committed + gather - time.monotonic()))
            while len(ended) < limits.COMMIT_BATCH and not self._outcomes.empty():
                ended.append(self._outcomes.get_nowait())
            runs = {end.run: self._runs[end.run] for end in ended}
            await self._complete([completion(runs[e.run], e, self._jobs[runs[e.run].job].policy) for e in ended], runs)
            for run in runs.values():
                del self._runs[run.run]
                with suppress(OSError):  # files that are left over disturb nobody
                    await self._launcher.release(run.name)
            committed = time.monotonic()
            self._wake.set()

    async def _complete(self, completions: list[Completion], runs: Mapping[int, ClaimedRun]) -> None:
        """Commit, for as long as it takes: an outcome is never given up while Postgres is away."""
        while True:
            begin = time.monotonic()
            try:
                lease = self._tenure.lease if self._tenure.exclusive else None
                completed, woken = await self._store.complete(completions, self._actor, lease=lease)
                break
            except DataflowError as error:
                if not self._patience.again(error):
                    raise
                self._note_away(error)
                await asyncio.sleep(limits.RECONNECT_SECONDS)
        self._observer.took("commit", time.monotonic() - begin)
        results = {result.run: result for result in completed}
        for done in completions:
            result = results[done.run]
            self._observer.completed(done, runs[done.run], result)
            if result.breaker is not None:
                self._observer.note(breaker_note(runs[done.run].job, result.breaker))
        for job in {*woken, *(run.job for run in runs.values())}:
            self._feed(job)

    def _feed(self, job: str) -> None:
        """A job may have QUEUED tasks."""
        view = self._jobs.get(job)
        if view is not None:
            view.feed()

    # -- around it -------------------------------------------------------------------------------------------

    async def _look_at_jobs(self, also: Collection[str] = ()) -> None:
        """Ask how the jobs are declared now. `also`: jobs of runs that have no maker any more."""
        jobs = {*self._makers, *also, *(run.job for run in self._runs.values())}
        for job, declared in (await self._store.declared_jobs(sorted(jobs))).items():
            view = self._jobs.setdefault(job, JobView(declared))
            maker = self._makers.get(job)
            view.declare(declared)
            fitted, view.fits = view.fits, maker is not None and maker.fits(declared)
            if fitted and not view.fits and maker is not None:
                self._observer.unfit(job)
        for job in set(self._jobs) - jobs - {run.job for run in self._runs.values()}:
            del self._jobs[job]

    async def _look_at_day(self) -> None:
        """Where a new day has begun: publish it, and those that an outage has cost, for the jobs that read `today`."""
        day = current_day(self._clock)
        if day != self._day:
            await self._store.publish_today(list(self._jobs), day, self._actor, catch_up=True)
            self._day = day

    async def _probe(self) -> None:
        """Once a second: runs to cancel, due retries, changed jobs, a new day, and QUEUED tasks that were passed by."""
        for run in await self._store.runs_to_cancel(self._tenure.lease):
            self._starts.cancel(run)
            await self._launcher.kill(run, cancelled=True)  # one that has not started yet: again a second later
        await self._store.retry_due()
        await self._look_at_jobs()
        await self._look_at_day()
        for job in await self._store.claimable_jobs(list(self._jobs)):
            if job in self._jobs:
                self._jobs[job].hungry, self._jobs[job].position = True, Position()
        self._wake.set()

    async def _take_over(self) -> None:
        for job in await self._tenure.take_over():
            self._feed(job)
            self._wake.set()

    async def _listen(self) -> None:
        """Be woken by changes that others make; the probe finds the same a second later."""

        async def listen() -> None:
            async with self._store.listening() as jobs:
                async for job in jobs:
                    self._feed(job)
                    self._wake.set()

        while True:
            await self._surviving(listen)

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]], name: str) -> None:
        while True:
            self._observer.turned(name)
            await self._surviving(step)
            await asyncio.sleep(seconds)

    async def _whenever_woken(self, step: Callable[[], Awaitable[None]], seconds: float, name: str) -> None:
        while True:
            self._observer.turned(name)
            self._wake.clear()
            await self._surviving(step)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _until_answered(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step that comes before the loops, again until the database answers or until nothing new may start."""
        answered = False
        while not (answered or self._draining):
            answered = await self._surviving(step)

    async def _surviving(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Do a step. If the database does not answer, report it once and return False: the step is left to the next
        time."""
        try:
            await step()
        except LeaseLost:
            return False  # the next renewal brings it back
        except DataflowError as error:
            if not self._patience.again(error):
                raise
            self._note_away(error)
            await asyncio.sleep(limits.RECONNECT_SECONDS)
            return False
        self._patience.answered()
        if self._away is not None:
            self._away = None
            self._observer.note("Postgres answers again")
        return True

    def _note_away(self, error: DataflowError) -> None:
        if self._away is not type(error):
            self._away = type(error)
            self._observer.note(f"{error} Runs go on; nothing new starts meanwhile.")
