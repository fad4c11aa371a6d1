"""What a change of declarations does, by the rules of docs/how-to/change-a-declaration.md: as sets, in plain Python.

`plan` says what a request would change and which consents it needs, `change` does it. Like the model of the store below
it, the oracle never looks at Postgres: all that the store keeps from step to step is computed here anew.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tests.sql.model import OPEN, Chunk, Job, Key, Model

Bounds = Mapping[str, int | str]
FINISHED = ("DONE", "RUNNING")


@dataclass(frozen=True)
class Request:
    """What is applied. `sources`: the ids and bounds of each data set whose chunk source is declared."""

    sources: Mapping[str, Mapping[str, Bounds | None]] = field(default_factory=dict)
    jobs: tuple[Job, ...] = ()

    @property
    def chunks(self) -> set[Key]:
        """The chunks of all declared sources."""
        return {(dataset, data_id) for dataset, ids in self.sources.items() for data_id in ids}

    @property
    def bounds(self) -> dict[Key, Bounds]:
        """The declared bounds; a list of ids says nothing about them."""
        return {(d, i): bounds for d, ids in self.sources.items() for i, bounds in ids.items() if bounds is not None}


@dataclass
class Changes:
    """A plan: what happens to which chunks and tasks. `finished`: the chunks of the plan that were processed."""

    chunks: dict[str, set[Key]] = field(default_factory=lambda: defaultdict(set))
    tasks: dict[str, set[Key]] = field(default_factory=lambda: defaultdict(set))
    finished: set[Key] = field(default_factory=set)

    @property
    def needs(self) -> list[str]:
        """The consents without which the request is refused."""
        found = {
            "retire": bool(self.chunks["retired"] & self.finished or self.tasks["retired"]),
            "overlap": bool(self.chunks["overlapping"]),
            "backfill": bool(self.tasks["incomplete"] or self.tasks["changed"]),
        }
        return [need for need, holds in found.items() if holds]


def bounds_overlap(one: Bounds | None, other: Bounds | None) -> bool:
    """Whether two chunks can have rows in common. Without bounds nobody knows, and no overlap is reported."""
    if one is None or other is None:
        return False
    if _kind(one) != _kind(other):
        return True  # the same rows, divided in two ways
    if _kind(one) != "hash":
        return bool(one["from"] < other["to"] and other["from"] < one["to"])  # type: ignore[operator]  # of one kind
    buckets = int(one["buckets"]) * int(other["buckets"])
    of_one, of_other = (set(range(int(b["bucket"]), buckets, int(b["buckets"]))) for b in (one, other))
    return bool(of_one & of_other)


def _kind(bounds: Bounds) -> str:
    if "buckets" in bounds:
        return "hash"
    return type(bounds["from"]).__name__


def spread(jobs: Iterable[Job], chunks: Iterable[Key], to: Callable[[Job, Key], bool]) -> set[Key]:
    """The given chunks, and those that follow: all chunks of a job that has one of them as its source, and so on."""
    found = new = set(chunks)
    links = [(job, source, dataset) for job in jobs for source in job.sources for dataset in job.datasets]
    while new:
        reached = {(job, (dataset, i)) for job, source, dataset in links for d, i in new if d == source}
        new = {key for job, key in reached if key not in found and to(job, key)}
        found = found | new
    return found


@dataclass
class SchemaOracle(Model):
    """The model of the store, with ranges, bounds, deleted jobs and consents."""

    bounds: dict[Key, Bounds] = field(default_factory=dict)

    # The plan ------------------------------------------------------------------------------------------------

    def plan(self, request: Request) -> Changes:
        """What the request would change."""
        after = {**self.jobs, **{job.id: job for job in request.jobs}}
        present = self._present(request, after)
        plan = Changes()
        live = self._live()
        plan.chunks["added"] = request.chunks - self.chunks.keys()
        plan.chunks["returned"] = request.chunks & self.chunks.keys() - live
        plan.chunks["retired"] = live - present
        plan.chunks["changed"] = {k for k in request.chunks & live if self._other_bounds(request, k)}
        redone = {k for k in request.bounds if self._was_finished_with_other_bounds(request, k)}
        plan.finished = {k for k in plan.chunks["retired"] if self.finished(k)} | (plan.chunks["changed"] & redone)
        to_do = {k for k in (request.chunks - live) | plan.chunks["changed"] if not self.finished(k)}
        new = {k: b for k, b in request.bounds.items() if k in to_do}
        staying = {k for k in self.chunks if k in live & present or self.finished(k)}
        others = {**{k: self.bounds.get(k) for k in staying}, **new}
        plan.chunks["overlapping"] = {
            k for k in new if any(o[0] == k[0] and o != k and bounds_overlap(new[k], others[o]) for o in others)
        }
        for (job_id, data_id), task in self.tasks.items():
            if task.retired is None and not after[job_id].deleted:
                self._plan_task(plan, after[job_id], data_id, present, redone)
        wanted = {(j.id, i) for j in after.values() for d, i in present if d in j.sources and j.covers(i)}
        returning = {
            (j, i)
            for (j, i), task in self.tasks.items()
            if task.retired and not after[j].deleted and self._is_in(after[j], i, present)
        }
        done = {k for k in returning if self.tasks[k].retired == "DONE"}
        plan.tasks["changed"] |= {(j, i) for j, i in done if any((d, i) in redone for d in after[j].sources)}
        plan.tasks["added"] = wanted - self.tasks.keys()
        for key in returning:
            plan.tasks[f"returned_{(self.tasks[key].retired or '').lower()}"].add(key)
        return plan

    def _plan_task(self, plan: Changes, job: Job, data_id: str, present: set[Key], redone: set[Key]) -> None:
        key, old = (job.id, data_id), self.jobs[job.id]
        task = self.tasks[key]
        if not self._is_in(job, data_id, present):
            if self._has_source(*key):  # else it is going already, when its run ends
                finished = (task.held or task.state) in FINISHED
                plan.tasks["retired" if finished else "removed"].add(key)
            return
        if not job.covers(data_id) and task.state in (OPEN, "RETRYING", "FAILED"):
            plan.tasks["removed"].add(key)
        if task.state not in FINISHED:
            return
        if any((dataset, data_id) in redone for dataset in job.datasets):
            plan.tasks["changed"].add(key)
        run = self.runs.get(task.run or 0)
        running = run.writes if run is not None and task.state == "RUNNING" else ()
        new = [(d, data_id) for d in job.outputs if d not in old.outputs and d not in running]
        if any(k not in self.chunks or not self._made(self.chunks[k]) for k in new):
            plan.tasks["incomplete"].add(key)
        if run is not None and self._has_other_inputs(job):
            others = self._ran_with_other_inputs(run, job)
            stale = others or (old.deleted and self.read_other_versions(job, data_id))
            will_be = (task.stale and not self.is_fresh(task, job)) or stale
            if will_be != task.stale:
                plan.tasks["stale" if will_be else "fresh"].add(key)

    def _present(self, request: Request, after: Mapping[str, Job]) -> set[Key]:
        """The chunks that are there after the request: those that are supported, and those that nobody took away.

        Something is taken away if its source has it no more, or if a job gets other data sets without its id; and
        all that follows from such chunks. It stays if a source or a person still has it, or if it follows from
        something that stays.
        """
        live, declared, jobs = self._live(), request.chunks, after.values()
        kept = {k for k in live if self._kept_by_itself(request, k)}
        dropped = {k for k in live - kept if k[0] in request.sources and self.chunks[k].in_source}
        changed = [job for job in request.jobs if job.id not in self.jobs or self.jobs[job.id].links != job.links]
        left = {
            (d, i)
            for job in changed
            for (j, i), task in self.tasks.items()
            if j == job.id and task.retired is None and self._has_source(j, i)
            if not self._is_in(job, i, live | declared)
            for d in job.datasets
        }
        suspects = spread(jobs, (dropped | left) & live, lambda _, key: key in live)
        sound = (live - suspects) | kept | declared
        return spread(jobs, sound, lambda job, key: job.covers(key[1]) or key in self.chunks)

    def _live(self) -> set[Key]:
        return {key for key, chunk in self.chunks.items() if chunk.retired is None}

    def _kept_by_itself(self, request: Request, key: Key) -> bool:
        chunk = self.chunks[key]
        in_source = key in request.chunks if key[0] in request.sources else chunk.in_source
        return in_source or chunk.by_hand

    @staticmethod
    def _is_in(job: Job, data_id: str, chunks: set[Key]) -> bool:
        return job.deleted or any((d, data_id) in chunks for d in job.sources)

    def finished(self, key: Key) -> bool:
        """Whether a chunk was processed or is: a run made it, or one of its tasks is DONE or RUNNING."""
        chunk = self.chunks.get(key)
        made = chunk is not None and chunk.maker is not None and self._was(chunk) in ("READY", "PENDING", "RUNNING")
        jobs = [j.id for j in self.jobs.values() if key[0] in j.datasets]
        tasks = [self.tasks[job, key[1]] for job in jobs if (job, key[1]) in self.tasks]
        runs = [run for run in self.runs.values() if run.job in jobs and run.data_id == key[1]]
        return (
            made
            or any((task.held or task.retired or task.state) in FINISHED for task in tasks)
            or any(run.state == "SUCCEEDED" for run in runs)
        )

    @staticmethod
    def _was(chunk: Chunk) -> str:
        return chunk.held or chunk.retired or chunk.status

    def _made(self, chunk: Chunk) -> bool:
        return self._was(chunk) in ("READY", "PENDING")

    def _other_bounds(self, request: Request, key: Key) -> bool:
        return key in request.bounds and request.bounds[key] != self.bounds.get(key)

    def _was_finished_with_other_bounds(self, request: Request, key: Key) -> bool:
        return key in self.bounds and self._other_bounds(request, key) and self.finished(key)

    def _has_other_inputs(self, job: Job) -> bool:
        old = self.jobs.get(job.id)
        return old is not None and (old.deleted or set(old.inputs) != set(job.inputs))

    # The change ----------------------------------------------------------------------------------------------

    def change(self, request: Request, backfill: str | None) -> Changes:
        """Do what the plan says, with all consents that it needs; return the plan."""
        plan = self.plan(request)
        present = self._present(request, {**self.jobs, **{job.id: job for job in request.jobs}})
        relinked = [j.id for j in request.jobs if j.id not in self.jobs or self.jobs[j.id].links != j.links]
        other_inputs = [j.id for j in request.jobs if self._has_other_inputs(j)]
        self.jobs.update({job.id: job for job in request.jobs})
        self._change_chunks(request, present)
        for job_id, data_id in plan.tasks["retired"] | plan.tasks["removed"]:
            self._retire_task(job_id, data_id)
        self._mark_stale(other_inputs)
        self._fill()
        for job_id, data_id in list(self.tasks):
            if job_id in relinked:
                self._finish_if_made(job_id, data_id)
        self._backfill(plan, backfill)
        return plan

    def _change_chunks(self, request: Request, present: set[Key]) -> None:
        """Chunks go, come and return; those that no job makes are READY as soon as they are declared."""
        for key in request.chunks:
            self.chunks.setdefault(key, Chunk())
        for key, chunk in self.chunks.items():
            if key[0] in request.sources:
                chunk.in_source = key in request.chunks
            if key in present:
                chunk.revive()
            elif chunk.retired is None:
                chunk.retire()
            if key in request.chunks and chunk.status == "DECLARED" and self._producer(key[0]) is None:
                chunk.status, chunk.version = "READY", self._next_version()
        self.bounds.update(request.bounds)

    def _backfill(self, plan: Changes, backfill: str | None) -> None:
        """Finished tasks run again if that was asked for, and if they are in the range of their job."""
        for key in plan.tasks["incomplete"] | plan.tasks["changed"]:
            task = self.tasks[key]
            if backfill == "all" and self._in_scope(*key):
                task.again |= task.state == "RUNNING"
                if task.state == "DONE":
                    self._reopen(*key)
            elif key in plan.tasks["changed"]:
                task.stale = task.bounds_changed = True

    def delete(self, job_id: str) -> None:
        """A job gives back its data sets; its tasks stay as they are."""
        self.jobs[job_id] = replace(self.jobs[job_id], inputs=(), outputs=(), suspended=True, deleted=True)
