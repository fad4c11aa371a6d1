"""The number of tasks by state is kept, not counted: it is exact in every snapshot, whoever adds or folds meanwhile."""

import threading
from collections import Counter
from contextlib import suppress

from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import (
    TRY_AGAIN,
    apply,
    apply_allowing,
    ask,
    claim,
    dataset,
    end,
    job,
    open_lease,
    problems,
    raw,
    tasks,
    value,
)


def counts(db: Connection, job_id: str) -> dict[str, int]:
    """The kept counts of a job."""
    return {r["state"]: r["tasks"] for r in db.execute("SELECT * FROM opendataflow.counts_of(%s)", (job_id,))}


def stale(db: Connection, job_id: str) -> int:
    """The kept number of stale tasks of a job."""
    return int(value(db, "SELECT opendataflow.stale_of(%s)", job_id))


def rows(db: Connection) -> int:
    """How many rows the counts are spread over."""
    return int(value(db, "SELECT count(*) FROM opendataflow.task_count"))


def test_counts_follow_tasks_through_their_lives(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    assert counts(db, "j") == {"QUEUED": 3}
    first, second = claim(db, open_lease(db), "j", 2)
    assert counts(db, "j") == {"QUEUED": 1, "RUNNING": 2}
    end(db, first, "DONE")
    end(db, second, "FAILED")
    ask(db, "hold", "j", "3")
    assert counts(db, "j") == {"DONE": 1, "FAILED": 1, "HELD": 1}
    assert counts(db, "j") == Counter(tasks(db).values())


def test_tasks_that_go_are_not_counted_any_more(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    apply(db, [], [job("j", ["a"], ["b"], chunk_from="2", chunk_to="2")])
    assert counts(db, "j") == {"QUEUED": 1}


def test_the_number_of_stale_tasks_is_kept_too(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    lease = open_lease(db)
    for run in claim(db, lease, "j", 2):
        end(db, run, "DONE")
    ask(db, "publish", "a", "1", "2", "3")
    assert stale(db, "j") == 2
    db.execute("SELECT opendataflow.compact_counts()")
    ask(db, "resubmit", "j", "1")
    assert (stale(db, "j"), counts(db, "j")) == (1, {"DONE": 1, "QUEUED": 2})
    apply_allowing(db, [dataset("c")], [job("j", ["a"], ["b", "c"])], backfill="none")
    assert (stale(db, "j"), problems(db)) == (1, [])


def test_a_task_that_runs_while_its_job_changes_is_stale_once_it_is_done(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, open_lease(db), "j")
    apply(db, [], [job("j", ["a", "c"], ["b"])])
    assert stale(db, "j") == 0
    end(db, run, "DONE")
    assert (stale(db, "j"), problems(db)) == (1, [])


def test_folding_changes_no_count_and_leaves_few_rows(db: Connection) -> None:
    apply(db, [dataset("a", *map(str, range(100))), dataset("b")], [job("j", ["a"], ["b"])])
    lease = open_lease(db)
    for _ in range(30):
        end(db, claim(db, lease, "j")[0], "DONE")
    assert rows(db) > 60
    db.execute("SELECT opendataflow.retry_due()")
    assert rows(db) == 2
    assert counts(db, "j") == {"QUEUED": 70, "DONE": 30}


def test_a_count_that_is_wrong_is_found(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    raw(db, "INSERT INTO opendataflow.task_count VALUES ('j', 'QUEUED', 1), ('j', 'DONE', -1)")
    assert sorted(problems(db)) == [
        "job j has 0 tasks that are DONE, but they are counted as -1",
        "job j has 2 tasks that are QUEUED, but they are counted as 3",
    ]


def test_a_wrong_count_of_stale_tasks_is_found(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    raw(db, "INSERT INTO opendataflow.task_count VALUES ('j', 'DONE', 0, 1)")
    assert problems(db) == ["job j has 0 stale tasks, but they are counted as 1"]


def work_off(dsn: str) -> None:
    """Claim and complete until nothing is QUEUED any more."""
    with open_connection(dsn) as own:
        lease = open_lease(own)
        while own.execute("SELECT FROM opendataflow.task WHERE state = 'QUEUED' LIMIT 1").fetchone():
            with suppress(*TRY_AGAIN):
                for run in claim(own, lease, "j", 3):
                    end(own, run, "DONE")


def test_counts_are_exact_while_many_claim_complete_and_fold(dsn: str, db: Connection) -> None:
    apply(db, [dataset("a", *map(str, range(200))), dataset("b")], [job("j", ["a"], ["b"])])
    finished = threading.Event()
    wrong: list[str] = []

    def fold_and_look() -> None:
        with open_connection(dsn) as own:
            while not finished.is_set():
                own.execute("SELECT opendataflow.compact_counts()")
                wrong.extend(problem for problem in problems(own) if "counted" in problem)

    workers = [threading.Thread(target=work_off, args=(dsn,)) for _ in range(3)]
    lookers = [threading.Thread(target=fold_and_look) for _ in range(2)]
    for thread in [*workers, *lookers]:
        thread.start()
    for thread in workers:
        thread.join()
    finished.set()
    for thread in lookers:
        thread.join()

    assert wrong == []
    assert problems(db) == []
    states = counts(db, "j")
    assert sum(states.values()) == 200
    assert states == Counter(tasks(db).values())


def test_a_status_looks_at_the_first_tasks_only_and_its_counts_are_of_all(db: Connection) -> None:
    ids = list(map(str, range(1500)))
    apply(db, [dataset("a"), dataset("b"), dataset("c")], [job("i", [], ["a"]), job("j", ["a", "b"], ["c"])])
    db.execute("SELECT opendataflow.declare_chunks('a', %s, %s::jsonb[], 'test')", (ids, [None] * len(ids)))
    status = value(db, "SELECT opendataflow.job_status('j')")
    assert status["counts"] == {"WAITING": 1500}
    assert [group["chunks"] for group in status["waiting"]] == [status["sample"], status["sample"]]
    assert status["waiting"][0]["examples"] == ["0", "1", "2"]
