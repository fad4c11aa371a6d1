"""The loop of the engine: claim, start, watch, complete and release runs.

The intent of a run (its row, fencing token and locks) is committed before the launcher starts it. Its outcome is
committed before the launcher releases it. So this process may end at any moment: the next one can continue each run.
While Postgres does not answer, runs go on, no run starts, and outcomes wait in memory.

This module never decides which task is queued (Postgres does), never judges an end (core/ does) and never touches a
process.
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
from opendataflow.engine.database_retries import DatabaseRetries, concerns_one_request
from opendataflow.engine.days import Clock, current_day, local_time
from opendataflow.engine.declaring import batches
from opendataflow.engine.ports import ClaimAuthority, Launcher, Observer, OrderMaker
from opendataflow.engine.starts import Starts
from opendataflow.engine.view import JobView
from opendataflow.errors import DataflowError, HistoryLost, LeaseLost
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion, DeclaredJob, Position, Progress
from opendataflow.model.records.run import Ended
from opendataflow.names import TODAY, TaskState
from opendataflow.store.store import Store

OrderT = TypeVar("OrderT")
UNFINISHED = (TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING)


class Engine(Generic[OrderT]):
    """Runs the tasks of some jobs until it is stopped, or (with `until_caught_up`) until no task is left to do.

    `makers`: the order makers by job. Its owner may change it at any time, and calls `refresh_jobs` then.
    `parallelism`: the maximum number of active runs of all jobs. `namespace_parallelism`: of the jobs of one namespace;
    None for no limit.
    """

    def __init__(  # noqa: PLR0913  # called once, by a composition root
        self,
        store: Store,
        launcher: Launcher[OrderT],
        authority: ClaimAuthority,
        makers: Mapping[str, OrderMaker[OrderT]],
        observer: Observer,
        *,
        parallelism: int,
        namespace_parallelism: int | None = None,
        until_caught_up: bool = False,
        clock: Clock = local_time,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._makers = makers
        self._observer = observer
        self._parallelism = parallelism
        self._namespace_parallelism = namespace_parallelism
        self._until_caught_up = until_caught_up
        self._clock = clock
        self._published: tuple[str, frozenset[str]] | None = None  # the day, and the jobs that it was published for
        self._authority = authority
        self._actor = f"engine {launcher.host.name}"
        self._jobs: dict[str, JobView] = {}
        self._runs: dict[int, ClaimedRun] = {}
        self._wake = asyncio.Event()
        self._finished = asyncio.Event()
        self._outcomes: asyncio.Queue[Ended] = asyncio.Queue()
        self._starts = Starts(launcher, makers, authority, observer, self._outcomes.put_nowait)
        self._starting: set[asyncio.Task[None]] = set()
        self._draining = False
        self._leaving = False
        self._uncertain = True  # an earlier process may have left runs behind under this lease
        self._changed = False
        self._adopt_at = 0.0
        self._outage: type[DataflowError] | None = None
        self._retries = DatabaseRetries()

    # -- public methods --------------------------------------------------------------------------------------

    async def run(self, prepare: Callable[[], Awaitable[None]] | None = None) -> list[Progress]:
        """Run until the end and return the progress of the jobs; an empty list after `leave`.

        `prepare`: called when this process holds the right to claim, before the first claim.
        """
        try:
            await self._authority.begin()
            await self._work(prepare)
        except asyncio.CancelledError:  # nothing was claimed, but it may lead
            await asyncio.create_task(self._hand_over())  # the store does nothing more for a cancelled task
            raise
        except BaseExceptionGroup as group:
            error = group.exceptions[0]
            await self._hand_over(str(error) if isinstance(error, DataflowError) else type(error).__name__)
            # An error in any loop ends the process. Only the first error is reported.
            raise error from group
        finally:
            await self._launcher.close()
        if self._leaving:  # Postgres may be unreachable
            await self._hand_over()
            return []
        progress = await self._retries.until_answered(
            lambda: self._store.progress(list(self._makers)), self._report_outage
        )
        await self._retries.until_answered(self._authority.end, self._report_outage)
        return progress

    async def _hand_over(self, reason: str | None = None) -> None:
        """Give up the leadership after an error, so that another operator leads soon.

        The lease of a local engine stays: its runs have to be proven dead first.
        """
        if self._authority.exclusive:
            with suppress(DataflowError, TimeoutError):
                async with asyncio.timeout(limits.HAND_OVER_SECONDS):
                    await self._authority.end(reason)

    async def _work(self, prepare: Callable[[], Awaitable[None]] | None) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            lease = group.create_task(self._every(limits.RENEW_SECONDS, self._authority.renew, "lease"))
            if prepare is not None:
                await prepare()
            await self._until_answered(self._refresh_jobs)
            await self._until_answered(self._publish_new_day)
            loops = [
                lease,
                group.create_task(self._whenever_woken(self._claim_all, limits.POLL_SECONDS, "claims")),
                group.create_task(self._every(limits.TAKEOVER_SECONDS, self._take_over, "takeovers")),
                group.create_task(self._every(limits.POLL_SECONDS, self._poll, "poll")),
                group.create_task(self._every(limits.POLL_SECONDS, self._declare, "declarations")),
                group.create_task(self._watch(), name="watch"),
                group.create_task(self._commit(), name="commits"),
                group.create_task(self._listen(), name="listen"),
            ]
            await self._finished.wait()
            for loop in loops:
                loop.cancel()

    def drain(self) -> None:
        """Start no more runs, and end when the active runs have ended."""
        self._draining = True
        self._wake.set()

    async def kill(self) -> None:
        """Start no more runs, and end the active runs now. Their tasks are retried."""
        self._starts.kill()
        self.drain()
        for run in list(self._runs):
            await self._launcher.kill(run, cancelled=False)

    def leave(self) -> None:
        """Start no more runs, and end at once. The active runs go on, and the next process adopts them."""
        self._leaving = True
        for start in self._starting:
            start.cancel()
        self.drain()

    def refresh_jobs(self) -> None:
        """Read the declared jobs again at once: an order maker or a limit has changed."""
        self._changed = self._uncertain = True
        self._wake.set()

    def queues(self) -> dict[str, int]:
        """Return the lengths of the queues: runs that wait for their start, and ends that wait for their commit."""
        return {"starts": len(self._starting), "ends": self._outcomes.qsize()}

    # -- claim and start -------------------------------------------------------------------------------------

    async def _claim_all(self) -> None:
        """Fill the free slots, then finish if nothing is left to wait for."""
        if self._changed:
            self._changed = False  # reset first: a later change needs another refresh
            await self._refresh_jobs()
        if not self._draining and (self._uncertain or time.monotonic() > self._adopt_at):
            await self._adopt_own()
        while not self._draining and self._authority.holds():
            orders = plan(self._demands(), self._parallelism - len(self._runs), self._rooms())
            if not orders:
                break
            for order in orders:
                await self._try_to_claim(order.job, order.limit)
        await self._finish_if_done()

    def _demands(self) -> list[Demand]:
        running: dict[str, int] = dict.fromkeys(self._jobs, 0)
        for run in self._runs.values():
            running[run.job] += 1
        demands = (view.demand(running[job]) for job, view in self._jobs.items() if job in self._makers)
        return [demand for demand in demands if demand is not None]

    def _rooms(self) -> dict[str, int] | None:
        """Return how many more runs each namespace may have. The runs of an operator live in namespaces."""
        if self._namespace_parallelism is None:
            return None
        rooms = {view.namespace: self._namespace_parallelism for view in self._jobs.values()}
        for run in self._runs.values():
            if run.runs_home in rooms:
                rooms[run.runs_home] -= 1
        return rooms

    async def _try_to_claim(self, job: str, limit: int) -> None:
        """Claim tasks of a job. If Postgres refuses that to an operator, pause this job only: others go on."""
        try:
            await self._claim(job, limit)
        except DataflowError as error:
            if not self._survives(error):
                raise
            self._jobs[job].claim_failed(limits.CLAIM_REFUSED_SECONDS)
            self._observer.note(f"job {job}: {error}; the next claim is in {limits.CLAIM_REFUSED_SECONDS:.0f} s")

    def _survives(self, error: DataflowError) -> bool:
        """Return whether an operator goes on with other jobs. A local engine ends: a person waits for its end."""
        return self._authority.exclusive and concerns_one_request(error)

    async def _claim(self, job: str, limit: int) -> None:
        view = self._jobs[job]
        now = time.monotonic()
        if view.position == Position():
            view.searched_at = now
        view.may_have_queued = False  # reset first: a wake-up during the claim must count
        self._uncertain = True  # until the answer arrives, claimed runs may exist that this process does not know
        claimed = await self._store.claim(self._authority.lease, job, limit, view.position)
        self._observer.observe_duration("claim", time.monotonic() - now)
        self._uncertain = False
        if claimed.declared is not None:
            view.declare(claimed.declared)
        for run in claimed.runs:
            self._begin(run, view.declared)
        if len(claimed.runs) == limit:
            view.position, view.may_have_queued = claimed.position, True
        elif view.position != Position() and now - view.searched_at > limits.REWIND_SECONDS:
            view.position, view.may_have_queued = Position(), True
        else:
            view.position, view.may_have_queued = claimed.position, view.may_have_queued or claimed.dropped > 0
        if claimed.dropped:
            await asyncio.sleep(limits.DROPPED_SECONDS)

    def _begin(self, run: ClaimedRun, declared: DeclaredJob, *, adopting: bool = False) -> None:
        self._runs[run.run] = run
        self._authority.record(run)
        self._observer.claimed(run)
        start = self._starts.start(run, declared, self._jobs[run.job], adopting=adopting)
        future = self._group.create_task(start, name=f"start of run {run.run}")
        self._starting.add(future)
        future.add_done_callback(self._starting.discard)

    async def _adopt_own(self) -> None:
        """Adopt runs of this lease that this process does not know.

        They belong to the previous leader, or to a claim whose connection broke before the answer. Such a claim may be
        committed much later, so this is repeated.
        """
        known = set(self._runs)  # before the query: a run that ends during the query must not be started again
        waiting = set(self._starts.adopting)
        running = [run for run, _ in await self._store.running_runs(self._authority.lease, own=True)]
        self._give_up_adopting(waiting - {run.run for run in running})
        found = [run for run in running if run.run not in known and run.run not in self._runs]
        if found:
            await self._refresh_jobs({run.job for run in found})
        for run in found:
            self._begin(run, self._jobs[run.job].declared, adopting=True)
        self._uncertain = False
        self._adopt_at = time.monotonic() + limits.TAKEOVER_SECONDS

    def _give_up_adopting(self, ended: Collection[int]) -> None:
        """Stop adopting runs that a person has ended. The commit reads their real state."""
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
            stuck = Counter(self._authority.unproven.values())  # only a person can end these runs
            going_on = [p for p in progress if self._jobs[p.job].active and not p.probed_in_vain]
            if not any(p.declaring or p.of(*UNFINISHED) > stuck[p.job] for p in going_on):
                self._finished.set()

    # -- watch and complete ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._outcomes.put(await self._launcher.ended())

    async def _commit(self) -> None:
        """Commit outcomes. Those that arrive during a commit, or shortly after it, go together into the next commit."""
        committed = 0.0
        while True:
            ended = [await self._outcomes.get()]
            gather = min(limits.GATHER_SECONDS * len(self._runs), limits.MOST_GATHER_SECONDS)
            await asyncio.sleep(max(0.0, committed + gather - time.monotonic()))
            while len(ended) < limits.COMMIT_BATCH and not self._outcomes.empty():
                ended.append(self._outcomes.get_nowait())
            ended = [self._starts.with_looks(end) for end in ended]
            runs = {end.run: self._runs[end.run] for end in ended}
            completions = [completion(runs[e.run], e, self._jobs[runs[e.run].job].policy) for e in ended]
            refused = await self._try_to_complete(completions, runs)
            for end in ended:
                if end.run in refused:
                    asyncio.get_running_loop().call_later(
                        limits.OUTCOME_REFUSED_SECONDS, self._outcomes.put_nowait, end
                    )
                    continue
                with suppress(OSError):  # leftover files do no harm
                    await self._launcher.release(self._runs.pop(end.run))
            committed = time.monotonic()
            self._wake.set()

    async def _try_to_complete(self, completions: list[Completion], runs: Mapping[int, ClaimedRun]) -> set[int]:
        """Commit outcomes, each alone if Postgres refuses them together. Return the runs whose outcome it refuses."""
        try:
            await self._complete(completions, runs)
        except DataflowError as error:
            if not self._survives(error):
                raise
            if len(completions) > 1:
                return {run for one in completions for run in await self._try_to_complete([one], runs)}
            (run,) = (runs[one.run] for one in completions)
            again = f"its outcome is committed again in {limits.OUTCOME_REFUSED_SECONDS:.0f} s"
            self._observer.note(f"run {run.run} of job {run.job}: {error}; {again}")
            return {run.run}
        return set()

    async def _complete(self, completions: list[Completion], runs: Mapping[int, ClaimedRun]) -> None:
        """Commit outcomes. Retry while Postgres is unreachable: an outcome is never dropped."""

        async def commit() -> tuple[list[Completed], list[str]]:
            begin = time.monotonic()
            lease = self._authority.lease if self._authority.exclusive else None
            answer = await self._store.complete(completions, self._actor, lease=lease)
            self._observer.observe_duration("commit", time.monotonic() - begin)
            return answer

        completed, woken = await self._retries.until_answered(commit, self._report_outage)
        results = {result.run: result for result in completed}
        if lost := [done.run for done in completions if done.run not in results]:
            raise HistoryLost(f"history was lost: the database does not know run {lost[0]}, which has ended here")
        for done in completions:
            result = results[done.run]
            self._observer.completed(done, runs[done.run], result)
            if result.breaker is not None:
                self._observer.note(breaker_note(runs[done.run].job, result.breaker))
        for job in {*woken, *(run.job for run in runs.values())}:
            self._wake_job(job)

    def _wake_job(self, job: str) -> None:
        """Record that a job may have QUEUED tasks."""
        view = self._jobs.get(job)
        if view is not None:
            view.wake()

    # -- loops and polling -----------------------------------------------------------------------------------

    async def _refresh_jobs(self, also: Collection[str] = ()) -> None:
        """Read the declarations of the jobs. `also`: jobs of runs that have no order maker any more."""
        jobs = {*self._makers, *also, *(run.job for run in self._runs.values())}
        for job, declared in (await self._store.declared_jobs(sorted(jobs))).items():
            view = self._jobs.setdefault(job, JobView(declared))
            maker = self._makers.get(job)
            view.declare(declared)
            matched, view.matches = view.matches, maker is not None and maker.matches(declared)
            if matched and not view.matches and maker is not None:
                self._observer.outdated(job)
        for job in set(self._jobs) - jobs - {run.job for run in self._runs.values()}:
            del self._jobs[job]

    async def _publish_new_day(self) -> None:
        """Publish the day, and missed ones, for the jobs that read `today` if the day or one of the jobs is new."""
        day = current_day(self._clock)
        readers = frozenset(job for job, view in self._jobs.items() if view.reads(TODAY))
        if (day, readers) != self._published:
            await self._store.publish_today(sorted(readers), day, self._actor, catch_up=True)
            self._published = day, readers

    async def _poll(self) -> None:
        """Check, once a second, for runs to cancel, due retries, changed jobs, a new day, and missed QUEUED tasks."""
        for run in await self._store.runs_to_cancel(self._authority.lease):
            self._starts.cancel(run)
            await self._launcher.kill(run, cancelled=True)  # no effect before its start; repeated a second later
        await self._store.retry_due()
        await self._refresh_jobs()
        await self._publish_new_day()
        for job in await self._store.claimable_jobs(list(self._jobs)):
            if job in self._jobs:
                self._jobs[job].may_have_queued, self._jobs[job].position = True, Position()
        self._wake.set()

    async def _declare(self) -> None:
        """Continue declarations of many chunks, whoever began them."""
        async for _ in batches(self._store, self._observer.note):
            self._observer.heartbeat("declarations")

    async def _take_over(self) -> None:
        for job in await self._authority.take_over():
            self._wake_job(job)
            self._wake.set()

    async def _listen(self) -> None:
        """Wake jobs when Postgres notifies about changes of others. The poll finds the same changes a second later."""

        async def listen() -> None:
            async with self._store.listening() as jobs:
                async for job in jobs:
                    self._wake_job(job)
                    self._wake.set()

        while True:
            await self._try_step(listen)

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]], name: str) -> None:
        while True:
            self._observer.heartbeat(name)
            await self._try_step(step)
            await asyncio.sleep(seconds)

    async def _whenever_woken(self, step: Callable[[], Awaitable[None]], seconds: float, name: str) -> None:
        while True:
            self._observer.heartbeat(name)
            self._wake.clear()
            await self._try_step(step)
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _until_answered(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step that comes before the loops until the database answers or the engine drains."""
        answered = False
        while not (answered or self._draining):
            answered = await self._try_step(step)

    async def _try_step(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Do a step. If the database does not answer, report it once and return False: the caller may try again."""
        try:
            await step()
        except LeaseLost:
            return False  # the next renewal acquires it again
        except DataflowError as error:
            if not self._retries.should_retry(error):
                raise
            self._report_outage(error)
            await asyncio.sleep(limits.RECONNECT_SECONDS)
            return False
        self._retries.reset()
        if self._outage is not None:
            self._outage = None
            self._observer.note("Postgres answers again")
        return True

    def _report_outage(self, error: DataflowError) -> None:
        if self._outage is not type(error):
            self._outage = type(error)
            self._observer.note(f"{error} Runs go on; nothing new starts meanwhile.")
