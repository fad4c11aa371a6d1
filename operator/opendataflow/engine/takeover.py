"""Takes over the runs of engines that have ended. Each run is proven dead, then committed as lost.

A run that may still write is never committed as lost. Instead a message says what the user must do.
"""

from collections.abc import Callable, Collection

from opendataflow.core.runs.completion import completion
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.engine.ports import LocalLauncher
from opendataflow.model.records.claim import ClaimedRun, Completed, DeclaredJob
from opendataflow.model.records.run import Ended, Proof, Report
from opendataflow.store.store import Store


def retry_policy(declared: DeclaredJob) -> RetryPolicy:
    """Return the retry policy of a job, as declared in Postgres."""
    row = declared.job
    return RetryPolicy(
        limit=row["retry_limit"],
        infrastructure_limit=row["infrastructure_limit"],
        initial=row["backoff_initial"],
        factor=row["backoff_factor"],
        maximum=row["backoff_maximum"],
    )


async def commit_lost(
    store: Store, run: ClaimedRun, reason: str, actor: str, report: Report | None = None
) -> tuple[Completed, list[str]]:
    """Commit a run as lost. Return the result and the jobs that have QUEUED tasks.

    The caller has proof that the run is dead. `report`: the steps that the run reported.
    """
    declared = (await store.declared_jobs([run.job]))[run.job]
    ended = Ended(run.run, lost=reason, report=report or Report())
    completed, woken = await store.complete([completion(run, ended, retry_policy(declared))], actor)
    return completed[0], woken


class Takeover:
    """Takes over runs on behalf of one engine. `note`: prints a line, once for each run."""

    def __init__(self, store: Store, launcher: LocalLauncher, lease: str, note: Callable[[str], None]) -> None:
        self._store = store
        self._launcher = launcher
        self._lease = lease
        self._actor = f"engine {launcher.host.name}"
        self._note = note
        self.unproven: dict[int, str] = {}
        """The runs, with their jobs, whose engine has ended and that are not proven dead."""

    async def take_over(self, jobs: Collection[str] | None = None) -> set[str]:
        """Take over the runs of `jobs` (None: all) that can be proven dead. Return jobs that may have QUEUED tasks."""
        woken: set[str] = set()
        for run, lease_lives in await self._store.running_runs(self._lease, own=False):
            if jobs is not None and run.job not in jobs:
                continue
            proof, queued = await self._take_over_if_dead(run)
            woken |= queued
            if not (proof.dead or lease_lives or proof.alive or run.run in self.unproven):
                self.unproven[run.run] = run.job
                self._note(
                    f"{run.job} {run.data_id}: run {run.run} has no engine any more and is not known to be dead: "
                    f"{proof.reason}. If it is: dataflow lost {run.run}"
                )
        return woken

    async def _take_over_if_dead(self, run: ClaimedRun) -> tuple[Proof, set[str]]:
        launcher = self._launcher.of_home(run.runs_home)
        if launcher is None:
            here = self._launcher.runs_home
            return Proof(False, f"its files are in {run.runs_home}, those of this engine in {here}"), set()
        proof = await launcher.prove_owner_dead(run.lease, run.host)
        if proof.dead:
            proof = await launcher.prove_dead(run.name, run.host)
        return proof, await self._take_over_run(launcher, run, proof.reason) if proof.dead else set()

    async def _take_over_run(self, launcher: LocalLauncher, run: ClaimedRun, reason: str) -> set[str]:
        self._note(f"{run.job} {run.data_id}: taken over from an engine that has ended: {reason}")
        report = await launcher.recover_report(run.name)
        _, woken = await commit_lost(self._store, run, f"its engine has ended; {reason}", self._actor, report)
        await launcher.release(run)
        return {*woken, run.job}
