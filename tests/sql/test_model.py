"""Any sequence of requests leaves the store as the rules say; requests that overlap leave it consistent.

The first half drives the store and a model of the rules side by side; the second lets transactions of two clients
really overlap, one of them waiting for the other.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
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

from tests.share import soaked
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.model import PAUSES, Answers, Job, Model, Outcome

IDS = ("1", "2", "10")
"""Few, so that requests meet; "2" comes before "10"."""


@dataclass(frozen=True)
class Graph:
    """Jobs as they are at first, and other forms of them that an apply may bring later."""

    jobs: tuple[Job, ...]
    others: tuple[Job, ...] = ()


def _job(job_id: str, inputs: str, outputs: str) -> Job:
    return Job(job_id, tuple(inputs.split()), tuple(outputs.split()))


GRAPHS = {
    "chain": Graph(
        (_job("first", "a", "b"), _job("second", "b", "c")),
        (_job("first", "a", "b x"), _job("first", "a y", "b"), _job("second", "a b", "c"), _job("second", "a", "c z")),
    ),
    "fan-in": Graph(
        (_job("left", "a", "b"), _job("join", "b c", "d")),
        (_job("join", "b", "d"), _job("join", "b c", "d x"), _job("left", "a c", "b")),
    ),
    "fan-out": Graph(
        (_job("split", "a", "b c"), _job("left", "b", "d"), _job("right", "b", "e")),
        (_job("split", "a", "b"), _job("left", "b c", "d"), _job("right", "c", "e")),
    ),
    "no input": Graph(
        (_job("make", "", "a"), _job("use", "a", "b")), (_job("make", "", "a x"), _job("make", "y", "a"))
    ),
    "days": Graph(
        (_job("daily", "today", "b"), _job("also", "a today b", "c")),
        (_job("daily", "a", "b"), _job("also", "today", "c")),
    ),
    "no output": Graph((_job("make", "a", "b"), _job("check", "b", "")), (_job("check", "a b", ""),)),
}
DATASETS = {name: sorted({d for j in (*g.jobs, *g.others) for d in j.inputs + j.outputs}) for name, g in GRAPHS.items()}

OUTCOMES = {
    "succeeds": Outcome("DONE", "SUCCEEDED", "Success"),
    "fails, again at once": Outcome("RETRYING"),
    "fails, again later": Outcome("RETRYING", delay=3600),
    "fails for the last time": Outcome("FAILED"),
    "finds no image": Outcome("RETRYING", "FAILED", "Infrastructure"),
    "is lost": Outcome("RETRYING", "LOST", "Infrastructure"),
    "is lost for the last time": Outcome("FAILED", "LOST", "Infrastructure"),
}

EMPTY = "; ".join(
    [
        "SELECT opendataflow.begin_event('clear', 'test')",
        *(
            f"DELETE FROM opendataflow.{table}"
            for table in (
                *("step", "run", "lease", "task", "task_count"),
                *("declaring", "chunk", "history", "breaker", "gate"),
            )
        ),
        *(f"DELETE FROM opendataflow.{table}" for table in ("job_env", "job_input", "job_output", "job", "dataset")),
        "ALTER SEQUENCE opendataflow.run_id_seq RESTART",
    ]
)
"""Not TRUNCATE: every session would have to plan every statement anew."""

some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)


def machine_state(read: Callable[[Any], list[Any]]) -> st.SearchStrategy[Any]:
    """One of the things that a machine has at this moment."""
    return st.runner().flatmap(lambda machine: st.sampled_from(read(machine)))


def clear(db: Connection) -> None:
    """Make the store empty."""
    db.execute(EMPTY)


def answers(rows: list[dict[str, Any]]) -> Answers:
    """A verb's rows in short."""
    return {row["data_id"]: row["result"] for row in rows}


def seen(db: Connection) -> dict[str, tuple[object, ...]]:
    """What the store shows, in the lines of the model."""
    lines: dict[str, tuple[object, ...]] = {}
    for c in db.execute("SELECT * FROM opendataflow.chunk"):
        lines[f"chunk {c['dataset']}/{c['data_id']}"] = (
            c["status"],
            c["held_status"],
            c["readers"],
            c["retired_from"],
        )
    for w in db.execute("SELECT * FROM opendataflow.task"):
        lines[f"task {w['job']}/{w['data_id']}"] = (
            w["state"],
            "OPEN" if w["held_from"] in ("WAITING", "QUEUED") else w["held_from"],
            w["blockers"],
            w["rank"] if w["state"] in ("WAITING", "QUEUED", "RETRYING") else None,
            w["attempts"],
            w["infrastructure_attempts"],
            w["again"],
            w["forced"],
            w["stale"],
            w["retired_from"],
            w["incomplete"] and w["state"] == "DONE",
        )
    for b in db.execute("SELECT * FROM opendataflow.breaker"):
        failed = list(zip(b["failed"], b["runs"], strict=True))
        lines[f"breaker {b['job']}"] = (
            b["opened_at"] is not None,
            failed,
            sorted(b["forgiven"]),
            b["probes"],
            b["probe"],
        )
    return lines


def differences_between(expected: Mapping[Any, object], actual: Mapping[Any, object]) -> list[str]:
    """A line for each thing that is not as the rules say."""
    return [
        f"{name}: the rules say {expected.get(name)}, the store {actual.get(name)}"
        for name in sorted({**expected, **actual})
        if expected.get(name) != actual.get(name)
    ]


class StoreMachine(RuleBasedStateMachine):
    """Several clients of one store: `people` declare, publish and ask; two `engines` claim and complete."""

    def __init__(self, people: Connection, engines: list[Connection], woken: set[str], breaker_threshold: int) -> None:
        super().__init__()
        self.people = people
        self.engines = engines
        self.woken = woken  # jobs that have QUEUED tasks according to the store, in an answer or by NOTIFY
        self.ready: set[str] = set()
        self.model = Model(breaker_threshold)
        self.fences: dict[int, int] = {}
        self.positions: dict[str, tuple[int, str]] = {}
        self.name = ""
        clear(people)
        self.leases = [graph.open_lease(engine) for engine in engines]

    # What there is -------------------------------------------------------------------------------------------

    def running(self) -> list[int]:
        """The runs that have not ended."""
        return [r.id for r in self.model.runs.values() if r.state == "RUNNING"]

    def ended(self) -> list[int]:
        """The runs that have."""
        return [r.id for r in self.model.runs.values() if r.state != "RUNNING"]

    def job_ids(self) -> list[str]:
        """The jobs."""
        return sorted(self.model.jobs)

    def held(self) -> list[tuple[str, str, str]]:
        """The chunks and tasks that are held, as (verb, owner, data id) of their release."""
        chunks = [("release_chunks", *key) for key, chunk in self.model.chunks.items() if chunk.held]
        return sorted(chunks + [("release", *key) for key, task in self.model.tasks.items() if task.held])

    def chunks_in(self, status: str) -> list[tuple[str, str]]:
        """The chunks with a status."""
        return sorted(key for key, chunk in self.model.chunks.items() if chunk.status == status)

    def claimable_jobs(self) -> list[str]:
        """The jobs that have QUEUED tasks; all jobs where none has."""
        return [j for j in self.job_ids() if self.model.claimable(j, 1)] or self.job_ids()

    def breaker_is_open(self, job: str) -> bool:
        """Whether only probes may run."""
        return job in self.model.breakers and self.model.breakers[job].open

    def dataset_ids(self) -> list[str]:
        """The data sets, also those of forms of a job that are not applied."""
        return DATASETS[self.name]

    # Declaring -----------------------------------------------------------------------------------------------

    @initialize(
        name=st.sampled_from(sorted(GRAPHS)),
        parallelism=st.sampled_from([1, 2, 100]),
        descending=st.booleans(),
        sources=st.dictionaries(st.sampled_from(["a", "b", "c"]), some_ids, max_size=3),
    )
    def apply_all(self, name: str, parallelism: int, descending: bool, sources: dict[str, list[str]]) -> None:
        self.name = name
        jobs = [replace(j, parallelism=parallelism, descending=descending) for j in GRAPHS[name].jobs]
        self._apply(jobs, {d: ids for d, ids in sources.items() if d in self.dataset_ids()})

    def _apply(self, jobs: list[Job], sources: dict[str, list[str]]) -> None:
        datasets = [graph.dataset(d, *sources.get(d, [])) for d in self.dataset_ids() if d != "today"]
        applied = graph.apply_allowing(
            self.people,
            datasets,
            [
                graph.job(
                    j.id,
                    list(j.inputs),
                    list(j.outputs),
                    parallelism=j.parallelism,
                    descending=j.descending,
                    suspended=j.suspended,
                    first_day="0",
                    backoff_initial=PAUSES[0],
                    backoff_maximum=PAUSES[1],
                )
                for j in jobs
            ],
            retire=True,
            overlap=True,
            backfill="none",
        )
        self.woken.update(applied["woken"])
        self.model.apply(jobs, sources)

    @rule(
        jobs=machine_state(lambda m: [[], *([j] for j in (*GRAPHS[m.name].jobs, *GRAPHS[m.name].others))]),
        parallelism=st.sampled_from([100, 1, 2, 0]),
        descending=st.booleans(),
        suspended=st.sampled_from([False, False, False, True]),
        dataset=machine_state(dataset_ids),
        ids=some_ids,
    )
    def apply(
        self,
        jobs: list[Job],
        parallelism: int,
        descending: bool,
        suspended: bool,
        dataset: str,
        ids: list[str],
    ) -> None:
        changed = [replace(j, parallelism=parallelism, descending=descending, suspended=suspended) for j in jobs]
        self._apply(changed, {} if jobs or dataset == "today" else {dataset: ids})

    @rule(dataset=machine_state(dataset_ids), ids=some_ids)
    def declare(self, dataset: str, ids: list[str]) -> None:
        self.people.execute(
            "SELECT opendataflow.declare_chunks(%s, %s, array_fill(NULL::jsonb, ARRAY[%s]), 'test')",
            (dataset, ids, len(ids)),
        )
        self.model.declare(dataset, ids)

    @rule(dataset=machine_state(dataset_ids), ids=some_ids)
    def publish(self, dataset: str, ids: list[str]) -> None:
        assert answers(graph.ask(self.people, "publish", dataset, *ids)) == self.model.publish(dataset, ids)

    # Running -------------------------------------------------------------------------------------------------

    @rule(engine=st.sampled_from([0, 1]), job=machine_state(claimable_jobs), limit=st.sampled_from([10, 1, 2]))
    def claim(self, engine: int, job: str, limit: int) -> None:
        """Without a position: all QUEUED tasks are seen."""
        expected = self.model.claimable(job, limit)
        answer = graph.claim_all(self.engines[engine], self.leases[engine], job, limit)
        self._take(job, expected, answer)

    @precondition(lambda self: self.positions)
    @rule(
        engine=st.sampled_from([0, 1]),
        job=machine_state(lambda m: sorted(m.positions)),
        limit=st.sampled_from([1, 2, 10]),
    )
    def claim_on(self, engine: int, job: str, limit: int) -> None:
        """From the position after the last claim on: nothing before it, and nothing after it is left out."""
        rank, key = self.positions[job]
        answer = graph.claim_all(self.engines[engine], self.leases[engine], job, limit, rank, key)
        order = self.model.ready(job)
        taken = [run["data_id"] for run in answer["runs"]]
        claimable = self.model.claimable(job, limit)
        if self.breaker_is_open(job):  # a probe is looked for everywhere
            assert (taken, answer["rank"], answer["key"]) == (claimable, rank, key)
        else:
            first = order.index(taken[0]) if taken else len(order)
            assert taken == order[first : first + len(claimable)]
        self._take(job, taken, answer)

    def _take(self, job: str, expected: list[str], answer: dict[str, Any]) -> None:
        note(f"claimed {[(run['run'], run['data_id']) for run in answer['runs']]}")
        assert [run["data_id"] for run in answer["runs"]] == expected
        assert answer["dropped"] == 0
        self.positions[job] = (answer["rank"], answer["key"])
        for run in answer["runs"]:
            task = self.model.tasks[job, run["data_id"]]
            assert run["attempt"] == task.attempts + task.infrastructure_attempts + 1
            assert run["fence"] > max(self.fences.values(), default=0)
            self.fences[run["run"]] = run["fence"]
            self.model.claim(job, run["data_id"], run["run"])

    @precondition(lambda self: self.running())
    @rule(engine=st.sampled_from([0, 1]), run=machine_state(running), outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete(self, engine: int, run: int, outcome: str) -> None:
        assert self._end(engine, run, self.fences[run], OUTCOMES[outcome])["already"] is False
        self.model.complete(run, OUTCOMES[outcome])

    @precondition(lambda self: self.running())
    @rule(outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete_all(self, outcome: str) -> None:
        """All runs that have not ended, in one call."""
        ended = OUTCOMES[outcome]
        outcomes = [
            {
                "run": run,
                "fence": self.fences[run],
                "verdict": ended.verdict,
                "state": ended.state,
                "class": ended.failure_class,
                "delay": ended.delay,
            }
            for run in self.running()
        ]
        rows = self.engines[0].execute("SELECT * FROM opendataflow.complete(%s, 'test')", (Jsonb(outcomes),)).fetchall()
        assert sorted(row["run"] for row in rows if not row["already"]) == self.running()
        self.woken.update(rows[0]["woken"])
        for run in self.running():
            self.model.complete(run, ended)

    @precondition(lambda self: self.model.runs)
    @rule(run=machine_state(lambda m: sorted(m.model.runs)), outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete_again_or_with_an_old_fence(self, run: int, outcome: str) -> None:
        """The same end once more, or for a run that has not ended with a fence that is not its own: nothing changes."""
        fence = self.fences[run] - (run in self.running())
        assert self._end(1, run, fence, OUTCOMES[outcome])["already"] is True

    def _end(self, engine: int, run: int, fence: int, outcome: Outcome) -> dict[str, Any]:
        row = graph.end(
            self.engines[engine],
            {"run": run, "fence": fence},
            outcome.verdict,
            **{"state": outcome.state, "class": outcome.failure_class, "delay": outcome.delay},
        )
        self.woken.update(row["woken"])
        if row["already"]:
            ended = self.model.runs[run]
            assert row["run_state"] == ended.state
            rebuilt_away = (ended.job, ended.data_id) not in self.model.tasks
            assert row["task_state"] == ("FAILED" if rebuilt_away else self.model.state(ended.job, ended.data_id))
        return row

    @rule()
    def retry_due(self) -> None:
        row = self.engines[0].execute("SELECT * FROM opendataflow.retry_due()").fetchone()
        assert row is not None
        self.woken.update(row["woken"])
        self.model.retry_due()

    @precondition(
        lambda self: (
            any(w.due_in is not None for w in self.model.tasks.values())
            or any(map(self.breaker_is_open, self.job_ids()))
        )
    )
    @rule()
    def pass_two_hours(self) -> None:
        self.people.execute("UPDATE opendataflow.breaker SET next_probe_at = next_probe_at - interval '2 hours'")
        self.people.execute(
            "UPDATE opendataflow.task SET due_at = due_at - interval '2 hours' WHERE due_at IS NOT NULL"
        )
        self.model.pass_time(7200)

    @precondition(lambda self: any(map(self.breaker_is_open, self.job_ids())))
    @rule(
        job=machine_state(lambda m: [j for j in m.job_ids() if m.breaker_is_open(j)]),
        outcome=st.sampled_from(sorted(OUTCOMES)),
    )
    def probe(self, job: str, outcome: str) -> None:
        """An open breaker is tried after its pause: the other rules rarely come to that."""
        self.pass_two_hours()
        self.retry_due()
        self.claim(0, job, 10)
        run = self.model.breakers[job].probe
        if run is not None:
            self.complete(0, run, outcome)

    # Asking --------------------------------------------------------------------------------------------------

    @rule(
        verb=st.sampled_from(["resubmit", "hold", "release", "skip", "force", "cancel"]),
        job=machine_state(job_ids),
        ids=some_ids,
    )
    def ask_for_tasks(self, verb: str, job: str, ids: list[str]) -> None:
        assert answers(graph.ask(self.people, verb, job, *ids)) == getattr(self.model, verb)(job, ids)

    @rule(
        verb=st.sampled_from(["resubmit_chunks", "hold_chunks", "release_chunks"]),
        dataset=machine_state(dataset_ids),
        ids=some_ids,
    )
    def ask_for_chunks(self, verb: str, dataset: str, ids: list[str]) -> None:
        assert answers(graph.ask(self.people, verb, dataset, *ids)) == getattr(self.model, verb)(dataset, ids)

    @rule(job=machine_state(job_ids), ids=some_ids)
    def resubmit_with_all_below(self, job: str, ids: list[str]) -> None:
        rows = [row for row in graph.ask(self.people, "resubmit_cascade", job, *ids) if row["job"] == job]
        assert answers(rows) == self.model.resubmit_cascade(job, ids)

    @rule(dataset=machine_state(dataset_ids), ids=some_ids, status=st.sampled_from(["PENDING", "FAILED"]))
    def set_chunks(self, dataset: str, ids: list[str], status: str) -> None:
        query = "SELECT * FROM opendataflow.set_chunks(%s, %s, %s, 'test')"
        rows = self.people.execute(query, (dataset, ids, status)).fetchall()
        assert answers(rows) == self.model.set_chunks(dataset, ids, status)

    @precondition(lambda self: self.chunks_in("PENDING"))
    @rule(
        verb=st.sampled_from(["accept", "reject"]), chunk=machine_state(lambda m: m.chunks_in("PENDING")), ids=some_ids
    )
    def judge(self, verb: str, chunk: tuple[str, str], ids: list[str]) -> None:
        dataset, data_id = chunk
        all_ids = sorted({data_id, *ids})
        assert answers(graph.ask(self.people, verb, dataset, *all_ids)) == getattr(self.model, verb)(dataset, all_ids)

    @precondition(lambda self: self.held())
    @rule(key=machine_state(lambda m: m.held()))
    def release_one(self, key: tuple[str, str, str]) -> None:
        """Something that is held: the other rules rarely meet it."""
        verb, owner, data_id = key
        assert answers(graph.ask(self.people, verb, owner, data_id)) == getattr(self.model, verb)(owner, [data_id])

    # What must hold ------------------------------------------------------------------------------------------

    @invariant()
    def store_is_as_the_model_says(self) -> None:
        self.model.mark_stale()
        expected, actual = self.model.seen(), seen(self.people)
        differences = differences_between(expected, actual)
        assert not differences, "\n".join(differences)

    @invariant()
    def verify_finds_nothing(self) -> None:
        assert graph.problems(self.people) == []

    @invariant()
    def engines_are_notified_of_new_queued_tasks(self) -> None:
        ready = {f"{j}/{i}" for j, i in self.model.tasks if self.model.state(j, i) == "QUEUED"}
        assert {name.split("/")[0] for name in ready - self.ready} <= self.woken
        self.ready = ready
        self.woken.clear()


@contextmanager
def clients(dsn: str, number: int) -> Iterator[list[Connection]]:
    """Clients of one database."""
    with ExitStack() as stack:
        connections = [stack.enter_context(open_connection(dsn)) for _ in range(number)]
        for connection in connections:
            connection.execute("SET statement_timeout = '300s'")
        yield connections


def set_breaker_threshold(db: Connection, failures: int) -> None:
    """Let breakers open after so many chunks that fail in a row."""
    db.execute(
        "CREATE OR REPLACE FUNCTION opendataflow.breaker_threshold() RETURNS integer "
        f"LANGUAGE sql IMMUTABLE AS 'SELECT {failures}'"
    )


@pytest.mark.parametrize(("breaker_threshold", "examples"), [(5, 100), (2, 60)])
def test_any_sequence_of_requests_leaves_the_store_as_the_rules_say(
    dsn: str, breaker_threshold: int, examples: int
) -> None:
    """With so few ids five different chunks never fail in a row; where two are enough, breakers open all the time."""
    woken: set[str] = set()
    with clients(dsn, 3) as (people, *engines):
        people.add_notify_handler(lambda notification: woken.add(notification.payload))
        people.execute("LISTEN opendataflow_queued")
        set_breaker_threshold(people, breaker_threshold)
        run_state_machine_as_test(
            partial(StoreMachine, people, engines, woken, breaker_threshold),  # type: ignore[arg-type]  # any factory does
            settings=settings(max_examples=soaked(examples, 20 * examples), stateful_step_count=40, print_blob=True),
        )


# What the machine meets only now and then: a job gets other data sets while its task runs or is held ------------


def relinked(db: Connection, outputs: list[str], **changes: Any) -> None:
    """Job j makes b of a, and now these data sets."""
    changed = [graph.job("j", ["a"], outputs, **changes)]
    graph.apply_allowing(db, [graph.dataset("x")], changed, backfill="none")


def one_job(db: Connection) -> None:
    """Job j makes b of a; a/1 is READY."""
    graph.apply(db, [graph.dataset("a", "1"), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])


@pytest.mark.parametrize("verdict", ["RETRYING", "FAILED"])
@pytest.mark.parametrize("published_first", [True, False])
def test_what_has_failed_is_done_when_another_output_of_its_job_was_published_meanwhile(
    db: Connection, published_first: bool, verdict: str
) -> None:
    one_job(db)
    (run,) = graph.claim(db, graph.open_lease(db), "j")
    relinked(db, ["b"])
    for step in ("publish", "relink") if published_first else ("relink", "publish"):
        if step == "publish":
            graph.ask(db, "publish", "x", "1")
        else:
            relinked(db, ["b", "x"])
    assert graph.end(db, run, verdict)["task_state"] == "DONE"
    assert graph.problems(db) == []


def test_a_resubmit_that_a_run_remembers_is_for_all_outputs_of_its_job_at_its_end(db: Connection) -> None:
    one_job(db)
    (run,) = graph.claim(db, graph.open_lease(db), "j")
    relinked(db, ["b", "x"])
    graph.ask(db, "publish", "x", "1")
    graph.ask(db, "resubmit", "j", "1")
    assert graph.end(db, run, "DONE")["task_state"] == "QUEUED"
    assert (graph.chunks(db)["b/1"], graph.chunks(db)["x/1"]) == ("RESUBMIT", "RESUBMIT")
    assert graph.problems(db) == []


def test_a_resubmit_that_a_held_task_remembers_survives_another_order_of_its_job(db: Connection) -> None:
    one_job(db)
    graph.ask(db, "hold", "j", "1")
    graph.ask(db, "publish", "b", "1")
    graph.ask(db, "resubmit", "j", "1")
    relinked(db, ["b"], descending=True)
    graph.ask(db, "release", "j", "1")
    assert graph.tasks(db)["j/1"] == "QUEUED"
    assert graph.chunks(db)["b/1"] == "RESUBMIT"


def test_a_chunk_without_a_task_that_makes_it_waits_to_be_published_again(db: Connection) -> None:
    one_job(db)
    graph.ask(db, "publish", "b", "2")
    assert answers(graph.ask(db, "resubmit_chunks", "b", "1", "2", "3")) == {
        "1": "unchanged",
        "2": "done",
        "3": "unknown",
    }
    assert graph.chunks(db)["b/2"] == "RESUBMIT"


def test_an_output_that_comes_back_with_its_new_producer_was_made_like_one_that_was_never_retired(
    db: Connection,
) -> None:
    graph.apply(db, [graph.dataset("a", "1", "2"), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])
    for ids in (("1", "2"), ("1",)):
        graph.apply_allowing(db, [graph.dataset("x", *ids)], [], retire=True)
    assert (graph.chunks(db)["x/1"], graph.chunks(db)["x/2"]) == ("READY", "RETIRED")
    relinked(db, ["b", "x"])
    assert (graph.chunks(db)["x/1"], graph.chunks(db)["x/2"]) == ("READY", "READY")
    assert graph.tasks(db) == {"j/1": "DONE", "j/2": "DONE"}
    assert graph.problems(db) == []


# Requests that overlap ---------------------------------------------------------------------------------------


@dataclass
class Scene:
    """A store in which something is going on everywhere, with two clients and one who watches them.

    split makes b and c of a, left makes d of b, right makes e of b and c. Of id 1, split is done, left runs and right
    has to be tried again now; of id 2, split runs; of id 10, split is QUEUED.
    """

    first: Connection
    second: Connection
    watch: Connection
    lease: str = ""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def set(self) -> None:
        """Begin anew."""
        clear(self.watch)
        self.lease = graph.open_lease(self.watch)
        graph.apply(
            self.watch,
            [graph.dataset("a", "1", "2"), *(graph.dataset(d) for d in "bcde")],
            [
                graph.job("split", ["a"], ["b", "c"], parallelism=2),
                graph.job("left", ["b"], ["d"]),
                graph.job("right", ["b", "c"], ["e"]),
            ],
        )
        self._claim("split", "1")
        graph.end(self.watch, self.runs["split/1"], "DONE")
        self._claim("right", "1")
        graph.end(self.watch, self.runs["right/1"], "RETRYING")
        self._claim("left", "1")
        self._claim("split", "2")
        graph.ask(self.watch, "publish", "a", "10")

    def _claim(self, job: str, data_id: str) -> None:
        (self.runs[f"{job}/{data_id}"],) = graph.claim(self.watch, self.lease, job)

    def overlap(self, first: "Request", second: "Request") -> bool:
        """Commit the first request when the second one is done or waits for it; return whether it had to wait."""
        outcome: list[psycopg.Error | None] = []
        thread = threading.Thread(target=lambda: outcome.append(self._try(second)))
        with self.first.transaction():
            first(self.first, self)
            thread.start()
            waited = self._waits(thread)
        thread.join()
        for error in filter(None, outcome):
            if not isinstance(error, graph.TRY_AGAIN):
                raise error
            second(self.second, self)  # "try again" is an answer: whoever gets it does
        return waited

    def _try(self, request: "Request") -> psycopg.Error | None:
        try:
            with self.second.transaction():
                request(self.second, self)
        except psycopg.Error as error:
            return error
        return None

    def _waits(self, thread: threading.Thread) -> bool:
        while thread.is_alive():
            row = self.watch.execute("SELECT pg_blocking_pids(%s) AS by", (self.second.info.backend_pid,)).fetchone()
            assert row is not None
            if self.first.info.backend_pid in row["by"]:
                return True
            thread.join(0.002)
        return False


Request = Callable[[Connection, Scene], object]


def asking(verb: str, owner: str, *ids: str) -> Request:
    """A verb for tasks or chunks."""
    return lambda db, _: graph.ask(db, verb, owner, *ids)


def claiming(job: str, limit: int = 1) -> Request:
    """A claim."""
    return lambda db, scene: graph.claim(db, scene.lease, job, limit)


def ending(name: str, verdict: str) -> Request:
    """The end of a run of the scene, by 'job/id'."""
    return lambda db, scene: graph.end(db, scene.runs[name], verdict)


def declaring(dataset: str, *ids: str) -> Request:
    """Chunks by name."""
    query = "SELECT opendataflow.declare_chunks(%s, %s, array_fill(NULL::jsonb, ARRAY[%s]), 'test')"
    return lambda db, _: db.execute(query, (dataset, list(ids), len(ids)))


def applying(*job_sets: tuple[str, list[str], list[str]]) -> Request:
    """Jobs with other data sets, and a new chunk of a."""
    source, jobs = graph.dataset("a", "1", "2", "3"), [graph.job(*j) for j in job_sets]
    return lambda db, _: graph.apply_allowing(db, [source], jobs, backfill="none")


REQUESTS: dict[str, Request] = {
    "claim of split": claiming("split", 5),
    "claim of right": claiming("right", 5),
    "success of left/1": ending("left/1", "DONE"),
    "failure of split/2": ending("split/2", "FAILED"),
    "publication of a": asking("publish", "a", "10", "2", "1", "3"),
    "publication of b": asking("publish", "b", "3", "1", "2"),
    "resubmit of split": asking("resubmit", "split", "2", "1", "10"),
    "resubmit of chunks of c": asking("resubmit_chunks", "c", "1", "2"),
    "resubmit of split and all below": asking("resubmit_cascade", "split", "10", "1", "2"),
    "cancellation of split": asking("cancel", "split", "2"),
    "hold of right": asking("hold", "right", "1", "2"),
    "force of split": asking("force", "split", "10", "1", "2"),
    "force of right": asking("force", "right", "2", "1"),
    "hold of chunks of b": asking("hold_chunks", "b", "10", "1"),
    "declaration of new ids of a": declaring("a", "3", "4"),
    "declaration of new ids of b": declaring("b", "4", "3"),
    "retries": lambda db, _: db.execute("SELECT * FROM opendataflow.retry_due()"),
    "other links of left": applying(("left", ["b", "c"], ["d"])),
}


@pytest.fixture
def scene(dsn: str) -> Iterator[Scene]:
    with clients(dsn, 3) as (first, second, watch):
        made = Scene(first, second, watch)
        made.set()
        yield made


@pytest.mark.parametrize("first", sorted(REQUESTS))
def test_whatever_overlaps_with_it_the_store_stays_consistent(scene: Scene, first: str) -> None:
    for second in sorted(REQUESTS):
        scene.set()
        scene.overlap(REQUESTS[first], REQUESTS[second])
        assert graph.problems(scene.watch) == [], f"{first}, and meanwhile: {second}"


def test_a_claim_passes_by_what_is_being_published(scene: Scene) -> None:
    assert not scene.overlap(asking("publish", "a", "10"), claiming("split"))
    assert graph.tasks(scene.watch)["split/10"] == "QUEUED"
    assert [run["data_id"] for run in graph.claim(scene.watch, scene.lease, "split")] == ["10"]


def test_publishing_waits_for_a_claim_of_the_same_chunk_and_is_refused_for_what_it_writes(scene: Scene) -> None:
    assert scene.overlap(claiming("split"), asking("publish", "b", "10"))
    assert graph.chunks(scene.watch)["b/10"] == "RUNNING"
    assert graph.problems(scene.watch) == []


@pytest.mark.parametrize("resubmit_first", [True, False])
def test_an_input_is_withdrawn_at_the_end_of_its_last_reader(scene: Scene, resubmit_first: bool) -> None:
    pair = [asking("resubmit_chunks", "b", "1"), ending("left/1", "DONE")]
    assert scene.overlap(*(pair if resubmit_first else reversed(pair)))
    assert graph.chunks(scene.watch)["b/1"] == "RESUBMIT"
    assert graph.tasks(scene.watch)["split/1"] == "QUEUED"  # nobody reads what it writes any more
    assert graph.tasks(scene.watch)["left/1"] == "DONE"


def test_claims_of_one_job_take_turns_and_keep_its_parallelism(scene: Scene) -> None:
    graph.ask(scene.watch, "publish", "a", "3", "4")
    assert scene.overlap(claiming("split", 5), claiming("split", 5))
    assert sorted(graph.tasks(scene.watch).values()).count("RUNNING") == 3  # two of split, one of left


def test_claims_of_two_jobs_that_read_the_same_chunk_do_not_wait_and_both_succeed_in_the_end(scene: Scene) -> None:
    graph.end(scene.watch, scene.runs["split/2"], "DONE")
    assert not scene.overlap(claiming("left"), claiming("right"))
    graph.claim(scene.watch, scene.lease, "right")
    tasks = graph.tasks(scene.watch)
    assert (tasks["left/2"], tasks["right/2"]) == ("RUNNING", "RUNNING")
    assert graph.problems(scene.watch) == []


def test_declarations_of_the_same_new_ids_make_them_once(scene: Scene) -> None:
    assert scene.overlap(declaring("a", "3", "4"), declaring("a", "4", "3", "5"))
    assert {i for i in ("3", "4", "5") if graph.tasks(scene.watch)[f"split/{i}"] == "WAITING"} == {"3", "4", "5"}
    assert graph.problems(scene.watch) == []
