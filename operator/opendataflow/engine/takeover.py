"""Takes over the runs of engines that have ended: each is proven dead, then committed as lost.

Proof of death comes first, always: a run that may still write is left alone, and a person is told what to do.
"""

from collections.abc import Callable, Collection

from opendataflow.core.runs.completion import completion
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.engine.ports import LocalLauncher
from opendataflow.model.records.claim import ClaimedRun, Completed, DeclaredJob
from opendataflow.model.records.run import Ended, Proof, Report
from opendataflow.store.store import Store


def policy_of(declared: DeclaredJob) -> RetryPolicy:
    """The retry policy of a job as Postgres remembers it."""
    row = declared.job
    return RetryPolicy(
        limit=row["retry_limit"],
        infrastructure_limit=row["infrastructure_limit"],
        initial=row["backoff_initial"],
        factor=row["backoff_factor"],
        maximum=row["backoff_maximum"],
    )


async def lose(
    store: Store, run: ClaimedRun, reason: str, actor: str, told: Report | None = None
) -> tuple[Completed, list[str]]:
    """Commit a run as lost; return what it is now and the jobs that have QUEUED tasks. Whoever calls it knows it dead.
    `told`: what it has said of itself."""
    declared = (await store.declared_jobs([run.job]))[run.job]
    ended = Ended(run.run, lost=reason, report=told or Report())
    completed, woken = await store.complete([completion(run, ended, policy_of(declared))], actor)
    return completed[0], woken


class Takeover:
    """Looks after the runs of others on behalf of one engine. `note`: tells a person, once for each run."""

    def __init__(self, store: Store, launcher: LocalLauncher, lease: str, note: Callable[[str], None]) -> None:
        self._store = store
        self._launcher = launcher
        self._lease = lease
        self._actor = f"engine {launcher.host.name}"
        self._note = note
        self.unproven: dict[int, str] = {}
        """Runs that have no engine any more and are not known to be dead, with their jobs."""

    async def look(self, jobs: Collection[str] | None = None) -> set[str]:
        """Take over what can be proven dead, of some jobs or of all; return the jobs that may have QUEUED tasks now."""
        woken: set[str] = set()
        for run, lease_lives in await self._store.running_runs(self._lease, own=False):
            if jobs is not None and run.job not in jobs:
                continue
            proof = await self._prove_dead(run)
            if proof.dead:
                woken |= await self._lose(run, proof.reason)
            elif not lease_lives and not proof.alive and run.run not in self.unproven:
                self.unproven[run.run] = run.job
                self._note(
                    f"{run.job} {run.data_id}: run {run.run} has no engine any more and is not known to be dead: "
                    f"{proof.reason}. If it is: dataflow lost {run.run}"
                )
        return woken

    async def _prove_dead(self, run: ClaimedRun) -> Proof:
        if run.runs_home != self._launcher.runs_home:
            return Proof(False, f"its files are in {run.runs_home}, those of this engine in {self._launcher.runs_home}")
        owner = await self._launcher.owner_gone(run.lease, run.host)
        return await self._launcher.prove_dead(run.name, run.host) if owner.dead else owner

    async def _lose(self, run: ClaimedRun, reason: str) -> set[str]:
        self._note(f"{run.job} {run.data_id}: taken over from an engine that has ended: {reason}")
        told = await self._launcher.left_behind(run.name)
        _, woken = await lose(self._store, run, f"its engine has ended; {reason}", self._actor, told)
        await self._launcher.release(run.name)
        return {*woken, run.job}
