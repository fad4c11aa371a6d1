"""One run around a script: claim, start, wait, complete. The same steps as the engine's, for one chunk.

The intent is committed before the script starts and the outcome before this ends. Killed at any moment, it leaves a run
that the next RunJob or engine of this machine proves dead and gives up as lost.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opendataflow.core.runs.completion import completion
from opendataflow.core.runs.wrapped import wrapped_order
from opendataflow.engine import limits
from opendataflow.engine.days import Clock, current_day, local_time
from opendataflow.engine.passwords import Passwords
from opendataflow.engine.patience import Patience
from opendataflow.engine.takeover import Takeover, policy_of
from opendataflow.errors import DataflowError, Refused, UnknownThing
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.claim import BeforeClaim, Claimed, ClaimedRun, Completed, Completion, DeclaredJob
from opendataflow.model.records.run import Ended
from opendataflow.names import TODAY, ExitCode, RunState
from opendataflow.runjob import words
from opendataflow.stdio import write_line
from opendataflow.store.store import Store

_CLAIM_TRIES = 20
_STOPPED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class Wrap:
    """What to run: the job, the program with its arguments, and a data id where only one is wanted.

    `forced_by`: who wants it in spite of the rules of readiness; None: nobody.
    """

    job: str
    argv: tuple[str, ...]
    data_id: str | None = None
    forced_by: str | None = None


class Wrapper:
    """Does one run. `say`: prints a line on standard output."""

    def __init__(
        self,
        store: Store,
        launcher: ProcessLauncher,
        passwords: Passwords,
        say: Callable[[str], None],
        clock: Clock = local_time,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._passwords = passwords
        self._say = say
        self._clock = clock
        self._actor = f"engine {launcher.host.name}"
        self._lease = _new_lease()
        self._run: int | None = None
        self._stopped = asyncio.Event()

    async def once(self, wrap: Wrap) -> int:
        """Run one chunk if one is ready; return the exit code: the script's, or 75 where nothing can run."""
        before = await self._store.facts_before_claim(wrap.job)
        self._check_passwords(before.declared)
        wrap = await self._prepared(wrap, before)
        await self._launcher.announce(self._lease)
        renewing = asyncio.create_task(self._renew())
        try:
            code = await self._once(wrap)
            await self._launcher.depart(self._lease)
            return code
        finally:
            renewing.cancel()

    async def stop(self) -> None:
        """Start nothing, and end the script; its chunk is given back."""
        self._stopped.set()
        if self._run is not None:
            await self._launcher.kill(self._run, cancelled=False)

    async def _prepared(self, wrap: Wrap, before: BeforeClaim) -> Wrap:
        """Do what may make the chunk claimable; a job that reads `today` takes the current day."""
        if before.running:
            await Takeover(self._store, self._launcher, self._lease, _warn).look([wrap.job])
        if any(row["id"] == TODAY for row in before.declared.datasets):
            day = current_day(self._clock)
            await self._store.publish_today([wrap.job], day, self._actor, catch_up=False)
            wrap = replace(wrap, data_id=wrap.data_id or day)
        if before.running or before.due:
            await self._store.retry_due()
        if wrap.forced_by is not None and wrap.data_id is not None:
            await self._force(wrap.job, wrap.data_id, wrap.forced_by)
        return wrap

    async def _force(self, job: str, data_id: str, actor: str) -> None:
        (answer,) = await self._store.call_verb("force", job, [data_id], actor, "dataflow run --force")
        if answer.result == "unknown":
            raise UnknownThing(answer.message or f"job {job} has no task for {data_id}")
        if answer.result == "refused":
            raise Refused(answer.message or f"{data_id} of job {job} can't be forced")

    async def _once(self, wrap: Wrap) -> int:
        claimed = await self._claim(wrap)
        if claimed is None or claimed.declared is None:
            with suppress(DataflowError):  # a lease that can't be closed ends by itself
                await self._store.close_lease(self._lease)
            if self._stopped.is_set():
                _warn("stopped before it claimed a chunk")
                return _STOPPED
            await self._say_why(wrap)
            return ExitCode.NOTHING_READY
        (run,) = claimed.runs
        return await self._around(run, claimed.declared, wrap.argv)

    def _check_passwords(self, declared: DeclaredJob) -> None:
        """Open them before anything is claimed: a wrong passkey must not cost a chunk its attempt."""
        self._passwords.variables(declared.datasets)
        for variable in self._passwords.missing(declared.datasets):
            _warn(f"{variable} is not set: no passkey is given")

    async def _claim(self, wrap: Wrap) -> Claimed | None:
        """Take one task; where its chunks were locked by somebody at that moment, try again."""
        host, home = self._launcher.host, self._launcher.runs_home
        for _ in range(_CLAIM_TRIES):
            if self._stopped.is_set():
                return None
            claimed = await self._store.claim_one(self._lease, host, home, limits.LEASE_SECONDS, wrap.job, wrap.data_id)
            if claimed.runs:
                return claimed
            if not claimed.dropped:
                return None
            await asyncio.sleep(limits.DROPPED_SECONDS)
        return None

    async def _say_why(self, wrap: Wrap) -> None:
        self._say(words.nothing(self._clock()))
        if wrap.data_id is not None:
            from opendataflow.core.text.explain import explain  # for those who have found nothing

            why = await self._store.why(wrap.job, wrap.data_id)
            for sentence in explain(why) if why else [f"job {wrap.job} has no task for {wrap.data_id}"]:
                _warn(sentence)
            return
        status = await self._store.job_status(wrap.job)
        if status and status["breaker"]:
            from opendataflow.core.text.explain import breaker_sentence

            _warn(breaker_sentence(status["breaker"]))
        row = (await self._store.declared_jobs([wrap.job]))[wrap.job].job
        (progress,) = await self._store.progress([wrap.job])
        counts = ", ".join(f"{n} {state}" for state, n in sorted(progress.counts.items()))
        limit = "is suspended" if row["suspended"] else f"runs {row['parallelism']} at a time"
        _warn(f"job {wrap.job} {limit}: {counts or 'no chunks yet'}; see: dataflow status {wrap.job}")

    async def _around(self, run: ClaimedRun, declared: DeclaredJob, argv: tuple[str, ...]) -> int:
        self._say(words.launching(self._clock(), argv[0], run.data_id))
        ended = await self._execute(run, declared, argv)
        done = completion(run, ended, policy_of(declared))
        succeeded = done.state is RunState.SUCCEEDED
        self._say(words.ended(self._clock(), argv[0], succeeded=succeeded))
        result = await self._complete(done)
        await self._launcher.release(run.name)
        if result.run_state is not done.state:
            _warn(f"run {run.run} was ended by somebody else: it is {result.run_state}, and nothing was updated")
            return exit_code(ended) or ExitCode.FAILED
        inputs = sum(row["itemtype"] == "IN" and row["id"] != TODAY for row in declared.datasets)
        outputs = sum(row["itemtype"] == "OUT" for row in declared.datasets)
        status = "READY" if succeeded else "FAILED"
        self._say(words.updated(status, run.job, run.data_id, outputs=outputs, inputs=inputs))
        if not succeeded and done.reason:
            _warn(f"{done.message}; it costs no attempt, the breaker is open" if result.spared else done.reason)
        if result.breaker is not None:
            from opendataflow.core.text.explain import breaker_note

            _warn(breaker_note(run.job, result.breaker))
        return exit_code(ended)

    async def _execute(self, run: ClaimedRun, declared: DeclaredJob, argv: tuple[str, ...]) -> Ended:
        try:
            order = wrapped_order(run, declared, argv, Path.cwd(), self._passwords.variables(declared.datasets))
        except DataflowError as error:
            _warn(str(error))
            return Ended(run.run, exit_code=126, log_tail=str(error))
        self._run = run.run
        if self._stopped.is_set():
            return Ended(run.run, lost="stopped before it started")
        await self._launcher.start(order)
        if self._stopped.is_set():  # it may have come between
            await self._launcher.kill(run.run, cancelled=False)
        return await self._launcher.ended()

    async def _complete(self, done: Completion) -> Completed:
        """Commit the outcome, for as long as it takes: it is never given up while Postgres is away."""
        patience = Patience()
        while True:
            try:
                completed, _ = await self._store.complete([done], self._actor, closing=self._lease)
                return completed[0]
            except DataflowError as error:
                if not patience.again(error):
                    raise
                _warn(f"{error} The outcome waits until it answers.")
                await asyncio.sleep(limits.RENEW_SECONDS)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(limits.RENEW_SECONDS)
            try:
                await self._store.renew_lease(self._lease, limits.LEASE_SECONDS)
            except DataflowError as error:
                _warn(str(error))


def exit_code(ended: Ended) -> int:
    """The exit code to pass on: the script's own, 128 and the signal as a shell tells it, 143 where it was stopped."""
    if ended.exit_code is not None:
        return ended.exit_code
    return 128 + ended.signal if ended.signal else _STOPPED


def _new_lease() -> str:
    """Return a random UUID; the module for them takes longer to import than the rest of this one."""
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _warn(text: str) -> None:
    write_line(sys.stderr, text)
