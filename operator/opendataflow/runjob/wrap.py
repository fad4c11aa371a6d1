"""Runs one chunk around a script: claim, start, wait, complete. These are the engine's steps, for one chunk.

The claim is committed before the script starts, and the outcome before this process exits. If the process is killed, it
leaves an active run. The next RunJob or engine of this machine proves that run dead and marks it as lost.
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
from opendataflow.core.runs.wrapped import check_wrapped, wrapped_order
from opendataflow.engine import limits
from opendataflow.engine.database_retries import DatabaseRetries
from opendataflow.engine.days import Clock, current_day, local_time
from opendataflow.engine.passwords import Passwords
from opendataflow.engine.takeover import Takeover, retry_policy
from opendataflow.errors import DataflowError, HistoryLost, Refused, UnknownThing
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.claim import BeforeClaim, Claimed, ClaimedRun, Completed, Completion, DeclaredJob
from opendataflow.model.records.run import Ended
from opendataflow.names import TODAY, ExitCode, RunState
from opendataflow.runjob import messages
from opendataflow.runjob.programs import check_program, locate
from opendataflow.stdio import write_line
from opendataflow.store.store import Store

_CLAIM_TRIES = 20
_MOST_NAMED = 20
"""The number of jobs that an error lists."""
_STOPPED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class WrappedCommand:
    """A job, the program with its arguments, and the data id. None: the first ready one.

    `forced_by`: the actor who runs the chunk although it is not ready. None: only a ready chunk is run. `beside`: a
    folder in which a relative program is looked for, too. `literal`: whether `$NAME` in arguments stays as it is.
    """

    job: str
    argv: tuple[str, ...]
    data_id: str | None = None
    forced_by: str | None = None
    beside: Path | None = None
    literal: bool = True


class ScriptRunner:
    """Runs a script for one chunk. `print_line`: prints a line on standard output. `database`: its name for people."""

    def __init__(
        self,
        store: Store,
        launcher: ProcessLauncher,
        passwords: Passwords,
        print_line: Callable[[str], None],
        database: str,
        clock: Clock = local_time,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._passwords = passwords
        self._print = print_line
        self._database = database
        self._program = ""
        self._clock = clock
        self._actor = f"engine {launcher.host.name}"
        self._lease = _new_lease()
        self._run: ClaimedRun | None = None
        self._lost: HistoryLost | None = None
        self._stopped = asyncio.Event()

    async def run(self, wrapped: WrappedCommand) -> int:
        """Run one chunk if one is ready. Return the script's exit code, or 75 if no chunk can run."""
        try:
            before = await self._store.facts_before_claim(wrapped.job)
        except UnknownThing:
            raise await self._unknown_job(wrapped.job) from None
        check_wrapped(before.declared)
        self._program = _startable(wrapped, before.declared)
        self._check_passwords(before.declared)
        self._launcher.check_space()
        wrapped = await self._prepare(wrapped, before)
        await self._launcher.announce(self._lease)
        renewing = asyncio.create_task(self._renew())
        try:
            code = await self._claim_and_run(wrapped)
            await self._launcher.withdraw(self._lease)
            return code
        finally:
            renewing.cancel()

    async def stop(self) -> None:
        """Start nothing, and end the script. Its task is tried again."""
        self._stopped.set()
        if self._run is not None:
            await self._launcher.kill(self._run.run, cancelled=False)

    async def _prepare(self, wrapped: WrappedCommand, before: BeforeClaim) -> WrappedCommand:
        """Make the chunk claimable if possible: take over dead runs, publish the current day, retry due tasks.

        Return the command, with the current day as its data id if the job reads `today`.
        """
        if before.running:
            await Takeover(self._store, self._launcher, self._lease, _warn).take_over([wrapped.job])
        if any(row["id"] == TODAY for row in before.declared.datasets):
            day = current_day(self._clock)
            await self._store.publish_today([wrapped.job], day, self._actor, catch_up=False)
            wrapped = replace(wrapped, data_id=wrapped.data_id or day)
        if before.running or before.due:
            await self._store.retry_due()
        if wrapped.forced_by is not None and wrapped.data_id is not None:
            await self._force(wrapped.job, wrapped.data_id, wrapped.forced_by)
        return wrapped

    async def _force(self, job: str, data_id: str, actor: str) -> None:
        (answer,) = await self._store.call_verb("force", job, [data_id], actor, "dataflow run --force")
        if answer.result == "unknown":
            raise UnknownThing(answer.message or f"job {job} has no task for {data_id}")
        if answer.result == "refused":
            raise Refused(answer.message or f"{data_id} of job {job} can't be forced")

    async def _claim_and_run(self, wrapped: WrappedCommand) -> int:
        claimed = await self._claim(wrapped)
        if claimed is None or claimed.declared is None:
            with suppress(DataflowError):  # a lease that can't be closed expires
                await self._store.close_lease(self._lease)
            if self._stopped.is_set():
                _warn("stopped before it claimed a chunk")
                return _STOPPED
            await self._explain_nothing_ready(wrapped)
            return ExitCode.NOTHING_READY
        (run,) = claimed.runs
        return await self._run_claimed(run, claimed.declared, wrapped)

    async def _unknown_job(self, job: str) -> UnknownThing:
        known = sorted(row["job"] for row in await self._store.list_jobs())
        more = " …" if len(known) > _MOST_NAMED else ""
        listed = (
            f"its jobs are {', '.join(known[:_MOST_NAMED])}{more}" if known else "it has none: dataflow apply -f FILE"
        )
        return UnknownThing(f"there is no job {job} in {self._database}; {listed}")

    def _check_passwords(self, declared: DeclaredJob) -> None:
        """Open all passwords before the claim, so that a wrong passkey does not consume an attempt."""
        self._passwords.variables(declared.datasets)
        for variable in self._passwords.missing(declared.datasets):
            _warn(f"{variable} is not set: no passkey is given")

    async def _claim(self, wrapped: WrappedCommand) -> Claimed | None:
        """Claim one task. Retry if its chunks are locked by another transaction. Return None if no task is ready."""
        host, home = self._launcher.host, self._launcher.runs_home
        for _ in range(_CLAIM_TRIES):
            if self._stopped.is_set():
                return None
            claimed = await self._store.claim_one(
                self._lease, host, home, limits.LEASE_SECONDS, wrapped.job, wrapped.data_id
            )
            if claimed.runs:
                return claimed
            if not claimed.dropped:
                return None
            await asyncio.sleep(limits.DROPPED_SECONDS)
        return None

    async def _explain_nothing_ready(self, wrapped: WrappedCommand) -> None:
        self._print(messages.nothing_ready(self._clock()))
        if wrapped.data_id is not None:
            from opendataflow.core.text.explain import explain  # only here, to start fast

            why = await self._store.why(wrapped.job, wrapped.data_id)
            for sentence in explain(why) if why else [f"job {wrapped.job} has no task for {wrapped.data_id}"]:
                _warn(sentence)
            return
        status = await self._store.job_status(wrapped.job)
        if status and status["breaker"]:
            from opendataflow.core.text.explain import breaker_sentence

            _warn(breaker_sentence(status["breaker"]))
        row = (await self._store.declared_jobs([wrapped.job]))[wrapped.job].job
        (progress,) = await self._store.progress([wrapped.job])
        counts = ", ".join(f"{n} {state}" for state, n in sorted(progress.counts.items()))
        counts += f", {progress.stale} of them stale" if progress.stale else ""
        counts += ", and more are being declared" if progress.declaring else ""
        limit = "is suspended" if row["suspended"] else f"runs {row['parallelism']} at a time"
        _warn(f"job {wrapped.job} {limit}: {counts or 'no chunks yet'}; see: dataflow status {wrapped.job}")

    async def _run_claimed(self, run: ClaimedRun, declared: DeclaredJob, wrapped: WrappedCommand) -> int:
        script = wrapped.argv[0]
        self._print(messages.launching(self._clock(), script, run.data_id))
        ended = await self._execute(run, declared, wrapped)
        if self._lost is not None:
            raise self._lost
        done = completion(run, ended, retry_policy(declared))
        succeeded = done.state is RunState.SUCCEEDED
        self._print(messages.ended(self._clock(), script, succeeded=succeeded))
        result = await self._complete(done)
        await self._launcher.release(run)
        if result.run_state is not done.state:
            _warn(f"run {run.run} was ended by somebody else: it is {result.run_state}, and nothing was updated")
            return exit_code(ended) or ExitCode.FAILED
        inputs = sum(row["itemtype"] == "IN" and row["id"] != TODAY for row in declared.datasets)
        outputs = sum(row["itemtype"] == "OUT" for row in declared.datasets)
        status = "READY" if succeeded else "FAILED"
        self._print(messages.updated(status, run.job, run.data_id, outputs=outputs, inputs=inputs))
        if not succeeded and done.reason:
            _warn(f"{done.message}; it costs no attempt, the breaker is open" if result.spared else done.reason)
        if result.breaker is not None:
            from opendataflow.core.text.explain import breaker_note

            _warn(breaker_note(run.job, result.breaker))
        return exit_code(ended)

    async def _execute(self, run: ClaimedRun, declared: DeclaredJob, wrapped: WrappedCommand) -> Ended:
        try:
            passwords = self._passwords.variables(declared.datasets)
            cwd, literal = Path.cwd(), wrapped.literal
            order = wrapped_order(run, declared, wrapped.argv, cwd, passwords, program=self._program, literal=literal)
        except DataflowError as error:
            _warn(str(error))
            return Ended(run.run, exit_code=126, log_tail=str(error))
        self._run = run
        if self._stopped.is_set():
            return Ended(run.run, lost="stopped before it started")
        await self._launcher.start(order)
        if self._stopped.is_set():  # a signal may have arrived during the start
            await self._launcher.kill(run.run, cancelled=False)
        return await self._launcher.ended()

    async def _complete(self, done: Completion) -> Completed:
        """Commit the outcome. Retry without limit while Postgres is unreachable."""
        retries = DatabaseRetries()
        while True:
            try:
                completed, _ = await self._store.complete([done], self._actor, closing=self._lease)
                if not completed:
                    raise HistoryLost(
                        f"history was lost: the database does not know run {done.run}, which has ended here"
                    )
                return completed[0]
            except DataflowError as error:
                if not retries.should_retry(error):
                    raise
                _warn(f"{error} The outcome waits until it answers.")
                await asyncio.sleep(limits.RENEW_SECONDS)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(limits.RENEW_SECONDS)
            try:
                await self._store.renew_lease(self._lease, limits.LEASE_SECONDS, self._run)
            except HistoryLost as error:  # the chunk may be claimed by others
                self._lost = error
                await self.stop()
                return
            except DataflowError as error:
                _warn(str(error))


def _startable(wrapped: WrappedCommand, declared: DeclaredJob) -> str:
    """Return how the system starts the program. Raise InvalidInput, before any claim, if it can't."""
    path = declared.job["env"].get("PATH", os.environ.get("PATH"))
    program = locate(wrapped.argv[0], path, wrapped.beside) or wrapped.argv[0]
    check_program(program, path)
    return program


def exit_code(ended: Ended) -> int:
    """Return the script's exit code, 128 plus the signal that ended the script, or 143 if the script was stopped."""
    if ended.exit_code is not None:
        return ended.exit_code
    return 128 + ended.signal if ended.signal else _STOPPED


def _new_lease() -> str:
    """Return a random UUID, without the slow import of the module `uuid`."""
    digits = os.urandom(16).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _warn(text: str) -> None:
    write_line(sys.stderr, text)
