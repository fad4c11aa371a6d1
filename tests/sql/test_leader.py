"""Operators: one leads, whoever takes over has all runs, and what the one before says afterwards counts no more.

Seen at others: a limit that is ignored with two schedulers; a controller that restarts and loses or doubles runs; a
paused controller that wakes late and goes on.
"""

import asyncio
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg import Connection as AnyConnection
from psycopg.errors import DatabaseError
from psycopg.types.json import Jsonb

from opendataflow.engine import limits
from opendataflow.engine.claim_authority import Leadership
from opendataflow.engine.engine import Engine
from opendataflow.errors import CutOff, HistoryLost, LeadershipLost
from opendataflow.model.records.claim import Position
from opendataflow.model.records.pod import RunIdentity
from opendataflow.model.records.run import Host
from opendataflow.names import pod_name
from opendataflow.store.leader import acquire_leadership, stored_runs
from opendataflow.store.store import Store
from tests.e2e.test_outage import Database as LauncherOfNothing
from tests.seen import Seen
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, claim, dataset, end, job, task, value
from tests.waiting import wait_until


def leads(db: AnyConnection[object], lease: str, seconds: float = 3600) -> int | None:
    query = "SELECT opendataflow.acquire_leadership(%s::uuid, 'pod', 'uid', '', make_interval(secs => %s)) AS epoch"
    row = db.execute(query, (lease, seconds)).fetchone()
    assert isinstance(row, dict)
    epoch: int | None = row["epoch"]
    return epoch


def new_lease() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def graph_of_three(db: Connection) -> Connection:
    apply(
        db, [dataset("team/out", "1", "2", "3")], [job("team/make", [], ["team/out"], owner="team/make", retry_limit=0)]
    )
    return db


def test_the_first_operator_leads_and_another_one_waits(db: Connection) -> None:
    first, second = new_lease(), new_lease()
    assert leads(db, first) == 1
    assert leads(db, second) is None
    assert leads(db, first) == 1


def test_whoever_takes_over_raises_the_epoch_and_has_all_runs(graph_of_three: Connection) -> None:
    db, first, second = graph_of_three, new_lease(), new_lease()
    leads(db, first, seconds=0)
    leads(db, first)
    runs = claim(db, first, "team/make", 2)
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    assert leads(db, second) == 2
    rows = db.execute("SELECT r.lease::text FROM opendataflow.run r WHERE r.id = ANY (%s)", ([r["run"] for r in runs],))
    assert [row["lease"] for row in rows] == [second, second]


def test_each_claim_has_a_nonce_of_its_own_which_the_next_leader_gets(graph_of_three: Connection) -> None:
    db, first, second = graph_of_three, new_lease(), new_lease()
    leads(db, first, seconds=0)
    leads(db, first)
    claimed = {run["run"]: run["nonce"] for run in claim(db, first, "team/make", 2)}
    assert len(set(claimed.values())) == 2
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    leads(db, second)
    taken = db.execute("SELECT run FROM opendataflow.running_runs(%s::uuid, true)", (second,)).fetchall()
    assert {row["run"]["run"]: row["run"]["nonce"] for row in taken} == claimed


async def test_the_pods_of_runs_are_identified_by_what_their_claims_wrote(
    graph_of_three: Connection, store: Store
) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    ended, running = claim(db, lease, "team/make", 2)
    end(db, ended, "DONE", pod_uid="u1")
    stored = await stored_runs(store, [ended["run"], running["run"], 10**9])
    assert {run: (one.ended, one.pod_uid) for run, one in stored.items()} == {
        ended["run"]: (True, "u1"),
        running["run"]: (False, None),
    }
    name = pod_name("make", running["run"], running["nonce"])
    identity = RunIdentity(running["run"], "team", name, running["fence"], running["nonce"])
    assert stored[running["run"]].identity == identity


def test_an_operator_whose_lease_ended_unnoticed_still_leads(db: Connection) -> None:
    first = new_lease()
    leads(db, first, seconds=0)
    assert leads(db, first) == 1


def test_an_operator_that_wakes_late_can_neither_lead_nor_claim_nor_commit(graph_of_three: Connection) -> None:
    db, old, new = graph_of_three, new_lease(), new_lease()
    leads(db, old)
    (run,) = claim(db, old, "team/make")
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    leads(db, new)
    assert leads(db, old) is None
    with pytest.raises(DatabaseError, match="has ended"):
        claim(db, old, "team/make")
    outcome = {"run": run["run"], "fence": run["fence"], "verdict": "FAILED", "state": "FAILED", "class": "Application"}
    query = "SELECT * FROM opendataflow.complete(%s, 'old', %s::uuid)"
    answer = db.execute(query, (json.dumps([outcome | {"message": "x"}]), old)).fetchone()
    assert answer is not None
    assert (answer["already"], answer["run_state"], answer["task_state"]) == (True, "RUNNING", "RUNNING")
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"


def test_a_takeover_overlooks_no_claim_that_is_under_way(graph_of_three: Connection, dsn: str) -> None:
    db, old, new = graph_of_three, new_lease(), new_lease()
    leads(db, old)
    with open_connection(dsn) as other, other.transaction():
        (run,) = claim(other, old, "team/make")
        db.execute("UPDATE opendataflow.lease SET expires_at = now()")
        taking = threading.Thread(target=leads, args=(db, new))
        taking.start()
        waits = "SELECT pg_blocking_pids(%s)"
        claimer, taker = other.info.backend_pid, db.info.backend_pid
        wait_until(lambda: claimer in value(other, waits, taker), "it waits for the claim", every=0.01)
    taking.join()
    assert value(db, "SELECT lease::text FROM opendataflow.run WHERE id = %s", run["run"]) == new


def waits_for(db: Connection, waiting: Connection, holder: Connection) -> None:
    """Return when one connection waits for a lock of another one."""
    blocked, blocking = waiting.info.backend_pid, holder.info.backend_pid
    wait_until(lambda: blocking in value(db, "SELECT pg_blocking_pids(%s)", blocked), "it waits", every=0.01)


def begin_apply(db: Connection, lease: str) -> None:
    """Do what an operator's apply does, in a transaction that the caller has opened."""
    db.execute("SELECT opendataflow.require_leader(%s::uuid)", (lease,))
    apply(db, [dataset("slow", "1", "2")], [])


def test_a_renewal_does_not_wait_for_an_open_apply(db: Connection, dsn: str) -> None:
    lease = new_lease()
    leads(db, lease, seconds=0)
    with open_connection(dsn) as other, other.transaction():
        begin_apply(other, lease)
        db.execute("SET lock_timeout = '10ms'")
        assert leads(db, lease) == 1
        assert leads(db, new_lease()) is None
    assert value(db, "SELECT expires_at > now() FROM opendataflow.lease WHERE id = %s", lease) is True


def test_a_takeover_waits_for_an_open_apply_of_the_previous_leader(db: Connection, dsn: str) -> None:
    old, new = new_lease(), new_lease()
    leads(db, old, seconds=0)
    with open_connection(dsn) as other, open_connection(dsn) as taker, ThreadPoolExecutor() as threads:
        with other.transaction():
            begin_apply(other, old)
            taken = threads.submit(leads, taker, new)
            waits_for(db, taker, other)
        assert taken.result() == 2
        with pytest.raises(DatabaseError, match="another operator has taken over"):
            begin_apply(other, old)


def test_of_all_that_wait_to_take_over_one_leads(db: Connection, dsn: str) -> None:
    old = new_lease()
    leads(db, old, seconds=0)
    with (
        open_connection(dsn) as other,
        open_connection(dsn) as first,
        open_connection(dsn) as second,
        ThreadPoolExecutor() as threads,
    ):
        with other.transaction():
            begin_apply(other, old)
            one = threads.submit(leads, first, new_lease())
            waits_for(db, first, other)
            two = threads.submit(leads, second, new_lease())
            waits_for(db, second, first)
            late = threads.submit(leads, db, old)
        assert (one.result(), two.result(), late.result()) == (2, None, None)


def test_the_runs_of_a_resource_live_in_its_namespace(graph_of_three: Connection) -> None:
    lease = new_lease()
    leads(graph_of_three, lease)
    claim(graph_of_three, lease, "team/make")
    assert value(graph_of_three, "SELECT runs_home FROM opendataflow.run") == "team"


def test_a_run_that_was_not_started_costs_no_attempt(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    for _ in range(3):
        (run,) = claim(db, lease, "team/make")
        end(db, run, "RETRYING", **{"class": "NotStarted", "state": "LOST"})
        row = task(db, "team/make", "1")
        assert (row["state"], row["attempts"], row["infrastructure_attempts"]) == ("RETRYING", 0, 0)
        db.execute("SELECT opendataflow.retry_due()")


def test_five_runs_that_were_not_started_open_no_breaker(db: Connection) -> None:
    apply(db, [dataset("out", *"123456")], [job("make", [], ["out"])])
    lease = new_lease()
    leads(db, lease)
    for run in claim(db, lease, "make", 6):
        end(db, run, "RETRYING", **{"class": "NotStarted", "state": "LOST"})
    assert value(db, "SELECT count(*) FROM opendataflow.breaker WHERE opened_at IS NOT NULL") == 0


async def test_the_store_asks_for_the_leadership(store: Store) -> None:
    host = Host("pod", "uid")
    first, second = new_lease(), new_lease()
    assert await acquire_leadership(store, first, host, 60) == 1
    assert await acquire_leadership(store, second, host, 60) is None


async def test_what_a_deposed_operator_asks_for_is_refused_and_changes_nothing(store: Store, db: Connection) -> None:
    host, old, new = Host("pod", "uid"), new_lease(), new_lease()
    await acquire_leadership(store, old, host, 60)
    store.leader = old
    await store.apply([dataset("a", "1") | {"options": {}}], [], "old", lambda *_: None)
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    leads(db, new)
    with pytest.raises(LeadershipLost):
        await store.apply([dataset("b", "1") | {"options": {}}], [], "old", lambda *_: None)
    assert value(db, "SELECT string_agg(id, ' ') FROM opendataflow.dataset") == "a"


HOME = """SELECT opendataflow.acquire_leadership(%s::uuid, 'pod', 'uid', '', interval '1 hour',
                                                 p_home => %s, p_home_name => %s) AS epoch"""


def test_a_database_belongs_to_the_first_home_that_leads_it_until_it_is_moved(db: Connection) -> None:
    lease = new_lease()
    assert db.execute(HOME, (lease, "uid-1", "team/dataflow")).fetchall() == [{"epoch": 1}]
    for _ in range(2):  # while the home leads, and after its lease has ended
        with pytest.raises(
            DatabaseError, match=r"account team/dataflow \(uid uid-1\), and this operator has uid uid-2"
        ):
            db.execute(HOME, (new_lease(), "uid-2", "other/dataflow"))
        db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    assert leads(db, new_lease(), seconds=0) == 2  # the clean-up, which has no home
    db.execute("SELECT opendataflow.require_no_engine(), opendataflow.forget_home()")
    assert db.execute(HOME, (lease, "uid-2", "other/dataflow")).fetchall() == [{"epoch": 3}]
    assert value(db, "SELECT home_name FROM opendataflow.leader") == "other/dataflow"
    with pytest.raises(DatabaseError, match="pod works with this database: stop it, and try again"):
        db.execute("SELECT opendataflow.require_no_engine()")


def test_a_copy_has_another_identity_no_home_no_orphans_and_suspended_jobs(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    db.execute(HOME, (lease, "uid-1", "team/dataflow"))
    record(db, lease, orphan("u1", "team/make", "2", 500))
    before = value(db, "SELECT identity FROM opendataflow.leader")
    assert value(db, "SELECT opendataflow.become_copy('ann')") == 1
    assert value(db, "SELECT opendataflow.become_copy('ann')") == 0
    (leader,) = db.execute("SELECT identity, home, home_name FROM opendataflow.leader").fetchall()
    assert (leader["identity"] != before, leader["home"], leader["home_name"]) == (True, None, None)
    assert value(db, "SELECT count(*) FROM opendataflow.orphan") == 0
    assert claim(db, lease, "team/make") == []
    event = db.execute("SELECT actor, reason FROM opendataflow.history WHERE event = 'suspend'").fetchall()
    assert event == [{"actor": "ann", "reason": "the database is a copy"}]


KNOWS = """SELECT opendataflow.acquire_leadership(%s::uuid, 'pod', 'uid', '', interval '1 hour', NULL, %s, %s, %s)"""


def test_a_leader_whose_newest_run_is_missing_has_lost_its_history(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    (run,) = claim(db, lease, "team/make")
    db.execute(KNOWS, (lease, 1, run["run"], run["fence"]))
    for missing in ((run["run"] + 1, run["fence"] + 1), (run["run"], run["fence"] + 1)):
        with pytest.raises(DatabaseError, match="history was lost: the database does not know run") as error:
            db.execute(KNOWS, (lease, 1, *missing))
        assert error.value.sqlstate == "DF009"


def test_a_leader_of_an_epoch_that_is_missing_or_is_led_by_another_one_has_lost_its_history(db: Connection) -> None:
    lease = new_lease()
    leads(db, lease)
    with pytest.raises(DatabaseError, match="leads since epoch 2") as error:
        db.execute(KNOWS, (lease, 2, None, None))
    assert error.value.sqlstate == "DF009"
    with pytest.raises(DatabaseError, match="leads since epoch 1"):
        db.execute(KNOWS, (new_lease(), 1, None, None))
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    assert leads(db, new_lease()) == 2
    assert db.execute(KNOWS, (lease, 1, None, None)).fetchall() == [{"acquire_leadership": None}]  # it was deposed


async def test_an_operator_asks_for_the_newest_run_that_it_has_recorded(
    store: Store, graph_of_three: Connection
) -> None:
    leadership = Leadership(store, Host("pod", "uid"), lambda _: None)
    await leadership.begin()
    claimed = await store.claim(leadership.lease, "team/make", 2, Position())
    for run in reversed(claimed.runs):
        leadership.record(run)
    await leadership.renew()
    newest = max(run.run for run in claimed.runs)
    graph_of_three.execute("DELETE FROM opendataflow.run WHERE id = %s", (newest,))  # as a failover
    with pytest.raises(HistoryLost, match=f"does not know run {newest};"):
        await leadership.renew()


def test_the_newest_run_is_never_cleaned(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    for run in claim(db, lease, "team/make", 2):
        end(db, run, "FAILED")
    with db.transaction():  # a job whose ids were withdrawn
        db.execute("SELECT opendataflow.begin_event('test', 'test')")
        db.execute("DELETE FROM opendataflow.task")
        db.execute("UPDATE opendataflow.chunk SET run = NULL")
    rows = db.execute("SELECT opendataflow.can_delete_run(r) AS goes FROM opendataflow.run r ORDER BY id").fetchall()
    assert [row["goes"] for row in rows] == [True, False]


def orphan(uid: str, job_key: str, data_id: str, run: int, fence: int = 1) -> dict[str, object]:
    namespace, name = job_key.split("/")
    return {
        "uid": uid, "run": run, "fence": fence, "job": job_key, "data_id": data_id, "namespace": namespace,
        "name": f"{name}-r{run}-abcdef",
    }  # fmt: skip


def record(db: Connection, lease: str, *orphans: dict[str, object], complete: bool = True) -> None:
    db.execute("SELECT opendataflow.record_orphans(%s::uuid, %s, %s)", (lease, Jsonb(orphans), complete))


def claimed_ids(db: Connection, lease: str, job_key: str) -> list[str]:
    return sorted(run["data_id"] for run in claim(db, lease, job_key, 9))


def test_a_chunk_with_an_orphan_is_claimed_when_the_orphan_has_ended(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    record(db, lease, orphan("u1", "team/make", "2", 500), orphan("u2", "team/other", "3", 501))
    assert claimed_ids(db, lease, "team/make") == ["1", "3"]
    why = value(db, "SELECT opendataflow.why('team/make', '2')")
    assert (why["state"], why["orphan"]["name"]) == ("QUEUED", "make-r500-abcdef")
    assert [each["uid"] for each in value(db, "SELECT opendataflow.health()")["orphaned_pods"]] == ["u1", "u2"]
    db.execute("SELECT opendataflow.forget_orphans(%s::uuid, %s)", (lease, ["u1"]))
    assert claimed_ids(db, lease, "team/make") == ["2"]


def test_a_chunk_that_an_orphan_may_still_write_is_not_read(db: Connection) -> None:
    jobs = [job("team/make", ["team/a"], ["team/b"]), job("team/sum", ["team/b"], ["team/c"])]
    apply(db, [dataset("team/a", "1", "2"), dataset("team/b"), dataset("team/c")], jobs)
    lease = new_lease()
    leads(db, lease)
    for run in claim(db, lease, "team/make", 2):
        end(db, run, "DONE")
    record(db, lease, orphan("u1", "team/make", "1", 500))
    assert claimed_ids(db, lease, "team/sum") == ["2"]


def test_a_list_of_orphans_replaces_the_one_before_unless_namespaces_are_missing(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    first, second = orphan("u1", "team/make", "1", 500), orphan("u2", "team/make", "2", 501)
    record(db, lease, first)
    record(db, lease, second, complete=False)
    assert value(db, "SELECT string_agg(uid, ' ' ORDER BY uid) FROM opendataflow.orphan") == "u1 u2"
    record(db, lease, second)
    assert value(db, "SELECT string_agg(uid, ' ' ORDER BY uid) FROM opendataflow.orphan") == "u2"
    with pytest.raises(DatabaseError) as error:
        record(db, new_lease())
    assert error.value.sqlstate == "DF006"


def test_runs_get_ids_and_fences_above_those_of_orphans_but_not_above_forged_ones(graph_of_three: Connection) -> None:
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    soon = value(db, "SELECT (extract(epoch FROM now() + interval '1 hour') * 1e6)::bigint")
    forged = orphan("u2", "team/make", "9", 2**62, 2**62)
    record(db, lease, orphan("u1", "team/make", "8", 500, soon), forged)
    (run,) = claim(db, lease, "team/make")
    assert (run["run"], run["fence"] > soon, run["fence"] < soon + 1000) == (501, True, True)


def test_what_is_in_namespaces_that_the_leader_does_not_work_in_is_reported(graph_of_three: Connection) -> None:
    db, first, second = graph_of_three, new_lease(), new_lease()
    query = "SELECT opendataflow.acquire_leadership(%s::uuid, 'pod', 'uid', '', interval '1 hour', %s)"
    query_of_unmanaged = "SELECT namespace, jobs, runs FROM opendataflow.unmanaged_namespaces()"
    db.execute(query, (first, []))
    (run,) = claim(db, first, "team/make")
    assert db.execute(query_of_unmanaged).fetchall() == []  # it works everywhere
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    db.execute(query, (second, ["other"]))
    unseen = {"namespace": "team", "jobs": ["team/make"], "runs": [run["run"]]}
    assert db.execute(query_of_unmanaged).fetchall() == [unseen]
    assert value(db, "SELECT opendataflow.job_status('team/make') -> 'unmanaged_namespaces'") == [unseen]
    assert value(db, "SELECT opendataflow.why('team/make', '1') -> 'unmanaged_namespaces'") == unseen | {"jobs": []}
    assert value(db, "SELECT opendataflow.why('team/make', '2') -> 'unmanaged_namespaces'") is None
    db.execute("SELECT opendataflow.delete_job('team/make', 'test')")
    assert db.execute(query_of_unmanaged).fetchall() == [unseen | {"jobs": []}]
    end(db, run, "DONE")
    assert db.execute(query_of_unmanaged).fetchall() == []


async def test_who_leads_without_any_work_changes_nothing_of_where_it_is_done(store: Store, db: Connection) -> None:
    host = Host("pod", "uid")
    await acquire_leadership(store, new_lease(), host, 0, ["team"])
    await acquire_leadership(store, new_lease(), host, 60)
    assert value(db, "SELECT namespaces FROM opendataflow.leader") == ["team"]


async def test_an_operator_that_the_api_server_does_not_answer_does_not_begin_to_lead(
    store: Store, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RENEW_SECONDS", 0.0)
    missed, epochs = [2, 1, 0], []

    def miss() -> int:
        epochs.append(value(db, "SELECT epoch FROM opendataflow.leader"))
        return missed.pop(0)

    leadership = Leadership(store, Host("operator", "1"), lambda _: None, missed=miss)
    await leadership.begin()
    assert epochs == [0, 0, 0]
    assert value(db, "SELECT epoch FROM opendataflow.leader") == 1


async def test_a_leader_that_the_api_server_does_not_answer_any_more_gives_up_with_the_reason(
    store: Store, db: Connection
) -> None:
    missed = 0
    leadership = Leadership(store, Host("operator-1", "1"), lambda _: None, missed=lambda: missed)
    await leadership.begin()
    missed = limits.MOST_MISSED_CHECKS - 1
    await leadership.renew()
    assert operator_of(db)["leads"] is True
    missed += 1
    with pytest.raises(CutOff) as cut_off:
        await leadership.renew()
    await leadership.end(str(cut_off.value))
    found = operator_of(db)
    assert (found["leads"], found["host"], found["reason"]) == (False, "operator-1", str(cut_off.value))
    assert leads(db, new_lease()) == 2
    assert operator_of(db) | {"host": "pod", "leads": True, "ended": None, "reason": None} == operator_of(db)


def test_the_end_of_a_deposed_operator_is_not_taken_for_that_of_the_leader(db: Connection) -> None:
    first, second = new_lease(), new_lease()
    leads(db, first)
    db.execute("UPDATE opendataflow.lease SET expires_at = now()")
    leads(db, second)
    db.execute("SELECT opendataflow.resign(%s::uuid, 'another operator has taken over')", (first,))
    assert operator_of(db)["leads"] is True
    assert operator_of(db)["reason"] is None


def test_a_run_of_an_operator_that_has_ended_is_not_reported_as_one_that_a_person_ends(
    graph_of_three: Connection,
) -> None:
    """The next operator adopts it. To call it lost would start it a second time."""
    db, lease = graph_of_three, new_lease()
    leads(db, lease)
    claim(db, lease, "team/make", 1)
    db.execute("SELECT opendataflow.resign(%s::uuid, NULL)", (lease,))
    found = value(db, "SELECT opendataflow.health()")
    assert found["orphans"] == []
    assert found["operator"]["ended"] is not None


def operator_of(db: Connection) -> dict[str, object]:
    found: dict[str, object] = value(db, "SELECT opendataflow.leading_operator()")
    return {key: found[key] for key in ("host", "leads", "ended", "reason")}


# Giving up ---------------------------------------------------------------------------------------------------


async def test_the_reason_for_giving_up_is_stored_without_secrets(db: Connection, store: Store) -> None:
    leadership = Leadership(
        store, Host("operator", "1"), lambda _: None, redact=lambda text: text.replace("s3cret", "***")
    )
    await leadership.begin()
    await leadership.end("no answer from postgresql://dataflow:s3cret@db")
    assert value(db, "SELECT reason FROM opendataflow.leader") == "no answer from postgresql://dataflow:***@db"


async def test_an_operator_that_is_stopped_before_its_first_claim_leaves_the_leadership_to_the_next_one(
    db: Connection, store: Store
) -> None:
    leadership, preparing = Leadership(store, Host("operator", "1"), lambda _: None), asyncio.Event()

    async def prepare() -> None:
        preparing.set()
        await asyncio.Event().wait()

    engine = Engine(store, LauncherOfNothing(there=True), leadership, {}, Seen(), parallelism=1)
    working = asyncio.create_task(engine.run(prepare))
    await asyncio.wait_for(preparing.wait(), 240)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, 240)
    assert value(db, "SELECT count(*) FROM opendataflow.lease") == 0
    assert leads(db, new_lease()) == 2
