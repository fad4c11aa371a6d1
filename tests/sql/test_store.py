"""The store: what it asks of Postgres arrives, what Postgres answers becomes values, and its errors become ours."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.errors import DataflowError, InvalidInput, LeaseLost, NoAccess, Refused, UnknownThing, Unreachable
from opendataflow.model.records.claim import Answer, Claimed, ClaimedRun, Completed, Completion, Position, Selection
from opendataflow.model.records.run import Host
from opendataflow.names import OutcomeClass, RunState, TaskState
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store
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
    raw,
    tasks,
    value,
)

HOST = Host("worker-3", "boot-1")


@pytest.fixture
def dsn(postgres_server: str, shared: Connection) -> Iterator[str]:
    """The module's database instead of one of each test's own; it is emptied afterwards."""
    yield make_conninfo(postgres_server, dbname=shared.info.dbname)
    tables = (
        "step",
        "history",
        "breaker",
        "alert",
        "run",
        "lease",
        "task",
        "task_count",
        "chunk",
        "job_env",
        "job_input",
        "job_output",
        "job",
        "dataset",
    )
    shared.execute(f"TRUNCATE {', '.join(f'opendataflow.{table}' for table in tables)}")


@pytest.fixture
def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def one_job(db: Connection) -> Connection:
    """Job j, which makes b of a; a has 1, 2 and 10."""
    apply(db, [dataset("a", "1", "2", "10"), dataset("b")], [job("j", ["a"], ["b"], env={"A": "1"})])
    return db


def history_length(db: Connection) -> int:
    return int(value(db, "SELECT count(*) FROM opendataflow.history"))


def succeeded(run: ClaimedRun) -> Completion:
    return Completion(
        run.run,
        run.fence,
        TaskState.DONE,
        RunState.SUCCEEDED,
        OutcomeClass.SUCCESS,
        "fine",
        exit_code=0,
        log_tail="end",
    )


async def lease_of(store: Store, seconds: float = 60) -> str:
    lease = str(uuid.uuid4())
    await store.open_lease(lease, "local", HOST, "/runs", seconds)
    return lease


# Requests are all or nothing


async def test_a_request_is_answered_for_each_id_in_natural_order(store: Store, one_job: Connection) -> None:
    answers = await store.call_verb("hold", "j", ["10", "2", "1"], "ada", "not today")

    assert answers == [Answer(i, "done", "HELD", None) for i in ("1", "2", "10")]
    assert tasks(one_job) == {"j/1": "HELD", "j/2": "HELD", "j/10": "HELD"}
    row = one_job.execute("SELECT DISTINCT actor, reason FROM opendataflow.history WHERE event = 'hold'").fetchall()
    assert row == [{"actor": "ada", "reason": "not today"}]


@pytest.mark.parametrize(
    ("verb", "owner"),
    [("resubmit", "j"), ("hold", "j"), ("release", "j"), ("resubmit_chunks", "a"), ("hold_chunks", "a")],
)
async def test_one_unknown_id_leaves_everything_as_it_was(
    store: Store, one_job: Connection, verb: Any, owner: str
) -> None:
    [run] = claim(one_job, open_lease(one_job), "j")
    end(one_job, run, "FAILED")
    ask(one_job, "hold", "j", "2")
    before = (tasks(one_job), chunks(one_job), history_length(one_job))

    answers = await store.call_verb(verb, owner, ["1", "2", "nothing"], "ada", None)

    assert [a.message for a in answers if a.result == "unknown"] == [
        "job j has no task for nothing" if owner == "j" else "data set a has no chunk nothing"
    ]
    assert (tasks(one_job), chunks(one_job), history_length(one_job)) == before


async def test_one_refused_id_leaves_everything_as_it_was(store: Store, one_job: Connection) -> None:
    claim(one_job, open_lease(one_job), "j")
    before = (tasks(one_job), chunks(one_job), history_length(one_job))

    answers = await store.call_verb("publish", "b", ["1", "2", "3"], "ada", None)

    assert {a.data_id: a.result for a in answers} == {"1": "refused", "2": "done", "3": "done"}
    assert (tasks(one_job), chunks(one_job), history_length(one_job)) == before


async def test_unchanged_and_remembered_ids_do_not_stop_the_others(store: Store, one_job: Connection) -> None:
    lease = open_lease(one_job)
    end(one_job, claim(one_job, lease, "j")[0], "DONE")
    claim(one_job, lease, "j")

    answers = await store.call_verb("resubmit", "j", ["1", "2", "10"], "ada", None)

    assert [a.result for a in answers] == ["done", "remembered", "unchanged"]
    assert tasks(one_job)["j/1"] == "QUEUED"


async def test_a_request_for_nothing_is_answered_with_nothing(store: Store, one_job: Connection) -> None:
    for verb, owner in (("resubmit", "j"), ("hold", "j"), ("release", "j"), ("publish", "a"), ("hold_chunks", "a")):
        verb_of_store: Any = verb
        assert await store.call_verb(verb_of_store, owner, [], "ada", None) == []
    assert tasks(one_job) == {"j/1": "QUEUED", "j/2": "QUEUED", "j/10": "QUEUED"}


# What a request is about


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (Selection("2"), ["2", "10"]),
        (Selection(last="2"), ["1", "2"]),
        (Selection("2", "9"), ["2"]),
        (Selection(states=("QUEUED",)), ["2", "10"]),
        (Selection("10", states=("QUEUED", "HELD")), ["10"]),
        (Selection("11"), []),
    ],
)
async def test_tasks_are_chosen_by_range_in_natural_order_and_by_state(
    store: Store, one_job: Connection, chosen: Selection, ids: list[str]
) -> None:
    ask(one_job, "hold", "j", "1")
    assert [a.data_id for a in await store.call_verb("hold", "j", chosen, "ada", None)] == ids


async def test_chunks_are_chosen_by_range_and_status(store: Store, one_job: Connection) -> None:
    ask(one_job, "hold_chunks", "a", "1")
    ready = Selection(states=("READY",), of_chunks=True)
    assert [a.data_id for a in await store.call_verb("hold_chunks", "a", ready, "ada", None)] == ["2", "10"]
    some = Selection("2", "2", of_chunks=True)
    assert [a.data_id for a in await store.call_verb("release_chunks", "a", some, "ada", None)] == ["2"]


async def test_a_dry_run_reports_what_would_be_and_changes_nothing(store: Store, one_job: Connection) -> None:
    before = (tasks(one_job), chunks(one_job), history_length(one_job))
    answers = await store.call_verb("hold", "j", Selection("2"), "ada", None, dry_run=True)
    assert answers == [Answer("2", "done", "HELD", None), Answer("10", "done", "HELD", None)]
    assert (tasks(one_job), chunks(one_job), history_length(one_job)) == before


@pytest.mark.parametrize("of_chunks", [True, False])
async def test_nothing_is_chosen_of_what_is_not_there(store: Store, of_chunks: bool) -> None:
    with pytest.raises(UnknownThing, match=r"^there is no (job|data set) nobody$"):
        await store.call_verb("hold_chunks", "nobody", Selection(of_chunks=of_chunks), "ada", None)


# Errors


@pytest.mark.parametrize("verb", ["resubmit", "hold", "release"])
async def test_a_job_that_is_not_there_is_named(store: Store, verb: Any) -> None:
    with pytest.raises(UnknownThing, match=r"^there is no job nobody$"):
        await store.call_verb(verb, "nobody", ["x"], "ada", None)


@pytest.mark.parametrize("verb", ["publish", "resubmit_chunks", "hold_chunks", "release_chunks"])
async def test_a_data_set_that_is_not_there_is_named(store: Store, verb: Any) -> None:
    with pytest.raises(UnknownThing, match=r"^there is no data set nothing$"):
        await store.call_verb(verb, "nothing", ["x"], "ada", None)


async def test_declaring_chunks_of_a_data_set_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(UnknownThing, match=r"^there is no data set nothing$"):
        await store.declare("nothing", ["x"], "ada")


async def test_a_claim_for_a_job_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(UnknownThing, match=r"^there is no job nobody$"):
        await store.claim(await lease_of(store), "nobody", 1, Position())


async def test_a_claim_under_an_expired_lease_is_refused_and_can_be_repeated_under_another(
    store: Store, one_job: Connection
) -> None:
    expired = await lease_of(store, seconds=-1)
    with pytest.raises(LeaseLost, match=f"^the lease {expired} has ended: open a new one$") as error:
        await store.claim(expired, "j", 1, Position())
    assert error.value.retryable

    assert len((await store.claim(await lease_of(store), "j", 1, Position())).runs) == 1
    assert tasks(one_job)["j/1"] == "RUNNING"


async def test_what_the_functions_refuse_is_refused_here(dsn: str) -> None:
    serializable = make_conninfo(dsn, options="-c default_transaction_isolation=serializable")
    store = await Store.open(lambda: serializable)
    try:
        with pytest.raises(Refused, match="only be changed in a READ COMMITTED transaction, this one is SERIALIZABLE"):
            await store.call_verb("hold", "j", ["x"], "ada", None)
    finally:
        await store.close()


async def test_any_other_error_of_postgres_keeps_its_code(store: Store) -> None:
    with pytest.raises(DataflowError, match=r"^Postgres refused a statement \(22P02\): invalid input syntax"):
        await store.renew_lease("no uuid", 1)


async def test_an_unreachable_server_is_named_by_its_place_and_never_by_its_password(closed_port: int) -> None:
    dsn = f"postgresql://etl:s3cret@127.0.0.1:{closed_port}/dwh"

    with pytest.raises(Unreachable) as error:
        await Store.open(lambda: dsn)

    assert str(error.value).startswith(f"Postgres at 127.0.0.1:{closed_port}/dwh does not answer: ")
    assert "s3cret" not in str(error.value)
    assert error.value.retryable


async def test_a_database_that_is_not_there_is_named(dsn: str) -> None:
    refused = r'^Postgres at \S+/nowhere refuses the connection: database "nowhere" does not exist$'
    with pytest.raises(NoAccess, match=refused):
        await Store.open(lambda: make_conninfo(dsn, dbname="nowhere"))


async def test_a_pool_that_is_kept_out_later_fails_with_the_message_of_postgres(dsn: str) -> None:
    places = [dsn, *[make_conninfo(dsn, dbname="nowhere")] * 1000]
    store = await Store.open(lambda: places.pop(0), size=2)
    try:
        with pytest.raises(NoAccess, match="refuses the connection"):
            await store.verify()
    finally:
        await store.close()


async def recovers(store: Store) -> bool:
    """Whether the store answers after no more failures than it has connections, each of which a caller may repeat."""
    for _ in range(5):
        try:
            return await store.verify() == []
        except Unreachable as error:
            if not error.retryable:
                return False
    return False


async def test_lost_connections_are_replaced(store: Store, db: Connection) -> None:
    assert await store.verify() == []
    terminate(db)

    assert await recovers(store)


async def test_connections_that_the_server_has_ended_while_nobody_used_them_fail_nobody(
    store: Store, db: Connection
) -> None:
    await asyncio.gather(*(store.verify() for _ in range(12)))  # as many connections as there may be
    terminate(db)
    await asyncio.sleep(0.1)  # until the goodbye of the server has come
    assert await asyncio.gather(*(store.verify() for _ in range(12))) == [[]] * 12


async def test_a_transaction_that_lost_against_another_one_is_repeated(store: Store, db: Connection) -> None:
    db.execute("CREATE SEQUENCE public.attempts")
    original = value(db, "SELECT pg_get_functiondef('opendataflow.lock_apply()'::regprocedure)")
    db.execute("""CREATE OR REPLACE FUNCTION opendataflow.lock_apply() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
                      IF nextval('public.attempts') < 3 THEN
                          RAISE EXCEPTION 'try again' USING ERRCODE = 'serialization_failure';
                      END IF; END $$""")
    try:
        await store.apply([dataset("a", "1")], [], "ada", lambda *_: None)
        assert value(db, "SELECT last_value FROM public.attempts") >= 3
    finally:
        db.execute("DROP SEQUENCE public.attempts")
        db.execute(original)
    assert chunks(db) == {"a/1": "READY"}


def terminate(db: Connection) -> None:
    """End every connection to the database that a store holds."""
    db.execute("""SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'opendataflow'""")


# Apply


async def test_an_apply_answers_with_the_jobs_that_have_tasks(store: Store, db: Connection) -> None:
    applied = await store.apply([dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])], "ada", lambda *_: None)
    assert (applied.woken, tasks(db)) == (("j",), {"j/1": "QUEUED"})


async def test_the_check_sees_the_graph_as_it_will_be(store: Store, one_job: Connection) -> None:
    seen: list[Any] = []
    assert one_job
    new = [job("k", ["b"], ["c"]), job("j", ["a"], ["b", "d"])]
    kept = job("kept", ["a"], ["e"])
    await store.apply([dataset("e")], [kept], "ada", lambda *_: None)

    await store.apply([dataset("c"), dataset("d")], new, "ada", lambda *given: seen.append(given))

    [(links, datasets)] = seen
    assert sorted(links, key=lambda link: str(link["job"])) == [
        {"job": "j", "inputs": ["a"], "outputs": ["b", "d"]},
        {"job": "k", "inputs": ["b"], "outputs": ["c"]},
        {"job": "kept", "inputs": ["a"], "outputs": ["e"]},
    ]
    assert datasets == {"a", "b", "c", "d", "e"}


async def test_an_apply_whose_check_fails_leaves_nothing(store: Store, one_job: Connection) -> None:
    before = history_length(one_job)

    def refuse(links: Any, datasets: set[str]) -> None:
        raise InvalidInput(f"{len(links)} jobs, {len(datasets)} data sets: no")

    with pytest.raises(InvalidInput, match="2 jobs, 3 data sets: no"):
        await store.apply([dataset("c", "9")], [job("k", ["b"], ["c"])], "ada", refuse)

    assert value(one_job, "SELECT count(*) FROM opendataflow.dataset") == 2
    assert value(one_job, "SELECT count(*) FROM opendataflow.job") == 1
    assert history_length(one_job) == before


async def test_applies_follow_each_other_so_that_each_checks_what_the_other_wrote(store: Store) -> None:
    seen: dict[str, set[str]] = {}

    async def apply_one(name: str) -> None:
        def check(links: Any, datasets: set[str]) -> None:
            assert links == []
            seen[name] = datasets

        await store.apply([dataset(name)], [], "ada", check)

    await asyncio.gather(*(apply_one(name) for name in ("a", "b", "c")))

    assert sorted(len(datasets) for datasets in seen.values()) == [1, 2, 3]


async def test_a_second_producer_is_refused_even_without_a_check(store: Store, one_job: Connection) -> None:
    with pytest.raises(DataflowError, match="one_producer"):
        await store.apply([], [job("k", ["a"], ["b"])], "ada", lambda *_: None)
    assert value(one_job, "SELECT count(*) FROM opendataflow.job") == 1


# The life of runs


async def test_a_run_goes_from_claim_to_end(store: Store, one_job: Connection) -> None:
    lease = await lease_of(store)
    claimed = await store.claim(lease, "j", 2, Position())
    assert isinstance(claimed, Claimed)
    first, second = claimed.runs
    assert (first.data_id, first.job, first.attempt, first.host, first.lease) == ("1", "j", 1, HOST, lease)
    assert await store.running_runs(lease, own=True) == [(first, True), (second, True)]
    assert await store.running_runs(str(uuid.uuid4()), own=False) == [(first, True), (second, True)]
    assert await store.run(first.run) == first

    completed, woken = await store.complete([succeeded(first)], "engine")

    assert completed == [Completed(first.run, RunState.SUCCEEDED, TaskState.DONE, already=False)]
    assert woken == []
    again, _ = await store.complete([succeeded(first)], "engine")
    assert again == [Completed(first.run, RunState.SUCCEEDED, TaskState.DONE, already=True)]
    assert await store.running_runs(lease, own=True) == [(second, True)]
    assert chunks(one_job)["b/1"] == "READY"


async def test_completing_nothing_is_answered_with_nothing(store: Store) -> None:
    assert await store.complete([], "engine") == ([], [])


async def test_a_run_that_is_not_there_is_none(store: Store) -> None:
    assert await store.run(404) is None
    assert await store.run_log(None, None, 404) is None


async def test_a_lease_is_renewed_and_closed(store: Store, one_job: Connection) -> None:
    assert one_job
    lease = await lease_of(store)
    assert await store.renew_lease(lease, 60) is True
    await store.close_lease(lease)
    assert await store.renew_lease(lease, 60) is False
    with pytest.raises(LeaseLost):
        await store.claim(lease, "j", 1, Position())


async def test_due_retries_wake_their_job(store: Store, one_job: Connection) -> None:
    end(one_job, claim(one_job, open_lease(one_job), "j")[0], "RETRYING")
    assert await store.retry_due() == ["j"]
    assert await store.retry_due() == []


# Listening


async def next_of(notifications: AsyncIterator[str]) -> str:
    return await asyncio.wait_for(anext(notifications), 300)


async def test_a_publication_is_reported_to_those_who_listen(store: Store, one_job: Connection) -> None:
    ask(one_job, "hold_chunks", "a", "1", "2", "10")
    async with store.listening() as jobs:
        await store.call_verb("publish", "a", ["2"], "ada", None)
        assert await next_of(jobs) == "j"


@pytest.mark.parametrize("verb", ["release_chunks", "resubmit", "release", "apply", "declare"])
async def test_whatever_makes_a_task_queued_is_reported_to_those_who_listen(
    store: Store, one_job: Connection, verb: Any
) -> None:
    end(one_job, claim(one_job, open_lease(one_job), "j")[0], "DONE")
    ask(one_job, "hold_chunks", "a", "2")
    ask(one_job, "hold", "j", "10")
    apply(one_job, [dataset("free")], [job("k", [], ["free"])])
    ids = {"release_chunks": ("a", "2", "j"), "resubmit": ("j", "1", "j"), "release": ("j", "10", "j")}
    async with store.listening() as jobs:
        if verb == "apply":
            await store.apply([], [job("j", ["a"], ["b"], parallelism=200)], "ada", lambda *_: None)
            assert await next_of(jobs) == "j"
        elif verb == "declare":
            await store.declare("free", ["new"], "ada")
            assert await next_of(jobs) == "k"
        else:
            owner, data_id, woken = ids[verb]
            await store.call_verb(verb, owner, [data_id], "ada", None)
            assert await next_of(jobs) == woken


async def listen_while_it_is_terminated(store: Store, db: Connection) -> None:
    async with store.listening() as jobs:
        terminate(db)
        await next_of(jobs)


async def test_listening_ends_with_an_error_when_the_connection_does(store: Store, db: Connection) -> None:
    with pytest.raises(Unreachable, match=r"Postgres at .* does not answer"):
        await listen_while_it_is_terminated(store, db)
    assert await recovers(store)


async def test_listening_ends_when_it_is_cancelled_at_whatever_moment(store: Store) -> None:
    """Also at the one at which a busy pool has a connection again, where psycopg forgets the cancellation."""

    async def listen() -> None:
        async with store.listening() as jobs:
            async for _ in jobs:
                pass

    for number in range(120):
        others = [asyncio.create_task(store.rows("SELECT pg_sleep(0.01)")) for _ in range(5)]
        future = asyncio.create_task(listen())
        await asyncio.sleep(number % 40 / 2000)
        future.cancel()
        done, _ = await asyncio.wait([future], timeout=300)
        assert done, f"it goes on, cancelled at moment {number}"
        assert future.cancelled()
        await asyncio.gather(*others)


# What people ask to see


@pytest.fixture
def busy(one_job: Connection) -> dict[str, dict[str, Any]]:
    """Job j has 1 DONE, 2 FAILED and 10 RUNNING; k reads b and waits. Returns j's runs by id."""
    apply(one_job, [dataset("c")], [job("k", ["b"], ["c"])])
    runs = {run["data_id"]: run for run in claim(one_job, open_lease(one_job), "j", 3)}
    end(one_job, runs["1"], "DONE", log_tail="all good", log_path="/runs/1/log")
    end(one_job, runs["2"], "FAILED", log_tail="Traceback", exit_code=7, message="exit code 7")
    return runs


async def test_jobs_are_listed_with_their_counts(store: Store, busy: Row) -> None:
    assert busy
    common = {"retrying": 0, "parallelism": 100, "total": 3, "stale": 0}
    assert await store.list_jobs() == [
        {"job": "j", "state": "Running", "done": 1, "running": 1, "failed": 1, "inputs": "a", "outputs": "b", **common},
        {"job": "k", "state": "Queued", "done": 0, "running": 0, "failed": 0, "inputs": "b", "outputs": "c", **common},
    ]


@pytest.mark.parametrize(
    ("changes", "state"),
    [({}, "Done"), ({"suspended": True}, "Suspended"), ({"chunk_to": "99"}, "Done")],
)
async def test_a_job_that_has_made_everything_is_done(
    store: Store, db: Connection, changes: dict[str, Any], state: str
) -> None:
    apply(db, [dataset("a", "1"), dataset("b", "1")], [])
    apply(db, [], [job("j", ["a"], ["b"], **changes)])
    assert [row["state"] for row in await store.list_jobs()] == [state]


async def test_data_sets_are_listed_with_their_place_and_links(store: Store, busy: Row) -> None:
    assert busy
    await store.apply(
        [
            {"id": "t", "kind": "table", "database": "dwh", "tablename": "t"},
            {"id": "u", "url": "s3a://x", "format": "csv"},
        ],
        [],
        "ada",
        lambda *_: None,
    )

    rows = {row["dataset"]: row for row in await store.list_datasets()}

    assert (rows["b"]["producer"], rows["b"]["consumers"]) == ("j", "k")
    assert (rows["b"]["ready"], rows["b"]["failed"], rows["b"]["chunks"]) == (1, 1, 3)
    assert (rows["t"]["kind"], rows["t"]["place"]) == ("table", "dwh.t")
    assert (rows["u"]["kind"], rows["u"]["place"]) == ("csv", "s3a://x")


async def test_chunks_are_listed_in_natural_order_by_data_set_status_and_limit(store: Store, busy: Row) -> None:
    rows = await store.list_chunks("b", None, 10)
    assert [(row["data_id"], row["status"], row["run"]) for row in rows] == [
        ("1", "READY", busy["1"]["run"]),
        ("2", "FAILED", busy["2"]["run"]),
        ("10", "RUNNING", busy["10"]["run"]),
    ]
    assert rows[1]["reason"] == "exit code 7"
    assert [row["data_id"] for row in await store.list_chunks("a", None, 2)] == ["1", "2"]
    assert [row["dataset"] for row in await store.list_chunks(None, "RUNNING", 10)] == ["b"]


async def test_runs_are_listed_the_newest_first(store: Store, busy: Row) -> None:
    rows = await store.list_runs(None, None, 2)
    assert [row["run"] for row in rows] == [busy["10"]["run"], busy["2"]["run"]]
    [failed] = await store.list_runs("j", "2", 10)
    assert (failed["state"], failed["exit_code"], failed["message"], failed["failure_class"]) == (
        "FAILED",
        7,
        "exit code 7",
        "Application",
    )
    assert await store.list_runs("k", None, 10) == []


async def test_the_log_of_a_run_or_of_a_tasks_last_run_is_shown(store: Store, one_job: Connection, busy: Row) -> None:
    ask(one_job, "resubmit", "j", "2")
    [again] = claim(one_job, open_lease(one_job), "j")
    end(one_job, again, "FAILED", log_tail="Traceback again")

    last = await store.run_log("j", "2", None)
    earlier = await store.run_log(None, None, busy["2"]["run"])

    assert last is not None
    assert earlier is not None
    assert (last["run"], last["log_tail"]) == (again["run"], "Traceback again")
    assert earlier["log_tail"] == "Traceback"


async def test_the_limits_and_data_sets_of_jobs_are_read_together(store: Store, busy: Row) -> None:
    assert busy
    declared = await store.declared_jobs(["j", "k", "nobody"])
    assert set(declared) == {"j", "k"}
    assert declared["j"].job["parallelism"] == 100
    assert [(d["id"], d["itemtype"]) for d in declared["k"].datasets] == [("b", "IN"), ("c", "OUT")]


async def test_progress_counts_tasks_and_status_reports_the_next_retry(store: Store, one_job: Connection) -> None:
    end(one_job, claim(one_job, open_lease(one_job), "j")[0], "RETRYING", delay=3600)

    [progress, nobody] = await store.progress(["j", "nobody"])

    assert progress.counts == {TaskState.RETRYING: 1, TaskState.QUEUED: 2}
    assert nobody.counts == {}
    status = await store.job_status("j")
    assert status is not None
    assert 0 < status["next_due"] <= 3600
    assert await store.claimable_jobs(["j", "nobody"]) == ["j"]


async def test_a_task_that_waits_says_for_what_with_evidence(store: Store, busy: Row) -> None:
    assert busy
    why = await store.why("k", "2")
    assert why is not None
    assert why["state"] == "WAITING"
    [blocker] = why["blockers"]
    assert {name: blocker[name] for name in ("dataset", "itemtype", "status", "reason", "producer")} == {
        "dataset": "b",
        "itemtype": "IN",
        "status": "FAILED",
        "reason": "exit code 7",
        "producer": "j",
    }
    assert (blocker["producer_state"], blocker["producer_reason"]) == ("FAILED", "exit code 7")


async def test_a_task_that_waits_for_a_reader_of_its_output_says_so(
    store: Store, one_job: Connection, busy: Row
) -> None:
    assert busy
    claim(one_job, open_lease(one_job), "k")
    ask(one_job, "resubmit", "j", "1")

    why = await store.why("j", "1")

    assert why is not None
    assert [(b["dataset"], b["itemtype"], b["status"], b["readers"]) for b in why["blockers"]] == [
        ("b", "OUT", "RESUBMIT", 1)
    ]


async def test_a_task_that_is_queued_says_what_comes_before_it_and_who_could_run_it(
    store: Store, one_job: Connection
) -> None:
    apply(one_job, [], [job("j", ["a"], ["b"], parallelism=1)])
    claim(one_job, open_lease(one_job), "j")
    open_lease(one_job, seconds=-1)

    why = await store.why("j", "10")

    assert why is not None
    assert (why["state"], why["blockers"], why["last_run"]) == ("QUEUED", [], None)
    assert (why["before_it"], why["running"], why["parallelism"], why["engines"]) == (1, 1, 1, 1)


async def test_a_task_that_will_be_retried_says_when_and_after_what(store: Store, one_job: Connection) -> None:
    end(one_job, claim(one_job, open_lease(one_job), "j")[0], "RETRYING", delay=3600, message="exit code 7")

    why = await store.why("j", "1")

    assert why is not None
    assert (why["state"], why["reason"], why["attempts"], why["retry_limit"]) == ("RETRYING", "exit code 7", 1, 1)
    assert 3500 < why["due_in_seconds"] <= 3600
    assert why["last_run"]["message"] == "exit code 7"


async def test_a_task_or_a_job_that_is_not_there_is_none(store: Store, one_job: Connection) -> None:
    assert one_job
    assert await store.why("j", "nothing") is None
    assert await store.why("nobody", "1") is None
    assert await store.job_status("nobody") is None
    assert await store.known_ids("nobody") == []


async def test_the_ids_of_a_job_and_a_data_set_are_known(store: Store, one_job: Connection) -> None:
    assert one_job
    assert sorted(await store.known_ids("j")) == ["1", "10", "2"]
    assert sorted(await store.known_ids("a")) == ["1", "10", "2"]


async def test_the_status_of_a_job_names_what_runs_failed_and_is_waited_for(store: Store, busy: Row) -> None:
    status = await store.job_status("j")
    assert status is not None
    assert status["counts"] == {"DONE": 1, "FAILED": 1, "RUNNING": 1}
    assert [(row["run"], row["data_id"]) for row in status["running"]] == [(busy["10"]["run"], "10")]
    assert status["failed"] == [{"reason": "exit code 7", "class": "Application", "chunks": 1, "examples": ["2"]}]
    assert (status["watermark"], status["gaps"], status["waiting"]) == ("1", 0, [])
    assert status["per_minute"] > 0

    waiting = await store.job_status("k")
    assert waiting is not None
    assert sorted((row["status"], row["chunks"], row["examples"]) for row in waiting["waiting"]) == [
        ("FAILED", 1, ["2"]),
        ("RUNNING", 1, ["10"]),
    ]
    assert (waiting["watermark"], waiting["gaps"], waiting["eta_seconds"]) == (None, 0, None)


@pytest.mark.parametrize("descending", [False, True])
async def test_the_watermark_and_the_gaps_are_in_the_order_of_the_job(
    store: Store, db: Connection, descending: bool
) -> None:
    ids = [str(number) for number in range(1, 13)]
    apply(db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"], descending=descending)])
    ordered = ids[::-1] if descending else ids
    ask(db, "publish", "b", *(i for place, i in enumerate(ordered) if place not in (3, 7, 8, 11)))

    status = await store.job_status("j")

    assert status is not None
    assert status["watermark"] == ordered[2]
    assert (status["gaps"], status["gap_examples"]) == (3, [ordered[3], ordered[7], ordered[8]])


async def test_ten_thousand_tasks_are_one_status(store: Store, db: Connection) -> None:
    ids = [str(number) for number in range(1, 10_001)]
    apply(db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"])])
    missing = {*map(str, range(6001, 6010)), "4000"}
    ask(db, "publish", "b", *(i for i in ids if i not in missing))
    for run in claim(db, open_lease(db), "j", 9):
        number = int(run["data_id"])
        message = "exit code 1" if number % 2 else "exit code 2"
        # Cancelled ones: others that fail in a row would open the breaker.
        end(db, run, "FAILED", message=message, state="CANCELLED")

    status = await store.job_status("j")

    assert status is not None
    assert status["counts"] == {"DONE": 9990, "FAILED": 9, "QUEUED": 1}
    assert status["failed"] == [
        {"reason": "exit code 2", "class": "Application", "chunks": 5, "examples": ["4000", "6002", "6004"]},
        {"reason": "exit code 1", "class": "Application", "chunks": 4, "examples": ["6001", "6003", "6005"]},
    ]
    assert (status["watermark"], status["gaps"]) == ("3999", 10)
    assert status["gap_examples"] == ["4000", "6001", "6002", "6003", "6004"]
    assert await store.verify() == []


async def test_failures_that_differ_in_the_data_id_only_are_one_reason_with_a_count(
    store: Store, db: Connection
) -> None:
    apply(db, [dataset("a", "2013-01", "2013-02", "2013-03"), dataset("b")], [job("j", ["a"], ["b"], retry_limit=0)])
    for run in claim(db, open_lease(db), "j", 3):
        sentence = "no space" if run["data_id"] == "2013-03" else f"{run['data_id']}.csv has a bad row"
        end(db, run, "FAILED", message=sentence, reason=sentence)
    status = await store.job_status("j")
    assert status is not None
    assert [(group["reason"], group["chunks"], group["examples"]) for group in status["failed"]] == [
        ("….csv has a bad row", 2, ["2013-01", "2013-02"]),
        ("no space", 1, ["2013-03"]),
    ]


async def test_the_rate_of_a_job_that_rests_does_not_decay_and_that_of_a_running_one_does(
    store: Store, db: Connection
) -> None:
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    runs = claim(db, open_lease(db), "j", 2)
    for run in runs:
        end(db, run, "DONE")
    past = "claimed_at = now() - interval '5 hours 2 minutes', finished_at = now() - interval '5 hours'"
    raw(db, f"UPDATE opendataflow.run SET {past}")
    rested = await store.job_status("j")
    assert rested is not None
    assert float(rested["per_minute"]) == 1
    claim(db, open_lease(db), "j", 1)
    active = await store.job_status("j")
    assert active is not None
    assert 0 < float(active["per_minute"]) < 0.2
