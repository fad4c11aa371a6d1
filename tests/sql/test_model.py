"""Any sequence of requests leaves the store as the rules say; requests that overlap leave it consistent.

The first half drives the store and a model of the rules side by side; the second lets transactions of two clients
really overlap, one of them waiting for the other.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import dict_row

from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.model import Answers, Job, Model, Outcome

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
    "no output": Graph((_job("make", "a", "b"), _job("check", "b", "")), (_job("check", "a b", ""),)),
}
DATASETS = {name: sorted({d for j in (*g.jobs, *g.others) for d in j.inputs + j.outputs}) for name, g in GRAPHS.items()}

OUTCOMES = {
    "succeeds": Outcome("DONE", "SUCCEEDED", "Success"),
    "fails, again at once": Outcome("RETRY"),
    "fails, again later": Outcome("RETRY", delay=3600),
    "fails for the last time": Outcome("FAILED"),
    "is lost": Outcome("RETRY", "LOST", "Infrastructure"),
    "is lost for the last time": Outcome("FAILED", "LOST", "Infrastructure"),
}

TABLES = (
    "step, history, run, lease, work, chunk, job_env, job_input, job_output, job, dataset".replace(", ", ", opendataflow.")
)

some_ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)


def machine_state(read: Callable[["StoreMachine"], list[Any]]) -> st.SearchStrategy[Any]:
    """One of the things that a machine has at this moment."""
    return st.runner().flatmap(lambda machine: st.sampled_from(read(machine)))


def clear(db: Connection) -> None:
    """Make the store empty."""
    db.execute(f"TRUNCATE opendataflow.{TABLES} RESTART IDENTITY")


def answers(rows: list[dict[str, Any]]) -> Answers:
    """A verb's rows in short."""
    return {row["data_id"]: row["result"] for row in rows}


class StoreMachine(RuleBasedStateMachine):
    """Several clients of one store: `people` declare, publish and ask; two `engines` claim and complete."""

    def __init__(self, people: Connection, engines: list[Connection], told: set[str]) -> None:
        super().__init__()
        self.people = people
        self.engines = engines
        self.told = told  # jobs of which the store says that they have READY work, in an answer or by NOTIFY
        self.ready: set[str] = set()
        self.model = Model()
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

    def dataset_ids(self) -> list[str]:
        """The data sets, also those of forms of a job that are not applied."""
        return DATASETS[self.name]

    # Declaring -----------------------------------------------------------------------------------------------

    @initialize(
        name=st.sampled_from(sorted(GRAPHS)),
        parallelism=st.sampled_from([1, 2, 100]),
        descending=st.booleans(),
        sources=st.dictionaries(st.sampled_from(["a", "b", "c"]), some_ids, max_size=2),
    )
    def apply_all(self, name: str, parallelism: int, descending: bool, sources: dict[str, list[str]]) -> None:
        self.name = name
        jobs = [replace(j, parallelism=parallelism, descending=descending) for j in GRAPHS[name].jobs]
        self._apply(jobs, {d: ids for d, ids in sources.items() if d in self.dataset_ids()})

    def _apply(self, jobs: list[Job], sources: dict[str, list[str]]) -> None:
        datasets = [graph.dataset(d, *sources.get(d, [])) for d in self.dataset_ids()]
        woken = graph.apply(
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
                )
                for j in jobs
            ],
        )
        self.told.update(woken)
        self.model.apply(jobs, sources)

    @rule(
        job=machine_state(lambda m: [*GRAPHS[m.name].jobs, *GRAPHS[m.name].others]),
        parallelism=st.sampled_from([0, 1, 2, 100]),
        descending=st.booleans(),
        suspended=st.sampled_from([False, False, True]),
    )
    def apply_job(self, job: Job, parallelism: int, descending: bool, suspended: bool) -> None:
        self._apply([replace(job, parallelism=parallelism, descending=descending, suspended=suspended)], {})

    @rule(dataset=machine_state(dataset_ids), ids=some_ids)
    def apply_source(self, dataset: str, ids: list[str]) -> None:
        self._apply([], {dataset: ids})

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

    @rule(engine=st.sampled_from([0, 1]), job=machine_state(job_ids), limit=st.sampled_from([1, 2, 10]))
    def claim(self, engine: int, job: str, limit: int) -> None:
        """Without a position: all READY work is seen."""
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
        free = len(self.model.claimable(job, limit))
        first = order.index(taken[0]) if taken else len(order)
        assert taken == order[first : first + free]
        self._take(job, taken, answer)

    def _take(self, job: str, expected: list[str], answer: dict[str, Any]) -> None:
        note(f"claimed {[(run['run'], run['data_id']) for run in answer['runs']]}")
        assert [run["data_id"] for run in answer["runs"]] == expected
        assert answer["dropped"] == 0
        self.positions[job] = (answer["rank"], answer["key"])
        for run in answer["runs"]:
            work = self.model.works[job, run["data_id"]]
            assert run["attempt"] == work.attempts + work.infrastructure_attempts + 1
            assert run["fence"] > max(self.fences.values(), default=0)
            self.fences[run["run"]] = run["fence"]
            self.model.claim(job, run["data_id"], run["run"])

    @precondition(lambda self: self.running())
    @rule(engine=st.sampled_from([0, 1]), run=machine_state(running), outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete(self, engine: int, run: int, outcome: str) -> None:
        assert self._end(engine, run, self.fences[run], OUTCOMES[outcome])["already"] is False
        self.model.complete(run, OUTCOMES[outcome])

    @precondition(lambda self: self.ended())
    @rule(engine=st.sampled_from([0, 1]), run=machine_state(ended), outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete_again(self, engine: int, run: int, outcome: str) -> None:
        assert self._end(engine, run, self.fences[run], OUTCOMES[outcome])["already"] is True
        assert self.model.complete(run, OUTCOMES[outcome]) is False

    @precondition(lambda self: self.running())
    @rule(engine=st.sampled_from([0, 1]), run=machine_state(running), outcome=st.sampled_from(sorted(OUTCOMES)))
    def complete_with_an_old_fence(self, engine: int, run: int, outcome: str) -> None:
        assert self._end(engine, run, self.fences[run] - 1, OUTCOMES[outcome])["already"] is True

    def _end(self, engine: int, run: int, fence: int, outcome: Outcome) -> dict[str, Any]:
        row = graph.end(
            self.engines[engine],
            {"run": run, "fence": fence},
            outcome.verdict,
            **{"state": outcome.state, "class": outcome.failure_class, "delay": outcome.delay},
        )
        self.told.update(row["woken"])
        if row["already"]:
            ended = self.model.runs[run]
            assert row["run_state"] == ended.state
            assert row["work_state"] == self.model.state(ended.job, ended.data_id)
        return row

    @rule()
    def retry_due(self) -> None:
        row = self.engines[0].execute("SELECT * FROM opendataflow.retry_due()").fetchone()
        assert row is not None
        self.told.update(row["woken"])
        self.model.retry_due()
        assert (row["next_due"] is not None) == any(w.state == "RETRY" for w in self.model.works.values())

    @precondition(lambda self: any(w.due_in for w in self.model.works.values()))
    @rule()
    def pass_two_hours(self) -> None:
        self.people.execute("UPDATE opendataflow.work SET due_at = due_at - interval '2 hours' WHERE due_at IS NOT NULL")
        self.model.pass_time(7200)

    # Asking --------------------------------------------------------------------------------------------------

    @rule(verb=st.sampled_from(["resubmit", "hold", "release"]), job=machine_state(job_ids), ids=some_ids)
    def ask_for_works(self, verb: str, job: str, ids: list[str]) -> None:
        assert answers(graph.ask(self.people, verb, job, *ids)) == getattr(self.model, verb)(job, ids)

    @rule(
        verb=st.sampled_from(["resubmit_chunks", "hold_chunks", "release_chunks"]),
        dataset=machine_state(dataset_ids),
        ids=some_ids,
    )
    def ask_for_chunks(self, verb: str, dataset: str, ids: list[str]) -> None:
        assert answers(graph.ask(self.people, verb, dataset, *ids)) == getattr(self.model, verb)(dataset, ids)

    # What must hold ------------------------------------------------------------------------------------------

    @invariant()
    def store_is_as_the_model_says(self) -> None:
        expected, actual = self.model.seen(), self._seen()
        differences = [
            f"{name}: the rules say {expected.get(name)}, the store {actual.get(name)}"
            for name in sorted(expected | actual)
            if expected.get(name) != actual.get(name)
        ]
        assert not differences, "\n".join(differences)

    def _seen(self) -> dict[str, tuple[object, ...]]:
        lines: dict[str, tuple[object, ...]] = {}
        for c in self.people.execute("SELECT * FROM opendataflow.chunk"):
            lines[f"chunk {c['dataset']}/{c['data_id']}"] = (c["status"], c["held_status"], c["readers"])
        for w in self.people.execute("SELECT * FROM opendataflow.work"):
            lines[f"work {w['job']}/{w['data_id']}"] = (
                w["state"],
                "OPEN" if w["held_from"] in ("WAITING", "READY") else w["held_from"],
                w["blockers"],
                w["rank"] == 1 and w["state"] in ("WAITING", "READY", "RETRY"),
                w["attempts"],
                w["infrastructure_attempts"],
                w["again"],
            )
        return lines

    @invariant()
    def verify_finds_nothing(self) -> None:
        assert graph.problems(self.people) == []

    @invariant()
    def engines_are_told_of_new_ready_work(self) -> None:
        ready = {f"{j}/{i}" for j, i in self.model.works if self.model.state(j, i) == "READY"}
        assert {name.split("/")[0] for name in ready - self.ready} <= self.told
        self.ready = ready
        self.told.clear()


@contextmanager
def several_connections(dsn: str, number: int) -> Iterator[list[Connection]]:
    """Clients of one database."""
    with ExitStack() as stack:
        yield [stack.enter_context(open_connection(dsn)) for _ in range(number)]


def test_any_sequence_of_requests_leaves_the_store_as_the_rules_say(dsn: str) -> None:
    told: set[str] = set()
    with several_connections(dsn, 3) as (people, *engines):
        people.add_notify_handler(lambda notification: told.add(notification.payload))
        people.execute("LISTEN opendataflow_ready")
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            partial(StoreMachine, people, engines, told),
            settings=settings(
                max_examples=60,
                stateful_step_count=40,
                deadline=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
