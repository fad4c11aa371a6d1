"""A change of a declaration is planned before it is written, and finished work is touched only with a consent."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from opendataflow.model.records.plan import Plan
from tests.sql.conftest import Connection
from tests.sql.graph import (
    apply,
    apply_allowing,
    ask,
    chunk,
    chunks,
    claim,
    dataset,
    end,
    job,
    problems,
    source,
    task,
    tasks,
    value,
)
from tests.sql.test_apply import everything

MONTHS = {"2013-01": ("2013-01-01", "2013-02-01"), "2013-02": ("2013-02-01", "2013-03-01")}
DAYS = {"2013-01-01": ("2013-01-01", "2013-01-02"), "2013-03-01": ("2013-03-01", "2013-03-02")}


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


def bounded(dataset_id: str, ranges: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    """A data set whose chunk source has ranges."""
    made = [{"id": i, "bounds": {"from": low, "to": high}} for i, (low, high) in ranges.items()]
    return {"id": dataset_id, "chunks": made}


def divided(kind: str, *ids: str) -> dict[str, Any]:
    """Data set a with a list of ids, which say the rows because of the partitioning of its table."""
    return {**source("a", *ids), "partitioning": {"column": "c", "type": kind}}


def hashed(dataset_id: str, buckets: int) -> dict[str, Any]:
    """A data set whose chunk source has buckets."""
    made = [{"id": f"{i}-of-{buckets}", "bounds": {"bucket": i, "buckets": buckets}} for i in range(buckets)]
    return {"id": dataset_id, "chunks": made}


def finish(db: Connection, lease: str, job_id: str, limit: int = 100) -> None:
    """All QUEUED tasks of a job succeed."""
    for run in claim(db, lease, job_id, limit):
        end(db, run, "DONE")


def refused(db: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]], **consent: Any) -> Plan:
    """An apply is refused and changes nothing; return its plan."""
    before = everything(db)
    with pytest.raises(psycopg.Error, match="affects finished tasks") as error, db.transaction():
        apply_allowing(db, datasets, jobs, **consent)
    assert error.value.sqlstate == "DF007"
    assert everything(db) == before
    assert error.value.diag.message_detail is not None
    return Plan.of_json(error.value.diag.message_detail)


def planned(db: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> Plan:
    """The plan of an apply; asking for it changes nothing."""
    before = everything(db)
    query = "SELECT opendataflow.plan_apply(%s, %s)"
    plan = value(db, query, Jsonb(datasets), Jsonb(jobs))
    assert everything(db) == before
    return Plan.of_row(plan)


def months_done(db: Connection, lease: str) -> None:
    """Job j has made b of the months of a, and k reads b."""
    apply(db, [bounded("a", MONTHS), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])])
    finish(db, lease, "j")


# Changed chunk sources


def test_days_instead_of_finished_months_are_refused_until_both_consents_are_given(db: Connection, lease: str) -> None:
    months_done(db, lease)
    plan = refused(db, [bounded("a", DAYS)], [])
    assert plan.missing == ("retire", "overlap")
    changed = {one.dataset: one for one in plan.datasets}
    assert (changed["a"].added, changed["a"].retired, changed["a"].overlapping) == (2, 2, 1)
    assert changed["a"].examples["overlapping"] == ("2013-01-01",)
    (first, _) = plan.jobs
    assert (first.job, first.added, first.retired) == ("j", 2, 2)
    assert refused(db, [bounded("a", DAYS)], [], retire=True).missing == ("overlap",)
    assert refused(db, [bounded("a", DAYS)], [], overlap=True).missing == ("retire",)
    assert planned(db, [bounded("a", DAYS)], []) == plan

    apply_allowing(db, [bounded("a", DAYS)], [], retire=True, overlap=True)

    assert {i: s for i, s in tasks(db).items() if i.startswith("j/")} == {
        "j/2013-01": "RETIRED",
        "j/2013-02": "RETIRED",
        "j/2013-01-01": "QUEUED",
        "j/2013-03-01": "QUEUED",
    }
    assert problems(db) == []


def test_what_was_made_once_is_finished_also_while_it_is_resubmitted(db: Connection, lease: str) -> None:
    months_done(db, lease)
    ask(db, "resubmit", "j", "2013-01")
    without_january = dict(list(MONTHS.items())[1:])
    assert refused(db, [bounded("a", without_january)], []).missing == ("retire",)
    assert "overlap" in refused(db, [bounded("a", DAYS)], []).missing


def test_a_hash_allows_exactly_its_plan(db: Connection, lease: str) -> None:
    months_done(db, lease)
    plan = refused(db, [bounded("a", DAYS)], [])
    other = dict(list(MONTHS.items())[:1])
    assert refused(db, [bounded("a", other)], [], change=plan.hash, retire=True).hash != plan.hash
    apply_allowing(db, [bounded("a", DAYS)], [], change=plan.hash)
    assert tasks(db)["j/2013-01"] == "RETIRED"


def test_the_hash_of_a_plan_stays_the_same_while_runs_finish(db: Connection, lease: str) -> None:
    apply(db, [bounded("a", MONTHS), dataset("b")], [job("j", ["a"], ["b"])])
    first, second = claim(db, lease, "j", 2)
    end(db, first, "DONE")
    plan = refused(db, [bounded("a", DAYS)], [])
    end(db, second, "DONE")
    assert refused(db, [bounded("a", DAYS)], []).hash == plan.hash


def test_a_finished_id_that_returns_with_other_bounds_needs_the_same_decision_as_one_that_stayed(
    db: Connection, lease: str
) -> None:
    apply(db, [bounded("a", {"x": (0, 10)}), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [source("a")], [], retire=True)
    plan = refused(db, [bounded("a", {"x": (0, 20)})], [], retire=True, overlap=True)
    assert (plan.missing, plan.jobs[0].returned_done, plan.jobs[0].changed) == (("backfill",), 1, 1)
    apply_allowing(db, [bounded("a", {"x": (0, 20)})], [], backfill="none")
    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"], problems(db)) == ("DONE", True, [])


@pytest.mark.parametrize("verdict", ["DONE", "FAILED"])
def test_a_task_that_ran_with_other_bounds_is_stale_at_its_end(db: Connection, lease: str, verdict: str) -> None:
    apply(db, [bounded("a", {"x": (0, 10)}), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    apply_allowing(db, [bounded("a", {"x": (0, 20)})], [], backfill="none")
    end(db, run, verdict)
    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"]) == (verdict, verdict == "DONE")
    assert problems(db) == []


def test_a_task_that_goes_with_its_id_has_no_changed_bounds(db: Connection, lease: str) -> None:
    apply(db, [source("a", "x"), bounded("b", {"x": (0, 10)})], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    plan = planned(db, [source("a"), bounded("b", {"x": (0, 20)})], [])
    assert (plan.needs, plan.jobs[0].retired, plan.jobs[0].changed) == (("retire",), 1, 0)


def test_an_output_comes_back_with_its_id_also_when_its_job_has_a_narrower_range(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])])
    finish(db, lease, "j")
    finish(db, lease, "k")
    before = (tasks(db), chunks(db))
    apply(db, [], [job("j", ["a"], ["b"], chunk_from="2")])
    apply_allowing(db, [source("a", "2")], [], retire=True)
    assert chunks(db)["b/1"] == "RETIRED"
    assert {one.job: one.returned_done for one in planned(db, [source("a", "1", "2")], []).jobs} == {"j": 1, "k": 1}
    apply(db, [source("a", "1", "2")], [])
    assert ((tasks(db), chunks(db)), problems(db)) == (before, [])
    assert task(db, "j", "1")["incomplete"] is False


def test_a_source_that_grows_needs_no_consent(db: Connection, lease: str) -> None:
    months_done(db, lease)
    apply(db, [bounded("a", {**MONTHS, "2013-03": ("2013-03-01", "2013-04-01")})], [])
    assert tasks(db)["j/2013-03"] == "QUEUED"
    assert problems(db) == []


def test_ids_that_were_never_finished_are_retired_without_a_consent(db: Connection, lease: str) -> None:
    apply(
        db, [source("a", "1", "2", "3"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])]
    )
    end(db, claim(db, lease, "j")[0], "DONE")
    plan = planned(db, [source("a", "1")], [])
    assert plan.needs == ()
    assert {one.dataset: (one.retired, one.retired_finished) for one in plan.datasets} == dict.fromkeys("abc", (2, 0))
    assert {one.job: one.removed for one in plan.jobs} == {"j": 2, "k": 2}

    apply(db, [source("a", "1")], [])

    assert tasks(db) == {"j/1": "DONE", "k/1": "QUEUED"}
    assert {i for i, status in chunks(db).items() if status == "RETIRED"} == {f"{d}/{i}" for d in "abc" for i in "23"}
    assert problems(db) == []


def test_retired_chunks_and_tasks_are_not_counted_anywhere(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [source("a", "1")], [], retire=True)

    (listed,) = db.execute("SELECT * FROM opendataflow.list_jobs()").fetchall()
    assert (listed["state"], listed["done"], listed["total"]) == ("Done", 1, 1)
    status = value(db, "SELECT opendataflow.job_status('j')")
    assert (status["counts"], status["watermark"], status["gaps"]) == ({"DONE": 1}, "1", 0)
    counted = {
        r["dataset"]: (r["ready"], r["chunks"]) for r in db.execute("SELECT * FROM opendataflow.list_datasets()")
    }
    assert counted == {"a": (1, 1), "b": (1, 1)}
    assert value(db, "SELECT opendataflow.dataset_counts('b') -> 'counts'") == {"READY": 1}
    assert value(db, "SELECT opendataflow.dataset_gaps('b', 10)") == {"watermark": "1", "gaps": []}
    assert value(db, "SELECT array_agg(data_id) FROM opendataflow.list_chunks('b', NULL, false, 10)") == ["1"]
    assert value(db, "SELECT array_agg(data_id) FROM opendataflow.list_chunks('b', 'RETIRED', false, 10)") == ["2"]
    assert value(db, "SELECT array_agg(data_id) FROM opendataflow.select_tasks('j', NULL, NULL, NULL)") == ["1"]
    assert value(db, "SELECT opendataflow.describe_dataset('b') -> 'counts'") == {"READY": 1}
    assert value(db, "SELECT count(*) FROM dataflow.datastatus WHERE dataid = '2'") == 0
    assert value(db, "SELECT count(*) FROM opendataflow.history WHERE data_id = '2' AND to_state = 'RETIRED'") == 3


@pytest.mark.parametrize("verdict", ["FAILED", "RETRYING"])
@pytest.mark.parametrize("left", ["the source", "the range"])
def test_what_has_failed_is_failed_again_when_its_id_returns(
    db: Connection, lease: str, left: str, verdict: str
) -> None:
    def apply_with(*ids: str) -> None:
        of_source, last = (ids, None) if left == "the source" else (("1", "2"), ids[-1])
        apply(db, [source("a", *of_source), dataset("b")], [job("j", ["a"], ["b"], chunk_to=last)])

    apply_with("1", "2")
    [first, second] = claim(db, lease, "j", 2)
    end(db, first, "DONE")
    end(db, second, verdict, delay=3600)
    apply_with("1")
    apply_with("1", "2")
    found = task(db, "j", "2")
    assert (found["state"], found["run"], found["reason"]) == ("FAILED", second["run"], "exit code 1")
    assert problems(db) == []
    ask(db, "resubmit", "j", "2")
    assert task(db, "j", "2")["state"] == "QUEUED"


def test_an_id_that_returns_after_its_run_did_not_start_is_tried_again(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    end(db, run, "RETRYING", state="LOST", delay=3600, **{"class": "NotStarted"})
    apply(db, [source("a"), dataset("b")], [job("j", ["a"], ["b"])])
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    assert task(db, "j", "1")["state"] == "QUEUED"


def test_an_id_that_returns_gets_back_what_it_was(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    ask(db, "hold", "j", "3")
    ask(db, "hold_chunks", "a", "3")
    finish(db, lease, "j")
    before = (tasks(db), chunks(db), chunk(db, "b", "1")["fence"])
    apply_allowing(db, [source("a", "9")], [], retire=True)
    assert {s for i, s in tasks(db).items() if i != "j/9"} == {"RETIRED"}

    apply(db, [source("a", "1", "2", "3")], [])

    live = {i: s for i, s in chunks(db).items() if s != "RETIRED"}
    assert (tasks(db), live, chunk(db, "b", "1")["fence"]) == before
    assert claim(db, lease, "j") == []
    assert problems(db) == []


@pytest.mark.parametrize("how", ["publish", "declare", "load"])
def test_what_a_person_has_loaded_or_published_is_never_retired_by_a_source(
    db: Connection, lease: str, how: str
) -> None:
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    statement = {
        "publish": "SELECT count(*) FROM opendataflow.publish('a', '{1,2}', 'ada')",
        "declare": "SELECT opendataflow.declare_chunks('a', '{1,2}', '{NULL,NULL}', 'ada')",
        "load": "SELECT opendataflow.load_chunks('a', '{1,2}', '{NULL,NULL}', true, 'ada')",
    }[how]
    db.execute(statement)
    finish(db, lease, "j")
    plan = planned(db, [source("a")], [])
    assert (plan.needs, plan.datasets, plan.jobs) == ((), (), ())
    before = tasks(db)
    apply(db, [source("a")], [])
    assert (tasks(db), problems(db)) == (before, [])


def test_a_chunk_stays_while_another_input_of_its_job_has_the_id(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), source("e", "1"), dataset("b")], [job("j", ["a", "e"], ["b"])])
    finish(db, lease, "j")
    assert planned(db, [source("a")], []).needs == ()
    apply(db, [source("a")], [])
    assert (tasks(db), chunks(db)["a/1"]) == ({"j/1": "DONE"}, "READY")
    assert refused(db, [source("e")], []).missing == ("retire",)
    assert problems(db) == []


@pytest.mark.parametrize("verdict", ["DONE", "RETRYING", "FAILED"])
def test_a_running_task_goes_on_and_is_retired_when_its_run_ends(db: Connection, lease: str, verdict: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    assert refused(db, [source("a", "2")], []).missing == ("retire",)
    apply_allowing(db, [source("a", "2")], [], retire=True)
    assert (tasks(db)["j/1"], chunks(db)["b/1"], problems(db)) == ("RUNNING", "RUNNING", [])

    end(db, run, verdict, delay=3600)

    assert tasks(db) == {"j/2": "QUEUED"} | ({"j/1": "RETIRED"} if verdict == "DONE" else {})
    assert chunks(db)["b/1"] == "RETIRED"
    assert problems(db) == []


def test_a_running_task_whose_id_returns_before_its_end_is_done_as_usual(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    apply_allowing(db, [source("a", "2")], [], retire=True)
    apply(db, [source("a", "1", "2")], [])
    end(db, run, "DONE")
    assert (tasks(db)["j/1"], chunks(db)["b/1"], problems(db)) == ("DONE", "READY", [])


@pytest.mark.parametrize("verb", ["resubmit", "hold", "skip", "force", "cancel"])
def test_no_verb_starts_or_keeps_a_retired_task(db: Connection, lease: str, verb: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [source("a", "2")], [], retire=True)
    (answer,) = ask(db, verb, "j", "1")
    assert (answer["result"], answer["state"]) == ("refused", "RETIRED")
    assert answer["message"]
    assert problems(db) == []


@pytest.mark.parametrize("verb", ["hold_chunks", "accept", "reject"])
def test_no_verb_changes_a_retired_chunk(db: Connection, verb: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    apply(db, [source("a", "2")], [])
    (answer,) = ask(db, verb, "a", "1")
    assert (answer["result"], answer["state"]) == ("refused", "RETIRED")
    assert "retired" in answer["message"].lower()


def test_publishing_a_retired_chunk_brings_it_back(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [source("a", "2")], [], retire=True)
    ask(db, "publish", "a", "1")
    assert (tasks(db)["j/1"], task(db, "j", "1")["stale"], chunks(db)["b/1"]) == ("DONE", True, "READY")
    assert problems(db) == []


OVERLAPS = {
    "a day in a finished month": (bounded("a", MONTHS), bounded("a", {**MONTHS, **DAYS}), 1),
    "numbers inside": (bounded("a", {"0-99": (0, 100)}), bounded("a", {"0-99": (0, 100), "50-59": (50, 60)}), 1),
    "numbers around": (bounded("a", {"50-59": (50, 60)}), bounded("a", {"50-59": (50, 60), "0-99": (0, 100)}), 1),
    "numbers beside": (bounded("a", {"0-99": (0, 100)}), bounded("a", {"0-99": (0, 100), "100-199": (100, 200)}), 0),
    "negative numbers beside": (bounded("a", {"n": (-9, -5)}), bounded("a", {"n": (-9, -5), "m": (-20, -9)}), 0),
    "more buckets": (hashed("a", 2), hashed("a", 4), 4),
    "buckets instead of dates": (bounded("a", MONTHS), hashed("a", 3), 3),
    "no bounds": (source("a", "1"), source("a", "1", "2"), 0),
    "a day in a finished month, by ids": (divided("date", "2013-01"), divided("date", "2013-01", "2013-01-05"), 1),
    "a day beside a finished month, by ids": (divided("date", "2013-01"), divided("date", "2013-01", "2013-02-05"), 0),
    "numbers in others, by ids": (divided("range", "0-99"), divided("range", "0-99", "50-59", "..0"), 2),
    "more buckets, by ids": (divided("hash", "0-of-2", "1-of-2"), divided("hash", "0-of-2", "1-of-2", "3-of-4"), 1),
    "other values, by ids": (divided("list", "x"), divided("list", "x", "y", "null"), 0),
    "days in ids of a month with bounds": (
        bounded("a", MONTHS),
        {**bounded("a", MONTHS), **divided("date", "2013-01-05")},
        1,
    ),
    "ids of one list in each other": (divided("date"), divided("date", "2013-01", "2013-01-05", "2013-03"), 2),
    "ids that say no bounds": (divided("date", "2013-W1"), divided("date", "2013-W1", "2013-W2"), 0),
}


@pytest.mark.parametrize("name", sorted(OVERLAPS))
def test_new_bounds_that_overlap_finished_ones_are_found(db: Connection, lease: str, name: str) -> None:
    before, after, overlapping = OVERLAPS[name]
    apply(db, [before, dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    plan = planned(db, [after], [])
    assert sum(one.overlapping for one in plan.datasets) == overlapping
    assert ("overlap" in plan.needs) == (overlapping > 0)


def test_ids_that_overlap_once_a_partitioning_gives_them_a_meaning_are_found(db: Connection) -> None:
    apply(db, [source("a", "2013-01", "2013-01-05", "2013-02")], [])
    plan = refused(db, [divided("date", "2013-01", "2013-01-05", "2013-02")], [])
    assert plan.datasets[0].examples["overlapping"] == ("2013-01", "2013-01-05")
    apply_allowing(db, [divided("date", "2013-01", "2013-01-05", "2013-02")], [], overlap=True)
    assert planned(db, [divided("date", "2013-01", "2013-01-05", "2013-02")], []).needs == ()


def test_an_id_of_a_list_overlaps_one_that_stays_and_is_still_to_do(db: Connection) -> None:
    apply(db, [divided("date", "2013-01")], [])
    plan = refused(db, [divided("date", "2013-01", "2013-01-05")], [])
    assert plan.datasets[0].examples["overlapping"] == ("2013-01-05",)
    assert planned(db, [divided("date", "2013-01-05")], []).needs == ()


def test_stored_bounds_say_more_than_ids(db: Connection) -> None:
    partitioning = {"partitioning": {"column": "c", "type": "date"}}
    apply(db, [{**bounded("a", {"2013-01": ("2014-01-01", "2014-02-01")}), **partitioning}], [])
    assert planned(db, [divided("date", "2013-01", "2013-01-05")], []).needs == ()
    assert planned(db, [divided("date", "2013-01", "2014-01-05")], []).needs == ("overlap",)


def test_finished_chunks_that_were_retired_before_still_overlap(db: Connection, lease: str) -> None:
    months_done(db, lease)
    apply_allowing(db, [source("a")], [], retire=True)
    assert refused(db, [bounded("a", DAYS)], []).missing == ("overlap",)


@pytest.mark.parametrize(("backfill", "state", "stale"), [("all", "QUEUED", False), ("none", "DONE", True)])
def test_other_bounds_of_a_finished_chunk_need_a_decision(
    db: Connection, lease: str, backfill: str, state: str, stale: bool
) -> None:
    apply(db, [bounded("a", {"x": (0, 10)}), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    assert refused(db, [bounded("a", {"x": (0, 20)})], [], retire=True, overlap=True).missing == ("backfill",)
    apply_allowing(db, [bounded("a", {"x": (0, 20)})], [], backfill=backfill)
    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"]) == (state, stale)
    assert problems(db) == []


# Changed jobs


def test_inputs_that_leave_finished_tasks_without_an_id_are_refused(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), source("e", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    plan = refused(db, [], [job("j", ["e"], ["b"])])
    assert (plan.missing, plan.jobs[0].retired, plan.jobs[0].added) == (("retire",), 1, 1)
    apply_allowing(db, [], [job("j", ["e"], ["b"])], retire=True)
    assert tasks(db) == {"j/1": "RETIRED", "j/2": "QUEUED"}
    assert chunks(db)["b/1"] == "RETIRED"
    apply(db, [], [job("j", ["a"], ["b"])])
    assert (tasks(db)["j/1"], task(db, "j", "1")["stale"], problems(db)) == ("DONE", False, [])


def test_a_new_output_of_finished_tasks_is_refused_and_the_old_declaration_stays(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    plan = refused(db, [], [job("j", ["a"], ["b", "n"])], retire=True, overlap=True)
    assert (plan.missing, plan.jobs[0].incomplete, plan.jobs[0].outputs) == (("backfill",), 2, ("n",))
    assert refused(db, [], [job("j", ["a"], ["n"])]).missing == ("backfill",)  # renamed


def test_an_output_that_a_job_makes_no_more_is_in_the_plan_and_needs_no_consent(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b", "n"])])
    finish(db, lease, "j")
    [change] = Plan.of_row(apply_allowing(db, [], [job("j", ["a"], ["b"])])["plan"]).jobs
    assert (change.removed_outputs, change.outputs, change.retired) == (("n",), (), 0)
    assert (chunks(db)["n/1"], problems(db)) == ("READY", [])


def test_added_tasks_are_counted_before_an_apply_and_are_unknown_after_it(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    withdrawn = [source("a", "2", "3")]
    assert [change.added for change in planned(db, withdrawn, []).jobs] == [2]
    assert [change.added for change in refused(db, withdrawn, []).jobs] == [2]
    applied = Plan.of_row(apply_allowing(db, withdrawn, [], retire=True)["plan"])
    assert [change.added for change in applied.jobs] == [None]


def test_with_backfill_all_the_new_output_is_made_once(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [], [job("j", ["a"], ["b", "n"])], backfill="all")
    assert tasks(db) == {"j/1": "QUEUED"}
    finish(db, lease, "j")
    assert (chunks(db)["n/1"], task(db, "j", "1")["incomplete"], claim(db, lease, "j")) == ("READY", False, [])
    assert apply_allowing(db, [], [job("j", ["a"], ["b", "n"])])["plan"]["needs"] == []
    assert (tasks(db), problems(db)) == ({"j/1": "DONE"}, [])


def test_with_backfill_all_a_running_task_runs_again_after_its_end(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    apply_allowing(db, [], [job("j", ["a"], ["b", "n"])], backfill="all")
    end(db, run, "DONE")
    assert (tasks(db), problems(db)) == ({"j/1": "QUEUED"}, [])


@pytest.mark.parametrize("running", [False, True])
def test_with_backfill_none_the_job_is_incomplete_and_never_done(db: Connection, lease: str, running: bool) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    if not running:
        end(db, run, "DONE")
    apply_allowing(db, [], [job("j", ["a"], ["b", "n"])], backfill="none")
    if running:
        end(db, run, "DONE")
    assert (task(db, "j", "1")["state"], task(db, "j", "1")["incomplete"]) == ("DONE", True)
    assert value(db, "SELECT state FROM opendataflow.list_jobs()") == "Incomplete"
    missing = value(db, "SELECT opendataflow.job_status('j') -> 'incomplete'")
    assert missing == [{"dataset": "n", "chunks": 1, "examples": ["1"]}]
    assert problems(db) == []


@pytest.mark.parametrize("remedy", ["resubmit", "skip", "publish"])
def test_an_incomplete_job_is_done_when_the_output_is_made_or_excluded(db: Connection, lease: str, remedy: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [], [job("j", ["a"], ["b", "n"])], backfill="none")
    (answer,) = ask(db, remedy, "n" if remedy == "publish" else "j", "1")
    assert answer["result"] == "done"
    finish(db, lease, "j")
    assert value(db, "SELECT state FROM opendataflow.list_jobs()") == "Done"
    if remedy == "skip":
        ask(db, "release", "j", "1")
        assert task(db, "j", "1")["incomplete"] is True
    assert problems(db) == []


def test_a_task_whose_other_output_was_published_by_hand_is_incomplete(db: Connection) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b", "n"])])
    ask(db, "publish", "b", "1")
    assert (task(db, "j", "1")["state"], task(db, "j", "1")["incomplete"]) == ("DONE", True)
    ask(db, "publish", "n", "1")
    assert (task(db, "j", "1")["incomplete"], problems(db)) == (False, [])


def test_a_job_that_was_deleted_and_returns_with_another_output_needs_the_same_decision(
    db: Connection, lease: str
) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    db.execute("SELECT opendataflow.delete_job('j', 'test')")
    assert refused(db, [], [job("j", ["a"], ["b", "n"])]).missing == ("backfill",)
    apply(db, [], [job("j", ["a"], ["b"])])
    assert (tasks(db), problems(db)) == ({"j/1": "DONE"}, [])


def test_a_removed_output_needs_no_consent_and_leaves_its_chunks(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [job("j", ["a"], ["b", "n"])])
    finish(db, lease, "j")
    apply(db, [], [job("j", ["a"], ["b"])])
    assert (chunks(db)["n/1"], tasks(db), task(db, "j", "1")["stale"]) == ("READY", {"j/1": "DONE"}, False)


def test_a_skipped_task_keeps_its_reason_when_its_job_makes_an_output_no_more(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [], [job("j", ["a"], ["b", "c"])], backfill="none")
    ask(db, "skip", "j", "1")
    apply(db, [], [job("j", ["a"], ["b"])])
    found = task(db, "j", "1")
    assert (found["state"], found["held_from"], found["reason"]) == ("SKIPPED", "DONE", None)


def test_a_job_that_gets_the_output_of_another_one_names_the_run_that_made_it(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    end(db, run, "DONE")
    apply_allowing(db, [], [job("j", ["a"], ["c"]), job("k", ["a"], ["b"])], backfill="none")
    found = task(db, "k", "1")
    assert (found["state"], found["reason"]) == ("DONE", f"made by run {run['run']}")


def test_the_same_apply_has_an_empty_plan(db: Connection, lease: str) -> None:
    months_done(db, lease)
    plan = planned(db, [bounded("a", MONTHS), dataset("b")], [job("j", ["a"], ["b"])])
    assert (plan.needs, plan.datasets, plan.jobs) == ((), (), ())


def test_a_data_set_between_two_others_takes_no_id_away_from_finished_tasks(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b"), dataset("c")], [job("j", ["a"], ["c"])])
    finish(db, lease, "j")
    plan = planned(db, [], [job("k", ["a"], ["b"]), job("j", ["b"], ["c"])])
    assert plan.needs == ()
    assert {one.job: (one.added, one.retired, one.stale) for one in plan.jobs} == {"k": (1, 0, 0), "j": (0, 0, 1)}
    apply(db, [], [job("k", ["a"], ["b"]), job("j", ["b"], ["c"])])
    assert (tasks(db), chunks(db)["c/1"]) == ({"k/1": "QUEUED", "j/1": "DONE"}, "READY")
    assert problems(db) == []


def test_a_job_that_was_deleted_while_it_runs_and_returns_as_it_was_needs_no_decision(
    db: Connection, lease: str
) -> None:
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    db.execute("SELECT opendataflow.delete_job('j', 'test')")
    assert planned(db, [], [job("j", ["a"], ["b"])]).needs == ()
    apply(db, [], [job("j", ["a"], ["b"])])
    end(db, run, "DONE")
    assert (tasks(db), task(db, "j", "1")["incomplete"], problems(db)) == ({"j/1": "DONE"}, False, [])


def test_the_plan_counts_stale_tasks_of_a_job_that_was_deleted_and_none_that_a_person_published(
    db: Connection, lease: str
) -> None:
    apply(db, [source("a", "1", "2"), source("e", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    ask(db, "publish", "b", "2")
    finish(db, lease, "j")
    db.execute("SELECT opendataflow.delete_job('j', 'test')")
    (changed,) = planned(db, [], [job("j", ["a", "e"], ["b"])]).jobs
    assert (changed.stale, changed.examples["stale"]) == (1, ("1",))
    apply(db, [], [job("j", ["a", "e"], ["b"])])
    assert (task(db, "j", "1")["stale"], task(db, "j", "2")["stale"]) == (True, False)


@pytest.mark.parametrize("running", [False, True])
def test_a_backfill_repeats_nothing_out_of_the_range(db: Connection, lease: str, running: bool) -> None:
    apply(db, [source("a", "1", "2"), dataset("b"), dataset("n")], [job("j", ["a"], ["b"])])
    runs = claim(db, lease, "j", 2)
    for run in runs if not running else []:
        end(db, run, "DONE")
    apply_allowing(db, [], [job("j", ["a"], ["b", "n"], chunk_from="2")], backfill="all")
    for run in runs if running else []:
        end(db, run, "DONE")
    assert (tasks(db), problems(db)) == ({"j/1": "DONE", "j/2": "QUEUED"}, [])
    assert task(db, "j", "1")["incomplete"] is True


def test_an_output_that_returns_with_its_job_is_not_missing(db: Connection, lease: str) -> None:
    both, one = job("j", ["a"], ["b", "n"]), job("j", ["a"], ["b"])
    apply(db, [source("a", "1"), dataset("b"), dataset("n")], [both])
    finish(db, lease, "j")
    apply_allowing(db, [source("a")], [], retire=True)
    apply(db, [source("a", "1")], [one])
    assert chunks(db)["n/1"] == "RETIRED"
    assert planned(db, [], [both]).needs == ()
    apply(db, [], [both])
    assert (chunks(db)["n/1"], task(db, "j", "1")["incomplete"], problems(db)) == ("READY", False, [])


def test_a_running_task_without_an_id_is_retired_at_its_end_also_if_its_chunks_stay(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), source("e", "2"), source("b", "1")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, lease, "j")
    assert refused(db, [], [job("j", ["e"], ["b"])]).missing == ("retire",)
    apply_allowing(db, [], [job("j", ["e"], ["b"])], retire=True)
    assert planned(db, [], [job("j", ["e"], [])]).needs == ()  # the consent for j/1 is given
    end(db, run, "DONE")
    assert (tasks(db), chunks(db)["b/1"], problems(db)) == ({"j/1": "RETIRED", "j/2": "QUEUED"}, "READY", [])


def test_a_running_task_that_is_going_needs_no_decision_about_a_new_output(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("n")], [job("j", [], ["a"])])
    claim(db, lease, "j", 1)
    apply_allowing(db, [source("a", "2")], [], retire=True)
    assert planned(db, [], [job("j", [], ["a", "n"])]).needs == ()
    assert planned(db, [source("a", "1", "2")], [job("j", [], ["a", "n"])]).needs == ("backfill",)


def test_tasks_of_a_job_that_returns_are_stale_where_an_input_got_another_version_meanwhile(
    db: Connection, lease: str
) -> None:
    jobs = [job("j", ["a"], ["b"])]
    apply(db, [source("a", "1", "2"), dataset("b")], jobs)
    finish(db, lease, "j")
    db.execute("SELECT opendataflow.delete_job('j', 'test')")
    ask(db, "publish", "a", "1")

    (changes,) = planned(db, [], jobs).jobs
    apply(db, [], jobs)

    assert {i: task(db, "j", i)["stale"] for i in "12"} == {"1": True, "2": False}
    assert (changes.stale, problems(db)) == (1, [])


@pytest.mark.parametrize("kind", ["to do", "published"])
def test_new_bounds_overlap_those_of_chunks_that_a_person_has_loaded_and_that_stay(db: Connection, kind: str) -> None:
    apply(db, [dataset("a"), dataset("b")], [job("j", ["a"], ["b"])])
    function = "publish('a', '{january}', 'ada')" if kind == "published" else "declare_chunks('a', '{}', '{}', 'ada')"
    month = Jsonb({"from": "2013-01-01", "to": "2013-02-01"})
    db.execute(f"SELECT opendataflow.{function}")
    db.execute("SELECT opendataflow.declare_chunks('a', '{january}', ARRAY[%s::jsonb], 'ada')", (month,))
    plan = refused(db, [bounded("a", DAYS)], [])
    assert (plan.missing, plan.datasets[0].examples["overlapping"]) == (("overlap",), ("2013-01-01",))


def test_other_bounds_of_a_chunk_that_is_to_do_overlap_those_of_a_finished_one(db: Connection, lease: str) -> None:
    apply(db, [bounded("a", {"x": (0, 10), "y": (10, 20)}), dataset("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    end(db, run, "DONE")
    plan = refused(db, [bounded("a", {"x": (0, 10), "y": (5, 20)})], [])
    assert (plan.missing, plan.datasets[0].examples["overlapping"]) == (("overlap",), ("y",))


# What comes back


@pytest.mark.parametrize(("verb", "state"), [(None, "done"), ("skip", "skipped"), ("hold", "held")])
def test_an_id_that_returns_is_not_called_added(db: Connection, lease: str, verb: str | None, state: str) -> None:
    apply(db, [source("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    if verb is None:
        finish(db, lease, "j", 1)
    else:
        ask(db, verb, "j", "1")
    apply_allowing(db, [source("a", "2")], [], retire=True)
    plan = planned(db, [source("a", "1", "2", "3")], [])
    (of_a, of_j) = (plan.datasets[0], plan.jobs[0])
    assert (of_a.added, of_a.returned, of_a.examples["returned"]) == (1, 1, ("1",))
    assert (of_j.added, getattr(of_j, f"returned_{state}"), of_j.examples[f"returned_{state}"]) == (1, 1, ("1",))
    apply(db, [source("a", "1", "2", "3")], [])
    assert tasks(db)["j/1"] == state.upper()


def test_the_history_says_that_an_id_was_withdrawn_and_has_returned(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply_allowing(db, [source("a")], [], retire=True)
    listed = "SELECT reason FROM opendataflow.list_{}(NULL, 'RETIRED', false, 10)"
    for kind in ("chunks", "tasks"):
        assert {row["reason"] for row in db.execute(listed.format(kind))} == {"its id was withdrawn"}
    apply(db, [source("a", "1")], [])
    query = (
        "SELECT reason FROM opendataflow.history WHERE owner = %s AND 'RETIRED' IN (from_state, to_state) ORDER BY id"
    )
    for owner in ("a", "b", "j"):
        found = [row["reason"] for row in db.execute(query, (owner,))]
        assert found == ["its id was withdrawn", "its id has returned"]


# Inputs that are the same again


def test_a_task_is_fresh_again_once_an_input_that_was_added_is_removed(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), source("e", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    apply(db, [], [job("j", ["a", "e"], ["b"])])
    assert task(db, "j", "1")["stale"]
    plan = planned(db, [], [job("j", ["a"], ["b"])])
    assert (plan.jobs[0].fresh, plan.jobs[0].stale, plan.jobs[0].examples["fresh"]) == (1, 0, ("1",))
    apply(db, [], [job("j", ["a"], ["b"])])
    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"], problems(db)) == ("DONE", False, [])


@pytest.mark.parametrize("what", ["a version", "bounds", "bounds meanwhile"])
def test_a_task_stays_stale_for_another_reason_than_its_inputs(db: Connection, lease: str, what: str) -> None:
    apply(db, [bounded("a", {"1": (0, 10)}), source("e", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    finish(db, lease, "j")
    if what == "bounds":
        apply_allowing(db, [bounded("a", {"1": (0, 20)})], [], backfill="none")
    apply(db, [], [job("j", ["a", "e"], ["b"])])
    if what == "a version":
        ask(db, "publish", "a", "1")
    elif what == "bounds meanwhile":
        apply_allowing(db, [bounded("a", {"1": (0, 20)})], [], backfill="none")
    assert planned(db, [], [job("j", ["a"], ["b"])]).jobs == ()
    apply(db, [], [job("j", ["a"], ["b"])])
    assert (task(db, "j", "1")["stale"], problems(db)) == (True, [])


def test_a_running_task_is_not_stale_at_its_end_if_its_inputs_are_the_same_again(db: Connection, lease: str) -> None:
    apply(db, [source("a", "1"), source("e", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    apply(db, [], [job("j", ["a", "e"], ["b"])])
    apply(db, [], [job("j", ["a"], ["b"])])
    end(db, run, "DONE")
    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"], problems(db)) == ("DONE", False, [])


def test_a_task_gets_back_what_it_was_when_its_id_returned_while_its_job_was_deleted(
    db: Connection, lease: str
) -> None:
    months_done(db, lease)
    both = [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])]
    apply_allowing(db, [bounded("a", {"2013-01": MONTHS["2013-01"]}), dataset("b"), dataset("c")], both, retire=True)
    assert task(db, "j", "2013-02")["state"] == "RETIRED"
    db.execute("SELECT opendataflow.delete_job('j', 'test')")
    apply(db, [bounded("a", MONTHS), dataset("b"), dataset("c")], both[1:])
    apply(db, [bounded("a", MONTHS), dataset("b"), dataset("c")], both)
    assert task(db, "j", "2013-02")["state"] == "DONE"
    assert problems(db) == []
