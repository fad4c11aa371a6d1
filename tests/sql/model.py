"""A small model of the store: what chunks, tasks and runs must be after each request, in plain Python.

It follows the rules of readiness and the two tables of transitions as they are written for users. It never looks at
Postgres and knows nothing of its functions, locks or counters: what the store keeps up to date step by step (readers,
blockers, WAITING or QUEUED) is computed here from scratch each time it is asked for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

Key = tuple[str, str]
"""(data set, data id) of a chunk, (job, data id) of a task."""
Answers = dict[str, str]
"""Data id -> done, unchanged, remembered, refused or unknown."""

MADE = ("READY", "PENDING", "FAILED")
"""What a chunk can be asked for again from."""
LOCKING = ("READY", "RUNNING", "HOLD", "PENDING", "FAILED")
"""What keeps an output from being written (rule 2)."""
PAUSES = (3600.0, 7200.0)
"""Seconds before the first probe of an open breaker, and before every later one."""
OPEN = "OPEN"
"""WAITING or QUEUED: which of the two is a question of blockers."""


@dataclass(frozen=True)
class Job:
    """What a user declares: the data sets of a job, its range and order, and how much of it may run at once.

    A deleted job has no data sets, and its tasks stay as they are."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parallelism: int = 1
    descending: bool = False
    suspended: bool = False
    chunk_from: str | None = None
    chunk_to: str | None = None
    deleted: bool = False

    def covers(self, data_id: str) -> bool:
        """Whether an id is in the range; both ends are."""
        above = self.chunk_from is None or natural(self.chunk_from) <= natural(data_id)
        return above and (self.chunk_to is None or natural(data_id) <= natural(self.chunk_to))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that get its ids: all but `today`, which belongs to all jobs."""
        return tuple(d for d in self.inputs + self.outputs if d != "today")

    @property
    def sources(self) -> tuple[str, ...]:
        """The data sets whose ids make tasks."""
        return self.inputs or self.outputs

    @property
    def links(self) -> tuple[frozenset[str], frozenset[str]]:
        """What a rebuild depends on."""
        return frozenset(self.inputs), frozenset(self.outputs)


@dataclass
class Chunk:
    """`held`: what a HOLD returns to; `maker`: the run that left it as it is, None where it came from outside;
    `version`: which publication or claim made it what it is, None where it never was anything;
    `retired`: what it gets back when its id returns, RUNNING where it is retired at the end of its run."""

    status: str = "DECLARED"
    held: str | None = None
    maker: int | None = None
    version: int | None = None
    in_source: bool = False
    by_hand: bool = False
    retired: str | None = None

    @property
    def made(self) -> bool:
        """Whether there is a result, also where a person has to accept it."""
        return (self.held or self.status) in ("READY", "PENDING")

    def retire(self) -> None:
        """Its id is withdrawn."""
        self.retired = self.status
        self.status = "RUNNING" if self.status == "RUNNING" else "RETIRED"

    def revive(self) -> None:
        """Its id is back."""
        if self.retired is not None:
            self.status, self.retired = self.retired, None

    @property
    def underneath(self) -> str:
        """The status, or what is under a HOLD."""
        return self.held or self.status

    def become(self, status: str) -> None:
        """Change; a HOLD remembers the change."""
        if self.status == "HOLD":
            self.held = status
        else:
            self.status = status


@dataclass
class Task:
    """`due_in`: seconds until a retry is due; `held`: what a release returns to; `run`: its last one; `stale`: made
    from an older version of an input, or for other data sets than its job has now; `bounds_changed`: stale, because
    bounds have changed."""

    state: str = OPEN
    held: str | None = None
    resubmitted: bool = False
    attempts: int = 0
    infrastructure_attempts: int = 0
    due_in: float | None = None
    again: bool = False
    forced: bool = False
    run: int | None = None
    stale: bool = False
    bounds_changed: bool = False
    retired: str | None = None


@dataclass
class Run:
    """One attempt, with the data sets that it recorded at its claim, and which versions it reads; `attempt`: which one
    of its task."""

    id: int
    job: str
    data_id: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attempt: int = 1
    state: str = "RUNNING"
    cancelled: bool = False
    forced: bool = False
    versions: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the engine's verdict for the task, the run's state, the class of its failure."""

    verdict: str
    state: str = "FAILED"
    failure_class: str = "Application"
    delay: float = 0


@dataclass
class Breaker:
    """`failed`: the chunks that failed in a row, with their last runs; `consumed`: every one of these failures;
    `forgiven`: the chunks whose attempts were given back the last time; `wait`: seconds until the next probe; `tried`:
    the last one."""

    failed: dict[str, int] = field(default_factory=dict)
    consumed: list[tuple[str, str]] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)
    open: bool = False
    probes: int = 0
    wait: float = 0
    probe: int | None = None
    tried: str = ""


@dataclass
class Model:
    """The whole store. `breaker_threshold`: how many chunks have to fail in a row."""

    breaker_threshold: int = 5
    breakers: dict[str, Breaker] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    chunks: dict[Key, Chunk] = field(default_factory=dict)
    tasks: dict[Key, Task] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    newest: int = 0

    def _next_version(self) -> int:
        self.newest += 1
        return self.newest

    # Readiness -----------------------------------------------------------------------------------------------

    def readers(self, dataset: str, data_id: str) -> int:
        """How many running consumers hold the shared lock of a chunk."""
        return sum(r.state == "RUNNING" and r.data_id == data_id and dataset in r.reads for r in self.runs.values())

    def blockers(self, job_id: str, data_id: str) -> int:
        """One for each input that is not READY, one for each output that is locked or being read (rules 1 to 3)."""
        job = self.jobs[job_id]
        if self.tasks[job_id, data_id].forced:
            return sum(self._status(d, data_id) in ("RUNNING", "HOLD") for d in job.outputs)
        missing = sum(self._status(d, data_id) != "READY" for d in job.inputs)
        return missing + sum(self._blocks(job_id, d, data_id) for d in job.outputs)

    def _status(self, dataset: str, data_id: str) -> str | None:
        chunk = self.chunks.get((dataset, data_id))
        return chunk.status if chunk else None

    def _blocks(self, job_id: str, dataset: str, data_id: str) -> bool:
        chunk = self.chunks.get((dataset, data_id))
        if chunk is None:
            return False
        # An open task has retries left. What another job has left FAILED stays locked.
        own_run = self.tasks[job_id, data_id].run
        own_failure = chunk.status == "FAILED" and own_run is not None and chunk.maker == own_run
        locked = chunk.status in LOCKING and not own_failure
        return locked or self.readers(dataset, data_id) > 0

    def state(self, job_id: str, data_id: str) -> str:
        """The state as the store names it."""
        task = self.tasks[job_id, data_id]
        if task.state != OPEN:
            return task.state
        return "WAITING" if self.blockers(job_id, data_id) else "QUEUED"

    def _rank(self, job_id: str, data_id: str) -> int:
        """A forced task first, then a resubmitted task, then the others."""
        task = self.tasks[job_id, data_id]
        return 0 if task.forced else 1 if task.resubmitted else 2

    def ready(self, job_id: str) -> list[str]:
        """The ids that may be claimed, in the job's order."""
        ids = [i for j, i in self.tasks if j == job_id and self.state(j, i) == "QUEUED"]
        in_order = sorted(ids, key=natural, reverse=self.jobs[job_id].descending)
        return sorted(in_order, key=lambda i: self._rank(job_id, i))

    def claimable(self, job_id: str, limit: int) -> list[str]:
        """What a claim of at most `limit` tasks takes now."""
        job = self.jobs[job_id]
        running = sum(j == job_id and w.state == "RUNNING" for (j, _), w in self.tasks.items())
        free = 0 if job.suspended else max(min(limit, job.parallelism - running), 0)
        breaker = self.breakers.get(job_id)
        ready = self._probes(job, breaker) if breaker and breaker.open else self.ready(job_id)
        return ready[:free]

    def _probes(self, job: Job, breaker: Breaker) -> list[str]:
        """What may be tried under an open breaker, at most one: a forced task at any time, after the pause the others,
        those of the natural order in turn."""
        ready = self.ready(job.id)
        if breaker.probe is not None or not ready:
            return []
        if self._rank(job.id, ready[0]) == 0:
            return ready[:1]
        if breaker.wait > 0:
            return []
        if self._rank(job.id, ready[0]) == 1:
            return ready[:1]
        tried = natural(breaker.tried)
        later = [i for i in ready if (natural(i) < tried if job.descending else natural(i) > tried)]
        return (later or ready)[:1]

    # How rows are created ------------------------------------------------------------------------------------

    def _producer(self, dataset: str) -> str | None:
        return next((j.id for j in self.jobs.values() if dataset in j.outputs), None)

    def _fill(self) -> None:
        """A task for every id of every source, with its chunks, until there is nothing to add."""
        before = -1
        while before != len(self.chunks) + len(self.tasks):
            before = len(self.chunks) + len(self.tasks)
            for job in self.jobs.values():
                for data_id in [i for (d, i), c in self.chunks.items() if d in job.sources and c.retired is None]:
                    for dataset in job.datasets:
                        if not job.covers(data_id) and (dataset, data_id) not in self.chunks:
                            continue
                        before -= self.chunks.setdefault((dataset, data_id), Chunk()).retired is not None
                        self.chunks[dataset, data_id].revive()
                    task = self.tasks.get((job.id, data_id))
                    if task is not None and task.retired is not None:
                        task.state, task.retired = task.retired, None
                    if task is None and job.covers(data_id):
                        self.tasks[job.id, data_id] = self._new_task(job, data_id)
                        self._finish_if_made(job.id, data_id)

    def _new_task(self, job: Job, data_id: str) -> Task:
        """What a run of the job has left FAILED is not tried again because its id had left meanwhile."""
        left = [self.chunks[d, data_id] for d in job.outputs]
        runs = [c.maker for c in left if c.status == "FAILED" and c.maker is not None]
        last = max(runs, default=None)
        failed = last is not None and self.runs[last].job == job.id
        return Task(state="FAILED", run=last) if failed else Task()

    def _has_source(self, job_id: str, data_id: str) -> bool:
        """A rebuild keeps tasks that run or are done, also when its id is not one of the job's any more."""
        found = (self.chunks.get((d, data_id)) for d in self.jobs[job_id].sources)
        return self.jobs[job_id].deleted or any(chunk is not None and chunk.retired is None for chunk in found)

    def _in_scope(self, job_id: str, data_id: str) -> bool:
        """What is to be done: the ids in the range."""
        job = self.jobs[job_id]
        return self._has_source(job_id, data_id) and (job.deleted or job.covers(data_id))

    def incomplete(self, job_id: str, data_id: str) -> bool:
        """Whether a task is done and one of its outputs was never made."""
        outputs = (self.chunks.get((d, data_id)) for d in self.jobs[job_id].outputs)
        return self.tasks[job_id, data_id].state == "DONE" and any(c is None or not c.made for c in outputs)

    def _drop_out_of_scope(self, job_id: str, data_id: str) -> None:
        """Nor is it kept when it is still to do; what a person has put aside waits for its id, or for its release."""
        task = self.tasks.get((job_id, data_id))
        if task and task.state in (OPEN, "RETRYING", "FAILED") and not self._in_scope(job_id, data_id):
            del self.tasks[job_id, data_id]

    def _finish_if_made(self, job_id: str, data_id: str) -> None:
        """A task that is still to do is DONE when one of its outputs is there; one that is put aside remembers it."""
        task = self.tasks[job_id, data_id]
        made = [self.chunks[d, data_id] for d in self.jobs[job_id].outputs if (d, data_id) in self.chunks]
        if "FAILED" in (
            task.state,
            task.held,
        ):  # beside a rejected output, what the task itself has made does not count
            made = [chunk for chunk in made if chunk.maker is None or chunk.maker != task.run]
        if task.state in ("RUNNING", "DONE", "RETIRED") or all(chunk.status != "READY" for chunk in made):
            return
        task.due_in, task.forced = None, False
        if task.held is not None:
            task.held = "DONE"
        else:
            task.state = "DONE"

    def declare(self, dataset: str, ids: Iterable[str]) -> None:
        """Chunks are there by name, with no status yet."""
        for data_id in ids:
            chunk = self.chunks.setdefault((dataset, data_id), Chunk())
            chunk.by_hand = True
            chunk.revive()
        self._fill()

    def apply(self, jobs: Iterable[Job], sources: Mapping[str, Iterable[str]]) -> None:
        """Jobs as declared now, and the ids of data sets' own sources: READY where no job makes them."""
        rebuilt, other_inputs = [], []
        had_source = {key for key in self.tasks if self._has_source(*key)}
        for job in jobs:
            old = self.jobs.get(job.id)
            if old is None or old.links != job.links:
                rebuilt.append(job.id)
            if old is not None and set(old.inputs) != set(job.inputs):
                other_inputs.append(job.id)
            self.jobs[job.id] = job
        self._withdraw(rebuilt, sources, had_source)
        for dataset, ids in sources.items():
            for data_id in ids:
                chunk = self.chunks.setdefault((dataset, data_id), Chunk())
                chunk.in_source = True
                chunk.revive()
                if chunk.status == "DECLARED" and self._producer(dataset) is None:
                    chunk.status, chunk.version = "READY", self._next_version()
        self._mark_stale(other_inputs)
        for job_id in rebuilt:
            self._rebuild(job_id)
        self._fill()
        for job_id in rebuilt:  # an output that comes back with its new producer was made, too
            self._rebuild(job_id)

    def _withdraw(self, changed: Iterable[str], sources: Mapping[str, Iterable[str]], had_source: set[Key]) -> None:
        """Retire what no source, no person and no job with a live source stands for any more.

        The id of a task that runs may have been withdrawn before: then a change of its job takes nothing away.
        """
        declared = {(d, i) for d, ids in sources.items() for i in ids}
        live = {key for key, chunk in self.chunks.items() if chunk.retired is None}
        removed = {k for k in live if k[0] in sources and self.chunks[k].in_source and k not in declared}
        for key in removed:
            self.chunks[key].in_source = False
        tasks = {key for key, task in self.tasks.items() if task.retired is None}
        orphans = {
            (j, i)
            for j, i in tasks
            if j in changed
            and (j, i) in had_source
            and not any((d, i) in live | declared for d in self.jobs[j].sources)
        }
        links = {j: self.jobs[j].datasets for j in self.jobs}
        gone = (removed | {(d, i) for j, i in orphans for d in links[j]}) & live
        grown: set[Key] = set()
        while grown != gone:
            grown = set(gone)
            for dataset, data_id in grown:
                below = [j for j in self.jobs.values() if dataset in j.sources]
                gone |= {(d, data_id) for j in below for d in links[j.id]} & live
        kept = {k for k in gone if self.chunks[k].by_hand or self.chunks[k].in_source or k in declared}
        sound = (live - gone) | declared | kept
        grown = set()
        while grown != sound:
            grown = set(sound)
            for dataset, data_id in grown:
                below = [j for j in self.jobs.values() if dataset in j.sources]
                sound |= {(d, data_id) for j in below for d in links[j.id]} & gone
        for key in gone - sound:
            self.chunks[key].retire()
        for job_id, data_id in [key for key in self.tasks if key in tasks]:
            withdrawn = any((d, data_id) in gone - sound for d in self.jobs[job_id].sources)
            if (job_id, data_id) in orphans or withdrawn:
                self._retire_task(job_id, data_id)

    def _retire_task(self, job_id: str, data_id: str) -> None:
        self._drop_out_of_scope(job_id, data_id)
        task = self.tasks.get((job_id, data_id))
        if task and task.state in ("DONE", "HELD", "SKIPPED") and not self._has_source(job_id, data_id):
            task.retired, task.state = task.state, "RETIRED"

    def _mark_stale(self, jobs: Iterable[str]) -> None:
        """What ran with other inputs than its job has now is stale, and fresh again if these are the same again."""
        for (job_id, _), task in self.tasks.items():
            ran = task.run is not None and (task.retired or task.state) in ("DONE", "RUNNING")
            if ran and job_id in jobs:
                others = self._ran_with_other_inputs(self.runs[task.run or 0], self.jobs[job_id])
                task.stale = (task.stale or others) and not self.is_fresh(task, self.jobs[job_id])

    def is_fresh(self, task: Task, job: Job) -> bool:
        """Whether a task was made from what its job reads now: these inputs, in these versions, with these bounds."""
        run = self.runs.get(task.run or 0)
        if run is None or task.bounds_changed or self._ran_with_other_inputs(run, job):
            return False
        chunks = {d: self.chunks.get((d, run.data_id)) for d in run.reads}
        return all(c is not None and c.version == run.versions[d] for d, c in chunks.items())

    @staticmethod
    def _ran_with_other_inputs(run: Run, job: Job) -> bool:
        """Whether a run had other inputs than its job has now; a forced one reads only what is there."""
        inputs, reads = set(job.inputs) - {"today"}, set(run.reads)
        return not reads <= inputs or (reads != inputs and not run.forced)

    def _rebuild(self, job_id: str) -> None:
        for data_id in [i for j, i in self.tasks if j == job_id]:
            self._drop_out_of_scope(job_id, data_id)
        for data_id in [i for j, i in self.tasks if j == job_id]:
            self._finish_if_made(job_id, data_id)

    # What happens to them ------------------------------------------------------------------------------------

    def publish(self, dataset: str, ids: Iterable[str]) -> Answers:
        """From outside: READY whatever it was, but never under a run that writes it."""
        answers = {}
        for data_id in ids:
            self.declare(dataset, [data_id])
            chunk = self.chunks[dataset, data_id]
            if chunk.status == "RUNNING":
                answers[data_id] = "refused"
                continue
            answers[data_id] = "done"
            chunk.status, chunk.held, chunk.maker, chunk.version = "READY", None, None, self._next_version()
            producer = self._producer(dataset)
            if producer and (producer, data_id) in self.tasks:
                self._finish_if_made(producer, data_id)
                task = self.tasks[producer, data_id]
                task.again &= task.state == "RUNNING"
                task.stale &= task.state in ("RUNNING", "RETIRED") or self._made_outputs(self.jobs[producer], data_id)
                task.bounds_changed &= task.stale
        return answers

    def _made_outputs(self, job: Job, data_id: str) -> bool:
        """Whether something that the last run of a task made is still there; nobody knows what else was made of."""
        task, outputs = self.tasks[job.id, data_id], job.outputs
        chunks = [self.chunks[d, data_id] for d in outputs if (d, data_id) in self.chunks]
        makers = [chunk.maker for chunk in chunks if chunk.underneath in ("READY", "PENDING")]
        return task.run is not None and (not outputs or task.run in makers)

    def mark_stale(self) -> None:
        """What is done and was made from another version of an input than the READY one is stale from now on."""
        for (job_id, data_id), task in self.tasks.items():
            task.stale |= self.read_other_versions(self.jobs[job_id], data_id)

    def read_other_versions(self, job: Job, data_id: str) -> bool:
        """Whether a task is done, and an input of its job is READY in another version than its run has read."""
        task = self.tasks[job.id, data_id]
        if task.state != "DONE" or task.run is None or not self._made_outputs(job, data_id):
            return False
        read = self.runs[task.run].versions
        inputs = {d: self.chunks.get((d, data_id)) for d in job.inputs if d in read}
        return any(c is not None and c.status == "READY" and c.version != read[d] for d, c in inputs.items())

    def claim(self, job_id: str, data_id: str, run_id: int) -> None:
        """A run takes its task and its outputs, and reads its inputs."""
        job = self.jobs[job_id]
        reads = tuple(d for d in job.inputs if d != "today" and self._status(d, data_id) == "READY")
        task = self.tasks[job_id, data_id]
        attempt = task.attempts + task.infrastructure_attempts + 1
        versions = {d: self.chunks[d, data_id].version for d in reads}
        self.runs[run_id] = Run(
            run_id, job_id, data_id, reads, job.outputs, attempt, forced=task.forced, versions=versions
        )
        task.state, task.run, task.stale, task.bounds_changed = "RUNNING", run_id, False, False
        version = self._next_version()
        breaker = self.breakers.get(job_id)
        if breaker and breaker.open:
            breaker.probe, breaker.tried = run_id, data_id
        for dataset in job.outputs:
            self.chunks[dataset, data_id].status = "RUNNING"
            self.chunks[dataset, data_id].maker = run_id
            self.chunks[dataset, data_id].version = version

    def complete(self, run_id: int, outcome: Outcome) -> bool:
        """The end of a run; False if it had ended before, and nothing changes."""
        run = self.runs[run_id]
        if run.state != "RUNNING":
            return False
        if run.cancelled and outcome.state != "SUCCEEDED":
            outcome = replace(outcome, state="CANCELLED", verdict="FAILED")
        run.state = outcome.state
        task = self.tasks[run.job, run.data_id]
        for dataset in run.writes:
            chunk, status = self.chunks[dataset, run.data_id], "READY" if outcome.verdict == "DONE" else "FAILED"
            chunk.status = status
            if chunk.retired is not None:
                chunk.status, chunk.retired = "RETIRED", "RESUBMIT" if task.again else status
        spared = self._judge_end(run, outcome, task)
        if task.again:
            self._reopen(run.job, run.data_id, also=run.writes)
        else:
            self._settle(task, outcome, spared)
            self._finish_if_made(run.job, run.data_id)
        for maker in map(self._producer, run.writes):
            if maker not in (None, run.job) and (maker, run.data_id) in self.tasks:  # since a change of declarations
                self._finish_if_made(maker, run.data_id)
        self._drop_out_of_scope(run.job, run.data_id)
        self._retire_task(run.job, run.data_id)
        return True

    def _judge_end(self, run: Run, outcome: Outcome, task: Task) -> bool:
        """What an end does to the breaker of its job; whether its failure costs nothing."""
        breaker = self.breakers.setdefault(run.job, Breaker())
        if outcome.state == "SUCCEEDED":
            self.breakers[run.job] = Breaker(forgiven=breaker.forgiven - {run.data_id})
            return False
        if breaker.open:
            if breaker.probe == run.id:
                breaker.probe = None
                if outcome.state == "FAILED":
                    breaker.probes, breaker.wait = breaker.probes + 1, PAUSES[1]
            return outcome.state != "CANCELLED"
        if outcome.state != "FAILED":
            return False
        spared = task.attempts + task.infrastructure_attempts + 1 < run.attempt  # it was open while this one ran
        breaker.failed.pop(run.data_id, None)
        breaker.failed[run.data_id] = run.id
        if len(breaker.failed) >= self.breaker_threshold:
            spared |= run.data_id not in breaker.forgiven
            self._open(run.job, breaker)
        breaker.consumed.append((run.data_id, outcome.failure_class))
        return spared

    def _open(self, job_id: str, breaker: Breaker) -> None:
        breaker.open, breaker.wait = True, PAUSES[0]
        for data_id, run in breaker.failed.items():
            breaker.tried = data_id
            task = self.tasks.get((job_id, data_id))
            if task is None or data_id in breaker.forgiven:
                continue
            of_task = [failure_class for consumed, failure_class in breaker.consumed if consumed == data_id]
            lost = of_task.count("Infrastructure")
            task.attempts = max(task.attempts - len(of_task) + lost, 0)
            task.infrastructure_attempts = max(task.infrastructure_attempts - lost, 0)
            if task.run == run and task.state in ("RETRYING", "FAILED"):
                task.state, task.due_in, task.resubmitted, task.forced = "RETRYING", 0, False, False
        breaker.forgiven = set(breaker.failed)

    def _settle(self, task: Task, outcome: Outcome, spared: bool) -> None:
        if spared:
            task.state, task.due_in, task.resubmitted, task.forced = "RETRYING", 0, False, False
            task.stale = task.bounds_changed = False
            return
        task.state = outcome.verdict
        task.stale &= outcome.verdict == "DONE"
        task.bounds_changed &= task.stale
        task.due_in = outcome.delay if outcome.verdict == "RETRYING" else None
        if outcome.verdict != "RETRYING":
            task.resubmitted = task.forced = False
        if outcome.verdict != "DONE" and outcome.failure_class == "Infrastructure":
            task.infrastructure_attempts += 1
        elif outcome.verdict != "DONE":
            task.attempts += 1

    def pass_time(self, seconds: float) -> None:
        """Backoffs and the pauses of breakers get shorter."""
        for breaker in self.breakers.values():
            breaker.wait -= seconds
        for task in self.tasks.values():
            if task.due_in is not None:
                task.due_in -= seconds

    def retry_due(self) -> None:
        """A task whose backoff is over is open again."""
        for task in self.tasks.values():
            if task.state == "RETRYING" and task.due_in is not None and task.due_in <= 0:
                task.state, task.due_in = OPEN, None

    # What people ask for -------------------------------------------------------------------------------------

    def _reopen(self, job_id: str, data_id: str, also: tuple[str, ...] = ()) -> None:
        """All outputs become RESUBMIT together; the task is open with new budgets, before the others."""
        for dataset in {*self.jobs[job_id].outputs, *also}:
            chunk = self.chunks.get((dataset, data_id))
            if chunk and chunk.underneath in MADE:
                chunk.become("RESUBMIT")
        self.tasks[job_id, data_id] = Task(resubmitted=True, run=self.tasks[job_id, data_id].run)

    def _anything_made(self, job_id: str, data_id: str) -> bool:
        outputs = [self.chunks.get((d, data_id)) for d in self.jobs[job_id].outputs]
        return any(c.underneath in MADE for c in outputs if c)

    def resubmit(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task is asked for again."""
        return {i: self._resubmit_one(job_id, i) for i in ids}

    def resubmit_cascade(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task is asked for again, and all below it that ran or are running; the answers are those of the first."""
        answers = self.resubmit(job_id, ids)
        for below in self._below(job_id):
            for data_id in ids:
                task = self.tasks.get((below, data_id))
                ran = (
                    task
                    and task.state not in ("SKIPPED", "RETIRED")
                    and (task.held or task.state) in ("DONE", "FAILED", "RUNNING")
                )
                if ran and self._in_scope(below, data_id):
                    self._resubmit_one(below, data_id)
        return answers

    def _below(self, job_id: str) -> set[str]:
        written = set(self.jobs[job_id].outputs)
        nearest = {j.id for j in self.jobs.values() if written & set(j.inputs)}
        return nearest.union(*(self._below(j) for j in nearest))

    def _resubmit_one(self, job_id: str, data_id: str) -> str:
        task = self.tasks.get((job_id, data_id))
        if task is None:
            return "unknown"
        if task.state in ("SKIPPED", "RETIRED") or (task.state == "DONE" and not self._in_scope(job_id, data_id)):
            return "refused"
        if task.state in ("RUNNING", "HELD"):
            task.again = True
            return "remembered"
        if task.state == OPEN and not self._anything_made(job_id, data_id):
            return "unchanged"
        self._reopen(job_id, data_id)
        return "done"

    def resubmit_chunks(self, dataset: str, ids: Iterable[str]) -> Answers:
        """Chunks are asked for again: through the task that makes them, else they wait to be published."""
        return {i: self._resubmit_chunk(dataset, i) for i in ids}

    def _resubmit_chunk(self, dataset: str, data_id: str) -> str:
        producer = self._producer(dataset)
        if producer and (producer, data_id) in self.tasks:
            return self._resubmit_one(producer, data_id)
        chunk = self.chunks.get((dataset, data_id))
        if chunk is None:
            return "unknown"
        if chunk.underneath not in MADE:
            return "unchanged"
        chunk.become("RESUBMIT")
        return "remembered" if chunk.status == "HOLD" else "done"

    def hold(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task is kept from running."""
        return {i: self._put_aside(job_id, i, "HELD", (OPEN, "RETRYING", "FAILED")) for i in ids}

    def skip(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task will not be done; that also holds for a held task."""
        return {i: self._put_aside(job_id, i, "SKIPPED", (OPEN, "RETRYING", "FAILED", "HELD")) for i in ids}

    def _put_aside(self, job_id: str, data_id: str, state: str, possible: tuple[str, ...]) -> str:
        task = self.tasks.get((job_id, data_id))
        if task is None:
            return "unknown"
        unmade = state == "SKIPPED" and self.incomplete(job_id, data_id)
        if task.state not in possible and not unmade:
            return "unchanged" if task.state == state else "refused"
        task.held = task.held or task.state
        task.state = state
        return "done"

    def force(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task runs next, whatever its inputs and outputs are, but never beside a run that writes the same chunk."""
        return {i: self._force_one(job_id, i) for i in ids}

    def _force_one(self, job_id: str, data_id: str) -> str:
        task = self.tasks.get((job_id, data_id))
        if task is None:
            return "unknown"
        outputs = [self.chunks[d, data_id] for d in self.jobs[job_id].outputs if (d, data_id) in self.chunks]
        if task.state == "RUNNING" or any(chunk.status == "RUNNING" for chunk in outputs):
            return "refused"
        if task.state in ("DONE", "HELD", "SKIPPED", "RETIRED") and not self._in_scope(job_id, data_id):
            return "refused"
        if task.forced and self.state(job_id, data_id) == "QUEUED":
            return "unchanged"
        for chunk in outputs:
            chunk.status, chunk.held = "RESUBMIT", None
        self.tasks[job_id, data_id] = Task(forced=True, run=task.run)
        return "done"

    def cancel(self, job_id: str, ids: Iterable[str]) -> Answers:
        """Runs are to end now; nothing changes before their end."""
        return {i: self._cancel_one(job_id, i) for i in ids}

    def _cancel_one(self, job_id: str, data_id: str) -> str:
        task = self.tasks.get((job_id, data_id))
        if task is None or task.state != "RUNNING":
            return "refused" if task else "unknown"
        run = next(r for r in self.runs.values() if r.id == task.run)
        if run.cancelled:
            return "unchanged"
        run.cancelled = True
        return "done"

    def release(self, job_id: str, ids: Iterable[str]) -> Answers:
        """A task becomes what it was, with what was asked meanwhile."""
        answers = {}
        for data_id in ids:
            task = self.tasks.get((job_id, data_id))
            held = task is not None and task.state in ("HELD", "SKIPPED")
            answers[data_id] = "done" if held else "unchanged" if task else "unknown"
            if task is None or task.held is None or not held:
                continue
            if task.again:
                self._reopen(job_id, data_id)
            else:
                task.state, task.held = task.held, None
            self._drop_out_of_scope(job_id, data_id)
        return answers

    def hold_chunks(self, dataset: str, ids: Iterable[str]) -> Answers:
        """Chunks are kept from being read and written."""
        answers = {}
        for data_id in ids:
            chunk = self.chunks.get((dataset, data_id))
            if chunk is None:
                answers[data_id] = "unknown"
            elif chunk.status in ("RUNNING", "HOLD", "RETIRED"):
                answers[data_id] = "unchanged" if chunk.status == "HOLD" else "refused"
            else:
                chunk.status, chunk.held = "HOLD", chunk.status
                answers[data_id] = "done"
        return answers

    def release_chunks(self, dataset: str, ids: Iterable[str]) -> Answers:
        """Chunks become what they were, with what was asked meanwhile."""
        answers = {}
        for data_id in ids:
            chunk = self.chunks.get((dataset, data_id))
            held = chunk is not None and chunk.status == "HOLD"
            answers[data_id] = "unknown" if chunk is None else "done" if held else "unchanged"
            if chunk and chunk.held is not None and held:
                chunk.status, chunk.held = chunk.held, None
                producer = self._producer(dataset)
                if producer and (producer, data_id) in self.tasks:
                    self._finish_if_made(producer, data_id)
        return answers

    def set_chunks(self, dataset: str, ids: Iterable[str], status: str) -> Answers:
        """From outside: chunks wait for a person (PENDING), or are not good (FAILED) like the task that makes them."""
        return {i: self._set_chunk(dataset, i, status) for i in ids}

    def _set_chunk(self, dataset: str, data_id: str, status: str) -> str:
        chunk = self.chunks.get((dataset, data_id))
        if chunk is None or chunk.status in (status, "RUNNING", "RETIRED"):
            return "unknown" if chunk is None else "unchanged" if chunk.status == status else "refused"
        if chunk.underneath not in ("READY", "PENDING"):
            chunk.maker = chunk.version = None
        chunk.status, chunk.held = status, None
        producer = self._producer(dataset)
        task = self.tasks.get((producer, data_id)) if producer else None
        if producer and task and status == "FAILED" and self._can_fail(producer, data_id, task):
            task.state, task.due_in, task.forced, task.stale = "FAILED", None, False, False
            task.bounds_changed = False
        return "done"

    def accept(self, dataset: str, ids: Iterable[str]) -> Answers:
        """A person finds chunks good."""
        return {i: self._judge(dataset, i, "READY") for i in ids}

    def reject(self, dataset: str, ids: Iterable[str]) -> Answers:
        """A person finds chunks not good: the task that made them has failed."""
        return {i: self._judge(dataset, i, "FAILED") for i in ids}

    def _judge(self, dataset: str, data_id: str, status: str) -> str:
        chunk = self.chunks.get((dataset, data_id))
        if chunk is None or chunk.status != "PENDING":
            return "refused" if chunk else "unknown"
        chunk.status = status
        if status == "READY" and chunk.version is None:
            chunk.version = self._next_version()
        producer = self._producer(dataset)
        task = self.tasks.get((producer, data_id)) if producer else None
        if producer and task and status == "READY":
            self._finish_if_made(producer, data_id)
        elif (
            producer
            and task
            and task.state == "DONE"
            and chunk.maker is not None
            and task.run == chunk.maker
            and self._in_scope(producer, data_id)
        ):
            task.state, task.stale, task.bounds_changed = "FAILED", False, False
        return "done"

    def _can_fail(self, job_id: str, data_id: str, task: Task) -> bool:
        """What is done and has no id any more stays so: there is nothing to ask for."""
        return task.state in (OPEN, "RETRYING") or (task.state == "DONE" and self._in_scope(job_id, data_id))

    # For comparing -------------------------------------------------------------------------------------------

    def seen(self) -> dict[str, tuple[object, ...]]:
        """Everything that the store shows, a line each: chunks (status, under a HOLD, readers), tasks (state, under
        a hold, blockers, place in the order, attempts of both kinds, again, forced, stale) and breakers (open, failed
        in a row, forgiven, failed probes, probe)."""
        lines: dict[str, tuple[object, ...]] = {}
        for (dataset, data_id), chunk in self.chunks.items():
            lines[f"chunk {dataset}/{data_id}"] = (
                chunk.status,
                chunk.held,
                self.readers(dataset, data_id),
                chunk.retired,
            )
        for (job_id, data_id), task in self.tasks.items():
            counted = task.state in (OPEN, "RETRYING")
            lines[f"task {job_id}/{data_id}"] = (
                self.state(job_id, data_id),
                task.held,
                self.blockers(job_id, data_id) if counted else 0,
                self._rank(job_id, data_id) if counted else None,
                task.attempts,
                task.infrastructure_attempts,
                task.again,
                task.forced,
                task.stale,
                task.retired,
                self.incomplete(job_id, data_id),
            )
        for job_id, breaker in self.breakers.items():
            if breaker.failed or breaker.forgiven:
                failed, forgiven = list(breaker.failed.items()), sorted(breaker.forgiven)
                lines[f"breaker {job_id}"] = (breaker.open, failed, forgiven, breaker.probes, breaker.probe)
        return lines


def natural(data_id: str) -> list[tuple[int, str]]:
    """For the natural order: digits count as numbers."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.findall(r"\d+|\D+", data_id)]
