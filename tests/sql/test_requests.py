"""Requests of custom resources: each is done exactly once, whatever comes between, and answered the same ever after."""

import asyncio
import dataclasses
import multiprocessing
import os
import signal
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from opendataflow.core.text.verbs import VERB
from opendataflow.errors import UnknownThing
from opendataflow.model.records.claim import Selection
from opendataflow.model.resources.statuses import MOST_LINES
from opendataflow.store.requests import RecordedAnswer, Request, answer_once, delete_stale_answers
from opendataflow.store.store import Store
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, ask, chunks, claim, dataset, end, job, open_lease, tasks, value
from tests.waiting import until

NOW = datetime(2026, 11, 28, 8, tzinfo=UTC)


@pytest.fixture
def two_jobs(db: Connection) -> Connection:
    """Job j of namespace team makes b of a, which has 1, 2 and 10; k makes c of b. 1 is done by both, 2 by j."""
    a, b, c = (f"team/{name}" for name in "abc")
    owned = [job("team/j", [a], [b], owner="team/j"), job("team/k", [b], [c], owner="team/k")]
    apply(db, [{**dataset(key, *ids), "owner": key} for key, *ids in ((a, "1", "2", "10"), (b,), (c,))], owned)
    lease = open_lease(db)
    for name, number in (("team/j", 2), ("team/k", 1)):
        for run in claim(db, lease, name, number):
            end(db, run, "DONE")
    return db


def resubmit(request_id: str, *ids: str, **changes: Any) -> Request:
    """What spec.resubmit of job j asks for."""
    asked = Request("job team/j", request_id, VERB["resubmit"], "team/j", ids, "DataFlowJob team/j", "team")
    return dataclasses.replace(asked, **changes)


def events(db: Connection) -> int:
    return int(value(db, "SELECT count(*) FROM opendataflow.history"))


async def test_a_request_is_done_and_answered_with_numbers_and_lines(store: Store, two_jobs: Connection) -> None:
    answer = await answer_once(store, resubmit("fix-1", "1", "10"), NOW)

    assert answer == RecordedAnswer(
        1, 1, 0, "resubmit: 1 done, 1 unchanged", NOW, None,
        ("j 1: QUEUED", "j 10: QUEUED (it has not run yet: there is nothing to do again)"),
    )  # fmt: skip
    assert tasks(two_jobs)["team/j/1"] == "QUEUED"
    assert chunks(two_jobs)["team/b/1"] == "RESUBMIT"


async def test_the_history_says_who_has_asked_and_why(store: Store, two_jobs: Connection) -> None:
    await answer_once(store, resubmit("fix-1", "1", reason="cut"), NOW)

    query = "SELECT DISTINCT actor, reason FROM opendataflow.history WHERE event = 'resubmit'"
    assert two_jobs.execute(query).fetchall() == [{"actor": "DataFlowJob team/j", "reason": "cut"}]


async def test_the_same_request_again_changes_nothing_and_is_answered_the_same(
    store: Store, two_jobs: Connection
) -> None:
    first = await answer_once(store, resubmit("fix-1", "1"), NOW)
    [run] = claim(two_jobs, open_lease(two_jobs), "team/j")
    end(two_jobs, run, "DONE")
    before = events(two_jobs)

    assert await answer_once(store, resubmit("fix-1", "1"), NOW + timedelta(hours=1)) == first
    assert events(two_jobs) == before
    assert tasks(two_jobs)["team/j/1"] == "DONE"


async def test_another_id_is_another_request(store: Store, two_jobs: Connection) -> None:
    for request in ("fix-1", "fix-2"):
        await answer_once(store, resubmit(request, "1"), NOW)
        [run] = claim(two_jobs, open_lease(two_jobs), "team/j")
        assert run["data_id"] == "1"
        end(two_jobs, run, "DONE")


async def test_a_resubmit_of_what_runs_lets_it_run_once_more_after_its_end(store: Store, two_jobs: Connection) -> None:
    [run] = claim(two_jobs, open_lease(two_jobs), "team/j")

    answer = await answer_once(store, resubmit("fix-1", "10"), NOW)

    assert (answer.done, answer.lines) == (1, ("j 10: RUNNING (it is running: it runs again after its end)",))
    end(two_jobs, run, "DONE")
    assert tasks(two_jobs)["team/j/10"] == "QUEUED"


async def test_a_cascade_reaches_the_jobs_below(store: Store, two_jobs: Connection) -> None:
    answer = await answer_once(store, resubmit("fix-1", "1", cascade=True), NOW)

    assert answer.lines == ("j 1: QUEUED", "k 1: WAITING")
    assert (tasks(two_jobs)["team/j/1"], tasks(two_jobs)["team/k/1"]) == ("QUEUED", "WAITING")


@pytest.mark.usefixtures("two_jobs")
async def test_chunks_can_be_chosen_by_their_range_and_state(store: Store) -> None:
    answer = await answer_once(store, resubmit("fix-1", chosen=Selection("2", None, ("DONE",))), NOW)

    assert answer.lines == ("j 2: QUEUED",)


async def test_of_many_answers_the_first_are_reported(store: Store, db: Connection) -> None:
    ids = [str(number) for number in range(1, 101)]
    apply(db, [dataset("team/a", *ids), dataset("team/b")], [job("team/j", ["team/a"], ["team/b"])])

    answer = await answer_once(store, resubmit("x", verb=VERB["hold"], chosen=Selection()), NOW)

    assert (answer.done, answer.message) == (100, "hold: 100 done")
    assert list(answer.lines) == [f"j {number}: HELD" for number in range(1, MOST_LINES + 1)]


# Refusals


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"chosen": ["1", "100"]}, "Unknown", "job j has no task for 100 (did you mean 10?); nothing was changed"),
    (
        {"verb": VERB["skip"], "chosen": ["1"]},
        "Refused",
        "1 of job j is DONE: only a task that is still to do can be skipped",
    ),
    (
        {"chosen": Selection(states=("FAILED",))},
        "Refused",
        "no task of job j is FAILED: there is nothing to resubmit",
    ),
    ({"target": "team/x"}, "Unknown", "there is no job x"),
    ({"target": "team/x", "of_chunks": True}, "Unknown", "there is no data set x"),
    ({"target": "other/j", "namespace": "other"}, "Unknown", "there is no job j"),
]


@pytest.mark.parametrize(("changes", "word", "sentence"), REFUSALS)
async def test_a_refusal_changes_nothing_and_is_remembered_with_its_sentence(
    store: Store, two_jobs: Connection, changes: dict[str, Any], word: str, sentence: str
) -> None:
    before, request = events(two_jobs), resubmit("fix-1", "1", **changes)

    answer = await answer_once(store, request, NOW)

    assert (answer.refusal, answer.message, answer.done) == (word, sentence, 0)
    assert events(two_jobs) == before
    assert await answer_once(store, request, NOW + timedelta(hours=1)) == answer


async def test_a_refused_request_is_not_done_when_its_cause_is_gone(store: Store, two_jobs: Connection) -> None:
    ask(two_jobs, "hold", "team/j", "10")
    ask(two_jobs, "skip", "team/j", "10")
    request = resubmit("fix-1", "1", "10")
    refused = await answer_once(store, request, NOW)
    assert (refused.refused, refused.message) == (1, "10 of job j is skipped: release it first; nothing was changed")
    ask(two_jobs, "release", "team/j", "10")

    assert await answer_once(store, request, NOW) == refused
    assert tasks(two_jobs)["team/j/1"] == "DONE"


@pytest.mark.usefixtures("two_jobs")
async def test_of_many_refusals_the_first_are_reported_and_all_are_counted(store: Store) -> None:
    answer = await answer_once(store, resubmit("fix-1", *map(str, range(100, 150))), NOW)

    assert answer.refused == 50
    assert answer.message.startswith(
        "job j has no task for 100 (did you mean 10?); job j has no task for 101 (did you mean 10?);"
    )
    assert answer.message.endswith("; and 45 more; nothing was changed")


async def test_a_data_id_that_looks_like_a_key_is_answered_as_it_is(store: Store, two_jobs: Connection) -> None:
    answer = await answer_once(store, resubmit("fix-1", "team/10"), NOW)

    assert answer.message.startswith("job j has no task for team/10 (")
    assert tasks(two_jobs)["team/j/10"] == "QUEUED"


async def test_a_target_that_may_come_is_waited_for(store: Store, two_jobs: Connection) -> None:
    for request in (resubmit("1", "1", target="team/x"), resubmit("1", "1", target="team/x", of_chunks=True)):
        with pytest.raises(UnknownThing, match="there is no"):
            await answer_once(store, request, NOW, target_may_come=True)
    assert value(two_jobs, "SELECT count(*) FROM opendataflow.request") == 0
    assert (await answer_once(store, resubmit("1", "1"), NOW, target_may_come=True)).done == 1


# Crashes and rivals


def _ask_at_once(dsn: str, barrier: Barrier, answers: Any) -> None:
    async def asked() -> RecordedAnswer:
        store = await Store.open(lambda: dsn, 1)
        try:
            barrier.wait(300)
            return await answer_once(store, resubmit("fix-1", "1"), datetime.now(UTC))
        finally:
            await store.close()

    answers.put(asyncio.run(asked()))


def test_two_processes_that_ask_at_once_do_it_once_and_get_the_same_answer(two_jobs: Connection, dsn: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_ask_at_once, args=(dsn, barrier, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    first, second = answers.get(timeout=300), answers.get(timeout=300)
    for process in processes:
        process.join(300)

    assert first == second
    assert first.done == 1
    assert _reopenings(two_jobs) == 1


def _reopenings(db: Connection) -> int:
    return int(
        value(
            db,
            "SELECT count(*) FROM opendataflow.history WHERE event = 'resubmit' AND kind = 'chunk' AND data_id = '1'",
        )
    )


async def test_many_who_ask_in_one_moment_do_it_once(store: Store, two_jobs: Connection) -> None:
    answers = await asyncio.gather(*(answer_once(store, resubmit("fix-1", "1"), NOW + timedelta(n)) for n in range(8)))

    assert len(set(answers)) == 1
    assert _reopenings(two_jobs) == 1


def _die_before_commit(dsn: str) -> None:
    async def asked() -> None:
        store = await Store.open(lambda: dsn, 1)
        await answer_once(store, resubmit("fix-1", "1"), NOW)

    with open_connection(dsn) as db:
        db.execute(
            "CREATE FUNCTION opendataflow.stop() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$"
        )
        db.execute(
            "CREATE TRIGGER stop AFTER INSERT ON opendataflow.request FOR EACH ROW EXECUTE FUNCTION opendataflow.stop()"
        )
    asyncio.run(asked())


async def test_who_dies_before_the_commit_has_done_nothing_and_the_next_one_does_it(
    store: Store, two_jobs: Connection, dsn: str
) -> None:
    before = events(two_jobs)
    process = multiprocessing.get_context("spawn").Process(target=_die_before_commit, args=(dsn,))
    process.start()
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
    await until(lambda: two_jobs.execute(waits).fetchall(), "it waits before its commit")
    [backend] = two_jobs.execute(waits).fetchall()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(300)
    two_jobs.execute("SELECT pg_terminate_backend(%s, 10000)", (backend["pid"],))
    two_jobs.execute("DROP TRIGGER stop ON opendataflow.request")

    assert events(two_jobs) == before
    assert (await answer_once(store, resubmit("fix-1", "1"), NOW)).done == 1


def _die_after_commit(dsn: str) -> None:
    async def asked() -> None:
        store = await Store.open(lambda: dsn, 1)
        await answer_once(store, resubmit("fix-1", "1"), NOW)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(asked())


async def test_who_dies_after_the_commit_has_done_it_and_the_next_one_reports_it(
    store: Store, two_jobs: Connection, dsn: str
) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_after_commit, args=(dsn,))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert _reopenings(two_jobs) == 1

    answer = await answer_once(store, resubmit("fix-1", "1"), NOW + timedelta(hours=1))

    assert (answer.done, answer.finished_at) == (1, NOW)
    assert _reopenings(two_jobs) == 1


async def test_all_that_is_stale_is_asked_for_again_and_nothing_else(store: Store, two_jobs: Connection) -> None:
    stale = resubmit("fix-1", chosen=Selection(stale=True))
    refused = await answer_once(store, stale, NOW)
    assert refused.message == "no task of job j is stale: there is nothing to resubmit"

    ask(two_jobs, "publish", "team/a", "1", "10")
    answer = await answer_once(store, dataclasses.replace(stale, id="fix-2"), NOW)

    assert (answer.done, answer.lines) == (1, ("j 1: QUEUED",))
    assert tasks(two_jobs)["team/j/2"] == "DONE"


# Forgetting


async def test_answers_of_what_is_gone_are_forgotten_an_hour_later(store: Store, two_jobs: Connection) -> None:
    for owner in ("job team/j", "action 1", "action 2", "action 3"):
        await answer_once(store, resubmit("x", "1", owner=owner), NOW)
    two_jobs.execute("UPDATE opendataflow.request SET at = %s WHERE owner <> 'action 3'", (NOW,))
    two_jobs.execute("UPDATE opendataflow.request SET at = %s WHERE owner = 'action 3'", (NOW + timedelta(hours=1),))

    assert await delete_stale_answers(store, "action ", ["action 1"], NOW + timedelta(hours=1, minutes=1)) == 1

    left = two_jobs.execute("SELECT owner FROM opendataflow.request ORDER BY owner").fetchall()
    assert [row["owner"] for row in left] == ["action 1", "action 3", "job team/j"]
