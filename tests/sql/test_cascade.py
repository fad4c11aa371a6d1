"""A resubmit with everything below: what was made of a chunk is made again after it, and nothing else is touched."""

import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import (
    apply,
    ask,
    chunks,
    claim,
    dataset,
    end,
    job,
    open_lease,
    problems,
    tasks,
)


def diamond(db: Connection) -> str:
    """top makes b of a; left c of b; right d of b; bottom e of c and d; beside f of a. All is DONE for 1 and 2."""
    jobs = [
        job("top", ["a"], ["b"]),
        job("left", ["b"], ["c"]),
        job("right", ["b"], ["d"]),
        job("bottom", ["c", "d"], ["e"]),
        job("beside", ["a"], ["f"]),
    ]
    apply(db, [dataset("a", "1", "2"), *(dataset(d) for d in "bcdef")], jobs)
    lease = open_lease(db)
    for name in ("top", "left", "right", "bottom", "beside"):
        for run in claim(db, lease, name, 2):
            end(db, run, "DONE")
    assert set(tasks(db).values()) == {"DONE"}
    return lease


def asked(db: Connection, verb: str, owner: str, *ids: str) -> list[tuple[str | None, str, str, str]]:
    return [(r["job"], r["data_id"], r["result"], r["state"]) for r in ask(db, verb, owner, *ids)]


def test_everything_below_is_opened_from_the_top_down_and_waits(db: Connection) -> None:
    diamond(db)

    assert asked(db, "resubmit_cascade", "top", "1") == [
        ("top", "1", "done", "QUEUED"),
        ("left", "1", "done", "WAITING"),
        ("right", "1", "done", "WAITING"),
        ("bottom", "1", "done", "WAITING"),
    ]

    assert tasks(db)["beside/1"] == "DONE"
    assert {state for name, state in tasks(db).items() if name.endswith("/2")} == {"DONE"}
    assert [chunks(db)[f"{d}/1"] for d in "abcdef"] == ["READY", *["RESUBMIT"] * 4, "READY"]
    assert problems(db) == []


def test_what_was_opened_runs_in_the_order_of_its_inputs(db: Connection) -> None:
    lease = diamond(db)
    ask(db, "resubmit_cascade", "top", "1", "2")
    order = []
    while any(state != "DONE" for state in tasks(db).values()):
        for name in ("bottom", "right", "left", "top"):
            for run in claim(db, lease, name, 2):
                end(db, run, "DONE")
                order.append(name)
    assert order == [name for name in ("top", "right", "left", "bottom") for _ in range(2)]
    assert problems(db) == []


def test_a_chunk_without_a_producer_is_asked_for_with_everything_below_it(db: Connection) -> None:
    diamond(db)

    assert asked(db, "resubmit_chunks_cascade", "a", "1") == [
        (None, "1", "done", "RESUBMIT"),
        ("beside", "1", "done", "WAITING"),
        ("top", "1", "done", "WAITING"),
        ("left", "1", "done", "WAITING"),
        ("right", "1", "done", "WAITING"),
        ("bottom", "1", "done", "WAITING"),
    ]
    assert problems(db) == []


def test_a_chunk_with_a_producer_is_asked_for_through_it(db: Connection) -> None:
    diamond(db)
    assert asked(db, "resubmit_chunks_cascade", "d", "1") == [
        (None, "1", "done", "QUEUED"),
        ("bottom", "1", "done", "WAITING"),
    ]
    assert problems(db) == []


def test_a_task_below_that_failed_is_opened_running_and_a_held_task_remembers_it_and_the_rest_is_left(
    db: Connection,
) -> None:
    lease = diamond(db)
    ask(db, "resubmit", "bottom", "1")
    end(db, claim(db, lease, "bottom")[0], "FAILED")
    ask(db, "skip", "bottom", "1")
    ask(db, "resubmit", "left", "1")
    end(db, claim(db, lease, "left")[0], "FAILED")
    ask(db, "hold", "left", "1")
    ask(db, "resubmit", "right", "1")
    claim(db, lease, "right")

    assert asked(db, "resubmit_cascade", "top", "1") == [
        ("top", "1", "done", "WAITING"),  # until its chunk is not read any more
        ("left", "1", "remembered", "HELD"),
        ("right", "1", "remembered", "RUNNING"),
    ]

    assert tasks(db)["bottom/1"] == "SKIPPED"
    assert problems(db) == []


@pytest.mark.parametrize(("verb", "owner"), [("resubmit_cascade", "top"), ("resubmit_chunks_cascade", "b")])
def test_an_id_that_is_not_there_is_unknown(db: Connection, verb: str, owner: str) -> None:
    diamond(db)
    [answer] = ask(db, verb, owner, "7")
    assert answer["result"] == "unknown"
