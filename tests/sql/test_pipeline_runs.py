"""The steps of runs: committed with the outcome or not at all, bounded, and shown run by run."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from opendataflow.core.pipelines.report import LONGEST_NAME, LONGEST_TEXT
from opendataflow.model.records.claim import Completion, PipelineRuns
from opendataflow.model.records.run import StepReport
from opendataflow.names import OutcomeClass, RunState, StepStatus, TaskState
from opendataflow.store.store import Store
from tests.sql.conftest import Connection
from tests.sql.graph import apply, claim, dataset, end, job, open_lease, value

UNMET = {"expectations": [{"name": "keys", "held": False, "severity": "fail", "found": "2 rows"}]}


@pytest.fixture
def lease(db: Connection) -> str:
    data = [dataset("a", "1", "2"), dataset("b"), dataset("c"), dataset("d")]
    jobs = [job("j", ["a"], ["b"], retry_limit=9), job("k", ["a"], ["c"]), job("plain", ["a"], ["d"])]
    for one, pipeline in zip(jobs, ("delays", "other"), strict=False):
        one["pipeline"] = pipeline
    apply(db, data, jobs)
    return open_lease(db)


def one(db: Connection, lease: str, job_id: str = "j") -> dict[str, Any]:
    [run] = claim(db, lease, job_id)
    return run


def step(ordinal: int, name: str, status: str = "DONE", **more: Any) -> dict[str, Any]:
    return {"ordinal": ordinal, "name": name, "status": status, **more}


async def ask(store: Store, limit: int = 10, **chosen: Any) -> list[tuple[str, str, str]]:
    found = await store.pipeline_runs(PipelineRuns(**chosen), limit)
    return [(row["pipeline"], row["data_id"], row["state"]) for row in found]


async def test_steps_are_kept_with_the_outcome_and_a_second_call_changes_nothing(
    store: Store, db: Connection, lease: str
) -> None:
    run = one(db, lease)
    steps = (
        StepReport(1, "read a", StepStatus.DONE, 4, 0.5),
        StepReport(
            3, "n" * LONGEST_NAME, StepStatus.FAILED, None, 1.0, "ü" * LONGEST_TEXT, "\U0001f600" * LONGEST_TEXT
        ),
    )
    done = Completion(
        run["run"],
        run["fence"],
        TaskState.RETRYING,
        RunState.FAILED,
        OutcomeClass.EXPECTATION,
        "no",
        metrics=UNMET,
        steps=steps,
    )
    await store.complete([done], "engine")
    await store.complete([replace(done, steps=steps[:1])], "engine")
    (found,) = await store.pipeline_runs(PipelineRuns(), 10)
    assert [StepReport(**it) for it in found["steps"]] == list(steps)
    assert (found["failure_class"], found["metrics"]) == ("ExpectationFailed", UNMET)
    described = await store.describe_run(run["run"])
    assert described is not None
    assert described["steps"] == found["steps"]
    chunk = await store.describe_chunk("b", run["data_id"])
    assert chunk is not None
    assert chunk["expectations"] == UNMET["expectations"]


def test_where_a_step_can_not_be_kept_the_outcome_is_not_committed_either(db: Connection, lease: str) -> None:
    run = one(db, lease)
    with pytest.raises(psycopg.errors.CheckViolation), db.transaction():
        end(db, run, "DONE", steps=[step(1, "a"), step(2, "b", "RUNNING")])
    assert value(db, "SELECT state FROM opendataflow.run") == "RUNNING"
    assert value(db, "SELECT count(*) FROM opendataflow.step") == 0


def test_the_steps_of_a_run_that_was_ended_by_somebody_else_are_not_kept(db: Connection, lease: str) -> None:
    run = one(db, lease)
    end(db, {**run, "fence": run["fence"] - 1}, "DONE", steps=[step(1, "a")])
    assert value(db, "SELECT count(*) FROM opendataflow.step") == 0


async def test_runs_of_pipelines_are_found_by_what_they_are_about(store: Store, db: Connection, lease: str) -> None:
    first, second, other = one(db, lease), one(db, lease), one(db, lease, "k")
    one(db, lease, "plain")
    end(db, first, "DONE", steps=[step(1, "a", rows=3)])
    end(db, second, "FAILED")
    everything = [("other", "1", "RUNNING"), ("delays", "2", "FAILED"), ("delays", "1", "SUCCEEDED")]
    assert await ask(store) == everything
    assert await ask(store, 1) == everything[:1]
    assert await ask(store, pipeline="delays") == everything[1:]
    assert await ask(store, dataset="c") == everything[:1]
    assert await ask(store, data_id="1") == [everything[0], everything[2]]
    assert await ask(store, failed=True) == everything[1:2]
    assert await ask(store, run=other["run"]) == everything[:1]
    assert await ask(store, pipeline="gone") == []
    assert await store.pipelines() == ["delays", "other"]


def test_the_class_of_failures_is_reported_for_statuses(db: Connection, lease: str) -> None:
    end(db, one(db, lease), "FAILED", **{"class": "ExpectationFailed"})
    report = value(db, "SELECT report FROM opendataflow.job_reports('{j}', 10)")
    assert [it["reason"] for it in report["last_failures"]] == ["ExpectationFailed"]
    assert [it["class"] for it in report["failed"]] == ["ExpectationFailed"]


async def test_a_run_that_was_given_back_is_shown_as_that_everywhere_and_is_no_failure(
    store: Store, db: Connection, lease: str
) -> None:
    run = one(db, lease)
    end(db, run, "RETRYING", **{"class": "NotStarted", "state": "LOST", "delay": 0})
    assert [state for _, _, state in await ask(store)] == ["GIVEN_BACK"]
    listed = await store.list_runs("j", None, 10)
    described, inspected = await store.describe_run(run["run"]), await store.inspection("j", run["data_id"])
    assert described is not None
    assert inspected is not None
    assert {it["state"] for it in (listed[0], described["run"], inspected["run"])} == {"GIVEN_BACK"}
    assert value(db, "SELECT count(*) FROM opendataflow.last_failures('j', 10)") == 0
