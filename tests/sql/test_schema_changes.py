"""Any sequence of changed declarations does what its plans say, and touches finished work only with a consent.

The machine makes declarations from nothing and changes their links, sources, bounds, ranges and names, while tasks run
and after they are done.
After each step the store is compared with an oracle of the written rules (schema_oracle.py).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.types.json import Jsonb

from tests.share import SOAK, soaked
from tests.sql import graph
from tests.sql.conftest import Connection
from tests.sql.model import Job, Key, natural
from tests.sql.schema_oracle import Bounds, Changes, Request, SchemaOracle
from tests.sql.test_model import OUTCOMES, answers, clear, clients, differences_between, seen, set_breaker_threshold

DATASETS = ("a", "b", "c", "d", "e")
"""In this order: a job reads only what comes before all that it writes, so that no cycle comes about."""
JOBS = ("j", "k", "l")
FIRST = (
    (Job("j", ("a",), ("b",)), Job("k", ("b",), ("c",))),
    (Job("j", ("a",), ("c", "d")), Job("k", ("b", "c"), ("e",))),
    (Job("j", (), ("a",)), Job("k", ("a",), ()), Job("l", ("a",), ("b",))),
)
"""Jobs to begin with; the data sets a and b have sources."""
ENDS = (None, None, "1", "2", "9-10", "2013-01", "2013-02")
"""Of ranges."""

Row = dict[str, Any]
FORMS: dict[str, dict[str, Bounds | None]] = {
    "list": {"1": None, "2": None, "10": None},
    "numbers": {"1": {"from": 0, "to": 10}, "2": {"from": 10, "to": 20}},
    "other numbers": {"1": {"from": 0, "to": 8}, "2": {"from": 20, "to": 30}, "10-19": {"from": 10, "to": 20}},
    "months": {
        "2013-01": {"from": "2013-01-01", "to": "2013-02-01"},
        "2013-02": {"from": "2013-02-01", "to": "2013-03-01"},
    },
    "days": {
        "2013-01-31": {"from": "2013-01-31", "to": "2013-02-01"},
        "2013-03-01": {"from": "2013-03-01", "to": "2013-03-02"},
    },
    "buckets": {f"{i}-of-2": {"bucket": i, "buckets": 2} for i in range(2)},
    "other buckets": {"1-of-4": {"bucket": 1, "buckets": 4}, "2-of-4": {"bucket": 2, "buckets": 4}},
}
"""The forms of a chunk source, which divide the same rows in several ways. The same ids have several bounds."""
RULES: dict[str, Row] = {
    "months": {"dateRange": {"from": "2013-01-01", "to": "2013-03-01", "step": "month"}},
    "buckets": {"hash": {"buckets": 2}},
}
"""The rules of forms whose chunks Postgres can compute. If batches have one chunk, two chunks follow in batches."""
OFTEN = ("numbers", "other numbers", "list", "numbers", "other numbers", *FORMS)
"""The ids 1 and 2 in many data sets, so that jobs have all their inputs."""

Ends = tuple[int, int]
Rows = tuple[dict[Key, Row], dict[Key, Row]]
"""Chunks and tasks."""


@st.composite
def sources(draw: st.DrawFn, present: list[str]) -> dict[str, Bounds | None]:
    """A chunk source: some ids of one form, and perhaps some that the data set has now."""
    form = FORMS[draw(st.sampled_from(OFTEN))]
    ids = draw(st.lists(st.sampled_from(sorted(form)), max_size=3, unique=True))
    kept = draw(st.lists(st.sampled_from(present), max_size=2, unique=True)) if present else []
    known = {i: bounds for one in FORMS.values() for i, bounds in one.items()}
    return {**{i: known[i] for i in kept}, **{i: form[i] for i in ids}}


@st.composite
def links(draw: st.DrawFn, job: Job, taken: set[str]) -> Job:
    """A job with other data sets: anew, or one or two of them put in or out."""
    if not job.datasets or draw(st.integers(0, 3)) == 0:
        middle = draw(st.integers(1, len(DATASETS) - 1))
        read = draw(st.sets(st.sampled_from(DATASETS[:middle]), min_size=draw(st.sampled_from([1, 1, 0])), max_size=2))
        written = draw(st.sets(st.sampled_from(DATASETS[middle:]), max_size=2))
        inputs, outputs = read, written - taken
        return replace(job, inputs=tuple(sorted(inputs)), outputs=tuple(sorted(outputs)))
    inputs, outputs = set(job.inputs), set(job.outputs)
    for dataset in draw(st.lists(st.sampled_from(DATASETS), max_size=2, unique=True)):
        if dataset in inputs | outputs:
            inputs, outputs = inputs - {dataset}, outputs - {dataset}
        elif all(dataset < written for written in outputs) and (draw(st.booleans()) or dataset in taken):
            inputs = inputs | {dataset}
        elif all(read < dataset for read in inputs) and dataset not in taken:
            outputs = outputs | {dataset}
    return replace(job, inputs=tuple(sorted(inputs)), outputs=tuple(sorted(outputs)))


@st.composite
def requests(draw: st.DrawFn, machine: "SchemaMachine", jobs: Ends = (0, 2), stated: Ends = (0, 2)) -> Request:
    """A request for so many jobs and sources, with changes that can be applied: one producer for each data set."""
    after = dict(machine.oracle.jobs)
    changed = draw(st.lists(st.sampled_from(JOBS), min_size=jobs[0], max_size=jobs[1], unique=True))
    for job_id in changed:
        job = machine.declared.get(job_id, Job(job_id, (), (), parallelism=100))
        taken = {d for j in after.values() if j.id != job_id for d in j.outputs}
        if not job.datasets or draw(st.booleans()) or set(job.outputs) & taken:
            job = draw(links(replace(job, outputs=tuple(d for d in job.outputs if d not in taken)), taken))
        if draw(st.integers(0, 2)) == 0:
            job = replace(job, chunk_from=draw(st.sampled_from(ENDS)), chunk_to=draw(st.sampled_from(ENDS)))
        if job.datasets:
            after[job_id] = job
    declared = draw(st.lists(st.sampled_from(DATASETS), min_size=stated[0], max_size=stated[1], unique=True))
    ids = {
        d: sorted(i for (dataset, i), c in machine.oracle.chunks.items() if dataset == d and c.in_source)
        for d in declared
    }
    return Request(
        {dataset: draw(sources(ids[dataset])) for dataset in declared},
        tuple(after[job_id] for job_id in changed if job_id in after and not after[job_id].deleted),
    )


CONSENTS: st.SearchStrategy[Row] = st.one_of(
    st.sampled_from(["all", "none"]).map(lambda b: {"retire": True, "overlap": True, "backfill": b}),
    st.just({}),
    st.fixed_dictionaries(
        {},
        optional={
            "retire": st.booleans(),
            "overlap": st.booleans(),
            "backfill": st.sampled_from(["all", "none"]),
            "change": st.sampled_from(["its hash", "its hash", "another"]),
        },
    ),
)


def of_machine(strategy: Any, *values: Any) -> st.SearchStrategy[Any]:
    """A strategy that looks at the machine."""
    return st.runner().flatmap(lambda machine: strategy(machine, *values))


def one_of_machine(read: Any) -> st.SearchStrategy[Any]:
    """One of the things that the machine has now."""
    return st.runner().flatmap(lambda machine: st.sampled_from(read(machine)))


def missing(needs: list[str], consent: Row) -> list[str]:
    """The consents that are needed and not given. A hash is of one plan: that of another allows nothing."""
    if consent.get("change") == "another":
        return needs
    given = {need for need in ("retire", "overlap") if consent.get(need) or consent.get("change")}
    return [n for n in needs if n not in given and not (n == "backfill" and consent.get("backfill"))]


CREATED = ("added", "returned_done", "returned_held", "returned_skipped")
"""What happens to tasks that an apply creates or brings back. It does not count them."""


def plan_in_lines(plan: Changes, *without: str) -> dict[tuple[str, str, str], tuple[int, list[str]]]:
    """How much of what happens to which data set or job, with the first five ids."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for kind, changes in (("chunk", plan.chunks), ("task", plan.tasks)):
        for what, keys in changes.items():
            for owner, data_id in keys:
                if kind == "chunk" or what not in without:
                    found.setdefault((kind, owner, what), set()).add(data_id)
    return {key: (len(ids), sorted(ids, key=natural)[:5]) for key, ids in found.items()}


def json_in_lines(plan: Row) -> dict[tuple[str, str, str], tuple[int, list[str]]]:
    """The same of the plan of the store."""
    return {
        (kind, one[name], what): (one[what], ids)
        for kind, name in (("chunk", "dataset"), ("task", "job"))
        for one in plan[f"{name}s"]
        for what, ids in one["examples"].items()
    }


def finished_counts(plan: Changes) -> Counter[tuple[str, str]]:
    """How many of the retired and changed chunks of a data set are finished."""
    return Counter(
        (d, what) for what in ("retired", "changed") for d, i in plan.chunks[what] if (d, i) in plan.finished
    )


class SchemaMachine(RuleBasedStateMachine):
    """`declared`: the last declaration of each job, also of deleted ones. `made`: tasks that were done once;
    `asked`: those of them that may run again, because a person has asked for that or consented to it."""

    def __init__(self, db: Connection) -> None:
        super().__init__()
        self.db = db
        self.oracle = SchemaOracle(breaker_threshold=1000)
        self.declared: dict[str, Job] = {}
        self.fences: dict[int, int] = {}
        self.made: set[Key] = set()
        self.asked: set[Key] = set()
        clear(db)
        self.lease = graph.open_lease(db)

    def jobs(self) -> list[str]:
        """The jobs that are not deleted."""
        return sorted(job.id for job in self.oracle.jobs.values() if not job.deleted)

    def running(self) -> list[int]:
        """The runs that have not ended."""
        return [r.id for r in self.oracle.runs.values() if r.state == "RUNNING"]

    def known_ids(self) -> list[str]:
        """All ids that any chunk has, and one that none has."""
        return sorted({i for _, i in self.oracle.chunks} | {"7"})

    # Declaring -----------------------------------------------------------------------------------------------

    @initialize(
        jobs=st.sampled_from(FIRST),
        form=st.sampled_from(OFTEN),
        other=st.sampled_from(OFTEN),
        done=st.sampled_from([True, True, False]),
        batch=st.sampled_from([1, 10_000]),
    )
    def declare_all(self, jobs: tuple[Job, ...], form: str, other: str, done: bool, batch: int) -> None:
        graph.value(self.db, "SELECT set_config('opendataflow.declaring_batch', %s, false)", str(batch))
        graph.apply(self.db, [graph.dataset(d) for d in DATASETS], [])
        wide = tuple(replace(job, parallelism=100) for job in jobs)
        self._change(Request({"a": FORMS[form], "b": FORMS[other]}, wide), {})
        if done:
            self._finish()

    @rule(request=of_machine(requests), consent=CONSENTS)
    def change(self, request: Request, consent: Row) -> None:
        self._change(request, consent)

    @rule(request=of_machine(requests, (1, 1), (0, 0)), consent=CONSENTS)
    def change_job(self, request: Request, consent: Row) -> None:
        self._change(request, consent)

    @rule(request=of_machine(requests, (0, 0), (1, 1)), consent=CONSENTS)
    def change_source(self, request: Request, consent: Row) -> None:
        self._change(request, consent)

    @precondition(lambda self: bool(self.jobs()))
    @rule(job=one_of_machine(jobs), name=st.sampled_from((*JOBS, "")), consent=CONSENTS)
    def rename(self, job: str, name: str, consent: Row) -> None:
        """A job gets another name, or none: for the store one is deleted, and another has its data sets."""
        assert graph.value(self.db, "SELECT opendataflow.delete_job(%s, 'test')", job)
        self.oracle.delete(job)
        if name and name not in self.jobs():
            self._change(Request({}, (replace(self.declared[job], id=name),)), consent)

    def _change(self, request: Request, consent: Row) -> None:
        datasets, jobs = _rows_of(request)
        expected = self.oracle.plan(request)
        planned = graph.value(self.db, "SELECT opendataflow.plan_apply(%s, %s)", Jsonb(datasets), Jsonb(jobs))
        uncounted = CREATED if any("source" in row for row in datasets) else ()
        self._check_plan(planned, expected, uncounted)
        hashes = {"its hash": planned["hash"], "another": "0" * 12}
        given = {**consent, **({"change": hashes[consent["change"]]} if "change" in consent else {})}
        needed = missing(expected.needs, consent)
        note(f"needs {expected.needs}, missing {needed}")
        if needed:
            self._refused(datasets, jobs, given, {**planned, "missing": needed})
            return
        before = self._rows()
        applied = graph.apply_allowing(self.db, datasets, jobs, **given)
        assert applied["plan"]["hash"] == planned["hash"]
        assert json_in_lines(applied["plan"]) == plan_in_lines(expected, *CREATED)
        self._declare_rest()
        woken = [*applied["woken"], *(JOBS if applied["declaring"] else ())]  # batches notify engines
        self._check_rows(before, self._rows(), expected, request, woken)
        self.oracle.change(request, consent.get("backfill"))
        self.declared.update({job.id: job for job in request.jobs})
        if consent.get("backfill") == "all":
            self.asked |= expected.tasks["incomplete"] | expected.tasks["changed"]

    def _declare_rest(self) -> None:
        """Write what is declared, in batches."""
        while graph.value(self.db, "SELECT opendataflow.declare_next()") is not None:
            assert graph.problems(self.db) == []

    def _check_plan(self, planned: Row, expected: Changes, uncounted: tuple[str, ...]) -> None:
        """`uncounted`: a plan does not count the tasks of chunks that are declared in batches."""
        found = {
            key: line for key, line in json_in_lines(planned).items() if key[2] not in uncounted or key[0] == "chunk"
        }
        differences = differences_between(plan_in_lines(expected, *uncounted), found)
        assert not differences, "\n".join(differences)
        assert planned["needs"] == expected.needs
        finished = {
            (one["dataset"], what): one[f"{what}_finished"]
            for one in planned["datasets"]
            for what in ("retired", "changed")
            if one[f"{what}_finished"]
        }
        assert finished == finished_counts(expected)

    def _refused(self, datasets: list[Row], jobs: list[Row], consent: Row, plan: Row) -> None:
        with pytest.raises(psycopg.Error) as refusal:
            graph.apply_allowing(self.db, datasets, jobs, **consent)
        assert refusal.value.sqlstate == "DF007"
        assert json.loads(refusal.value.diag.message_detail or "") == plan

    def _rows(self) -> tuple[dict[Key, Row], dict[Key, Row]]:
        """All chunks and tasks."""
        chunks = self.db.execute("SELECT * FROM opendataflow.chunk").fetchall()
        tasks = self.db.execute("SELECT * FROM opendataflow.task").fetchall()
        return {(c["dataset"], c["data_id"]): c for c in chunks}, {(t["job"], t["data_id"]): t for t in tasks}

    def _check_rows(self, before: Rows, after: Rows, plan: Changes, request: Request, woken: list[str]) -> None:
        """The plan says exactly what an apply changes."""
        (old, tasks), (new, left) = before, after
        was = {k for k, row in old.items() if row["retired_from"] is None}
        now = {k for k, row in new.items() if row["retired_from"] is None}
        assert was - now == plan.chunks["retired"]
        assert (now - was) & request.chunks == plan.chunks["added"] | plan.chunks["returned"]
        assert {k for k in was & now if old[k]["bounds"] != new[k]["bounds"]} == plan.chunks["changed"]
        for key in (now - was) & old.keys():
            came_back = old[key]["retired_from"] == "DECLARED" or new[key]["status"] == old[key]["retired_from"]
            assert came_back or key[1] in {i for _, i in plan.tasks["changed"] | plan.tasks["incomplete"]}, key
            assert old[key]["retired_from"] == "DECLARED" or new[key]["fence"] == old[key]["fence"], key
        were = {k for k, row in tasks.items() if row["state"] != "RETIRED"}
        are = {k for k, row in left.items() if row["state"] != "RETIRED"}
        assert are - were == set().union(*(plan.tasks[what] for what in CREATED))
        going = plan.tasks["retired"] | plan.tasks["removed"]
        assert were - are == {k for k in going if tasks[k]["state"] != "RUNNING"}
        for key in are & were & {k for k, row in tasks.items() if row["state"] == "DONE"}:
            redone = key in plan.tasks["incomplete"] | plan.tasks["changed"]
            assert redone or left[key]["state"] == "DONE", key
            assert (
                redone or key in plan.tasks["stale"] | plan.tasks["fresh"] or left[key]["stale"] == tasks[key]["stale"]
            ), key
        for key in (are - were) & tasks.keys() - plan.tasks["changed"]:
            assert left[key]["state"] == tasks[key]["retired_from"], key
        queued = {
            k[0]
            for k, row in left.items()
            if row["state"] == "QUEUED" and tasks.get(k, row | {"state": ""})["state"] != "QUEUED"
        }
        assert queued <= set(woken)

    # Running -------------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.jobs()))
    @rule(job=one_of_machine(jobs), limit=st.sampled_from([3, 1]))
    def claim(self, job: str, limit: int) -> None:
        self._claim(job, limit)

    def _claim(self, job: str, limit: int) -> list[int]:
        expected = self.oracle.claimable(job, limit)
        runs = graph.claim(self.db, self.lease, job, limit)
        assert [run["data_id"] for run in runs] == expected
        for run in runs:
            key = (job, run["data_id"])
            assert key not in self.made or key in self.asked, f"{key} is done and runs again"
            self.made.discard(key)
            self.fences[run["run"]] = run["fence"]
            self.oracle.claim(job, run["data_id"], run["run"])
        return [run["run"] for run in runs]

    @precondition(lambda self: bool(self.jobs()))
    @rule()
    def finish(self) -> None:
        """All that may run now succeeds, and all that follows."""
        self._finish()

    def _finish(self) -> None:
        while runs := [run for job in self.jobs() for run in self._claim(job, 100)]:
            for run in runs:
                self._complete(run, "succeeds")

    @precondition(lambda self: bool(self.running()))
    @rule(
        run=one_of_machine(running),
        outcome=st.sampled_from(["succeeds", "fails for the last time", "fails, again later"]),
    )
    def complete(self, run: int, outcome: str) -> None:
        self._complete(run, outcome)

    def _complete(self, run: int, outcome: str) -> None:
        ended = OUTCOMES[outcome]
        changes = {"state": ended.state, "class": ended.failure_class, "delay": ended.delay}
        row = graph.end(self.db, {"run": run, "fence": self.fences[run]}, ended.verdict, **changes)
        assert row["already"] is False
        self.oracle.complete(run, ended)
        key = (self.oracle.runs[run].job, self.oracle.runs[run].data_id)
        if ended.verdict == "DONE" and key in self.oracle.tasks and self.oracle.state(*key) in ("DONE", "RETIRED"):
            self.made.add(key)
            self.asked.discard(key)

    @precondition(lambda self: bool(self.jobs()))
    @rule(
        verb=st.sampled_from(["resubmit", "skip", "hold", "release"]),
        job=one_of_machine(jobs),
        data_id=one_of_machine(known_ids),
    )
    def ask_for_task(self, verb: str, job: str, data_id: str) -> None:
        given = answers(graph.ask(self.db, verb, job, data_id))
        assert given == getattr(self.oracle, verb)(job, [data_id])
        if verb == "resubmit" and given[data_id] in ("done", "remembered"):
            self.asked.add((job, data_id))

    @rule(dataset=st.sampled_from(DATASETS), data_id=one_of_machine(known_ids))
    def publish(self, dataset: str, data_id: str) -> None:
        assert answers(graph.ask(self.db, "publish", dataset, data_id)) == self.oracle.publish(dataset, [data_id])

    # What must hold ------------------------------------------------------------------------------------------

    @invariant()
    def store_is_as_the_rules_say(self) -> None:
        self.oracle.mark_stale()
        deleted = {job.id for job in self.oracle.jobs.values() if job.deleted}
        differences = differences_between(_frozen(self.oracle.seen(), deleted), _frozen(seen(self.db), deleted))
        assert not differences, "\n".join(differences)
        rows = self.db.execute("SELECT dataset, data_id, bounds, in_source, by_hand FROM opendataflow.chunk")
        found = {(r["dataset"], r["data_id"]): (r["bounds"], r["in_source"], r["by_hand"]) for r in rows}
        chunks = self.oracle.chunks.items()
        assert found == {key: (self.oracle.bounds.get(key), chunk.in_source, chunk.by_hand) for key, chunk in chunks}

    @invariant()
    def verify_finds_nothing(self) -> None:
        assert graph.problems(self.db) == []

    @invariant()
    def nothing_is_called_done_that_was_never_made_and_nothing_retired_is_counted(self) -> None:
        oracle = self.oracle
        for row in self.db.execute("SELECT * FROM opendataflow.list_jobs()"):
            states = {i: task.state for (j, i), task in oracle.tasks.items() if j == row["job"] and not task.retired}
            assert (row["total"], row["done"]) == (len(states), Counter(states.values())["DONE"])
            made = [not oracle.incomplete(row["job"], i) for i, state in states.items() if state == "DONE"]
            assert row["state"] != "Done" or (all(made) and set(states.values()) <= {"DONE", "SKIPPED"})
        counted = Counter(d for (d, _), chunk in oracle.chunks.items() if chunk.status != "RETIRED")
        for row in self.db.execute("SELECT dataset, chunks FROM opendataflow.list_datasets()"):
            assert row["chunks"] == counted[row["dataset"]]


def _rows_of(request: Request) -> tuple[list[Row], list[Row]]:
    datasets = [{"id": d, **_source_of(ids)} for d, ids in request.sources.items()]
    ranged = [(j, {"chunk_from": j.chunk_from, "chunk_to": j.chunk_to}) for j in request.jobs]
    return datasets, [graph.job(j.id, list(j.inputs), list(j.outputs), **ends) for j, ends in ranged]


def _source_of(ids: Mapping[str, Bounds | None]) -> Row:
    """A chunk source as the store takes it: by its rule, where there is one."""
    rules = [rule for form, rule in RULES.items() if FORMS[form] == ids]
    return {"source": rules[0]} if rules else {"chunks": [{"id": i, "bounds": bounds} for i, bounds in ids.items()]}


def _frozen(lines: dict[str, tuple[object, ...]], deleted: set[str]) -> dict[str, tuple[object, ...]]:
    """The tasks of deleted jobs stay as they are; nobody counts what blocks them."""
    return {
        name: ("OPEN" if line[0] in ("WAITING", "QUEUED") else line[0], line[1], line[-2])
        if name.startswith("task ") and name.split()[1].split("/")[0] in deleted
        else line
        for name, line in lines.items()
    }


@pytest.mark.timeout(soaked(1800, 7200))
def test_any_sequence_of_changed_declarations_does_what_its_plans_say(dsn: str) -> None:
    """The same sequences in each run, and others in each soak."""
    with clients(dsn, 1) as (db,):
        set_breaker_threshold(db, 1000)
        run_state_machine_as_test(
            partial(SchemaMachine, db),  # type: ignore[arg-type]  # any factory does
            settings=settings(
                max_examples=soaked(50, 1500), stateful_step_count=20, print_blob=True, derandomize=not SOAK
            ),
        )
