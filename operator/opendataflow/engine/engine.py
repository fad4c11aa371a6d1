"""The loop that every run's life goes through: claim, start, watch, complete, release.

The intent of a run (its row, fence and locks) is committed before the launcher hears of it, and its outcome before
the launcher forgets it; whatever the moment at which this process ends, the next one finds each run in a state that
it can go on from. While Postgres does not answer, runs go on, nothing new starts, and outcomes wait here.

It never decides which work is ready (Postgres does), never judges an end (core/ does) and never touches a process.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from opendataflow.core.completion import completion
from opendataflow.core.explain import breaker_note
from opendataflow.core.plan import Demand, plan
from opendataflow.core.retry import RetryPolicy
from opendataflow.engine import limits
from opendataflow.engine.days import Clock, current_day, local_time
from opendataflow.engine.patience import Patience
from opendataflow.engine.ports import Launcher, Observer, OrderMaker
from opendataflow.engine.takeover import Takeover, policy_of
from opendataflow.errors import DataflowError, LeaseLost
from opendataflow.model.claim import ClaimedRun, Completion, DeclaredJob, Position, Progress
from opendataflow.model.run import Ended
from opendataflow.names import WorkState
from opendataflow.store.store import Store

UNFINISHED = (WorkState.READY, WorkState.RUNNING, WorkState.RETRY)


@dataclass
class _JobView:
    """What this engine remembers of a job between two claims; Postgres holds the truth."""

    declared: DeclaredJob
    fits: bool = True
    position: Position = field(default_factory=Position)
    hungry: bool = True
    searched_at: float = 0.0

    @property
    def runnable(self) -> bool:
        row = self.declared.job
        return self.fits and not row["suspended"] and not row["deleted"] and row["parallelism"] > 0

    @property
    def policy(self) -> RetryPolicy:
        return policy_of(self.declared)


class Engine:
    """Runs the work of some jobs until it is told to stop, or until nothing is left that it could do."""

    def __init__(
        self,
        store: Store,
        launcher: Launcher,
        makers: Mapping[str, OrderMaker],
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
        self._lease = str(uuid.uuid4())
        self._lease_until = 0.0
        self._takeover = Takeover(store, launcher, self._lease, observer.note)
        self._actor = f"engine {launcher.host.name}"
        self._jobs: dict[str, _JobView] = {}
        self._runs: dict[int, ClaimedRun] = {}
        self._wake = asyncio.Event()
        self._finished = asyncio.Event()
        self._outcomes: asyncio.Queue[Ended] = asyncio.Queue()
        self._starts = asyncio.Semaphore(limits.STARTS_AT_ONCE)
        self._draining = False
        self._killing = False
        self._uncertain = False
        self._adopt_at = 0.0
        self._away: type[DataflowError] | None = None
        self._patience = Patience()

    # -- from outside ----------------------------------------------------------------------------------------

    async def run(self) -> list[Progress]:
        """Work until the end; return how far the jobs are."""
        await self._launcher.announce(self._lease)
        await self._open_lease()
        await self._look_at_jobs()
        await self._look_at_day()
        try:
            await self._work()
        except BaseExceptionGroup as group:
            # Any one of the loops ending ends the process; the first reason is the one to tell.
            raise group.exceptions[0] from group
        finally:
            await self._launcher.close()
        progress = await self._store.progress(list(self._makers))
        await self._store.close_lease(self._lease)
        await self._launcher.depart(self._lease)
        return progress

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            loops = [
                tasks.create_task(self._whenever_woken(self._claim_all, limits.PROBE_SECONDS), name="claims"),
                tasks.create_task(self._every(limits.RENEW_SECONDS, self._renew), name="lease"),
                tasks.create_task(self._every(limits.TAKEOVER_SECONDS, self._take_over), name="takeovers"),
                tasks.create_task(self._every(limits.PROBE_SECONDS, self._probe), name="probe"),
                tasks.create_task(self._watch(), name="watch"),
                tasks.create_task(self._commit(), name="commits"),
                tasks.create_task(self._listen(), name="listen"),
            ]
            await self._finished.wait()
            for loop in loops:
                loop.cancel()

    def drain(self) -> None:
        """Start nothing new; end when the runs have ended."""
        self._draining = True
        self._wake.set()

    async def kill(self) -> None:
        """Start nothing new and end the runs now; their work is tried again."""
        self._killing = True
        self.drain()
        for run in list(self._runs):
            await self._launcher.kill(run, cancelled=False)

    # -- claim and start -------------------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        """Fill the free slots, then see whether there is anything left to wait for."""
        if not self._draining and (self._uncertain or time.monotonic() > self._adopt_at):
            await self._adopt_own()
        while not self._draining and time.monotonic() < self._lease_until:
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
        return [
            Demand(job, view.declared.job["priority"], view.declared.job["parallelism"], running[job])
            for job, view in self._jobs.items()
            if view.hungry and view.runnable
        ]

    async def _claim(self, job: str, limit: int) -> None:
        view = self._jobs[job]
        now = time.monotonic()
        if view.position == Position():
            view.searched_at = now
        view.hungry = False  # whatever wakes the job while the claim is under way counts
        self._uncertain = True  # until the answer is here, runs may exist that nobody starts
        claimed = await self._store.claim(self._lease, job, limit, view.position)
        self._uncertain = False
        if claimed.declared is not None:
            view.declared = claimed.declared
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

    def _begin(self, run: ClaimedRun, declared: DeclaredJob) -> None:
        self._runs[run.run] = run
        self._observer.claimed(run)
        self._tasks.create_task(self._start(run, declared), name=f"start of run {run.run}")

    async def _start(self, run: ClaimedRun, declared: DeclaredJob) -> None:
        async with self._starts:
            if not self._makers[run.job].fits(declared):
                reason = "the job was applied with other data sets just before it started"
                await self._outcomes.put(Ended(run.run, lost=reason))
                return
            try:
                order = self._makers[run.job](run, declared)
            except DataflowError as error:
                await self._outcomes.put(Ended(run.run, exit_code=126, log_tail=str(error)))
                return
            # A lease that has ended may mean that another engine is proving this run dead right now.
            while time.monotonic() > self._lease_until and not self._killing:  # noqa: ASYNC110 # a clock sets no event
                await asyncio.sleep(limits.RECONNECT_SECONDS)
            if self._killing:
                await self._outcomes.put(Ended(run.run, lost="stopped before it started"))
            else:
                await self._launcher.start(order)
            if self._killing:  # it may have come between
                await self._launcher.kill(run.run, cancelled=False)

    async def _adopt_own(self) -> None:
        """Start runs that were claimed but whose claim was never answered, because the connection broke.

        A claim may be committed long after its connection broke, so this is done again and again.
        """
        known = set(self._runs)  # before the question: a run that ends meanwhile is not to be begun again
        running = [run for run, _ in await self._store.running_runs(self._lease, own=True)]
        found = [run for run in running if run.run not in known and run.run not in self._runs and run.job in self._jobs]
        if found:
            await self._look_at_jobs()
        for run in found:
            self._begin(run, self._jobs[run.job].declared)
        self._uncertain = False
        self._adopt_at = time.monotonic() + limits.TAKEOVER_SECONDS

    async def _finish_if_done(self) -> None:
        if self._runs:
            return
        if self._draining:
            self._finished.set()
        elif self._until_caught_up:
            progress = await self._store.progress(list(self._makers))
            stuck = Counter(self._takeover.unproven.values())  # nobody here can end what they wait for
            going_on = [p for p in progress if self._jobs[p.job].runnable and not p.probed_in_vain]
            if not any(p.of(*UNFINISHED) > stuck[p.job] for p in going_on):
                self._finished.set()

    # -- watch and complete ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            ended = await self._launcher.ended()
            redact = self._makers[self._runs[ended.run].job].redactor()
            if redact is not None:
                ended = replace(ended, log_tail=await asyncio.to_thread(redact, ended.log_tail))
            await self._outcomes.put(ended)

    async def _commit(self) -> None:
        """Commit outcomes as they come; those that come while a commit is under way go together in the next."""
        while True:
            ended = [await self._outcomes.get()]
            while len(ended) < limits.COMMIT_BATCH and not self._outcomes.empty():
                ended.append(self._outcomes.get_nowait())
            runs = {end.run: self._runs[end.run] for end in ended}
            await self._complete([completion(runs[e.run], e, self._jobs[runs[e.run].job].policy) for e in ended], runs)
            for run in runs.values():
                del self._runs[run.run]
                with suppress(OSError):  # files that are left over disturb nobody
                    await self._launcher.release(run.name)
            self._wake.set()

    async def _complete(self, completions: list[Completion], runs: Mapping[int, ClaimedRun]) -> None:
        """Commit, for as long as it takes: an outcome is never given up while Postgres is away."""
        while True:
            try:
                completed, woken = await self._store.complete(completions, self._actor)
                break
            except DataflowError as error:
                if not self._patience.again(error):
                    raise
                self._note_away(error)
                await asyncio.sleep(limits.RECONNECT_SECONDS)
        results = {result.run: result for result in completed}
        for done in completions:
            result = results[done.run]
            self._observer.completed(done, runs[done.run], result)
            if result.breaker is not None:
                self._observer.note(breaker_note(runs[done.run].job, result.breaker))
        for job in {*woken, *(run.job for run in runs.values())}:
            self._feed(job)

    def _feed(self, job: str) -> None:
        """A job may have READY work: ask for it, from the start of its order unless that was done just now."""
        view = self._jobs.get(job)
        if view is None:
            return
        view.hungry = True
        if time.monotonic() - view.searched_at > limits.REWIND_SECONDS:
            view.position = Position()

    # -- around it -------------------------------------------------------------------------------------------

    async def _open_lease(self) -> None:
        before = time.monotonic()
        await self._store.open_lease(
            self._lease, "local", self._launcher.host, self._launcher.runs_home, limits.LEASE_SECONDS
        )
        self._lease_until = before + limits.LEASE_SECONDS

    async def _renew(self) -> None:
        before = time.monotonic()
        if await self._store.renew_lease(self._lease, limits.LEASE_SECONDS):
            self._lease_until = before + limits.LEASE_SECONDS
        else:
            await self._open_lease()

    async def _look_at_jobs(self) -> None:
        for job, declared in (await self._store.declared_jobs(list(self._makers))).items():
            view = self._jobs.setdefault(job, _JobView(declared))
            view.declared, fitted, view.fits = declared, view.fits, self._makers[job].fits(declared)
            if fitted and not view.fits:
                self._observer.note(
                    f"{job} was applied with other data sets than this engine's file has: nothing new of it starts "
                    "here; start the engine again with the new file"
                )

    async def _look_at_day(self) -> None:
        """Where a new day has begun: publish it, and those that an outage has cost, for the jobs that read `today`."""
        day = current_day(self._clock)
        if day != self._day:
            await self._store.publish_today(list(self._jobs), day, self._actor, catch_up=True)
            self._day = day

    async def _probe(self) -> None:
        """Once a second: runs to cancel, due retries, changed jobs, a new day, and READY work that was passed by."""
        for run in await self._store.runs_to_cancel(self._lease):
            await self._launcher.kill(run, cancelled=True)  # one that has not started yet: again a second later
        await self._store.retry_due()
        await self._look_at_jobs()
        await self._look_at_day()
        for job in await self._store.hungry(list(self._jobs)):
            self._jobs[job].hungry, self._jobs[job].position = True, Position()
        self._wake.set()

    async def _take_over(self) -> None:
        for job in await self._takeover.look():
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

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._surviving(step)
            await asyncio.sleep(seconds)

    async def _whenever_woken(self, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            self._wake.clear()
            await self._surviving(step)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _surviving(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step; where the database does not answer, say so once and leave it to the next time."""
        try:
            await step()
        except LeaseLost:
            pass  # the next renewal brings it back
        except DataflowError as error:
            if not self._patience.again(error):
                raise
            self._note_away(error)
            await asyncio.sleep(limits.RECONNECT_SECONDS)
        else:
            self._patience.answered()
            if self._away is not None:
                self._away = None
                self._observer.note("Postgres answers again")

    def _note_away(self, error: DataflowError) -> None:
        if self._away is not type(error):
            self._away = type(error)
            self._observer.note(f"{error} Runs go on; nothing new starts meanwhile.")
