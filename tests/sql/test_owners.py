"""Jobs and data sets that custom resources declare: an id belongs to a namespace and has one owner there, data sets are
shared on purpose, and what is deleted can be declared again in its namespace."""

import pytest
from psycopg.errors import DatabaseError

from tests.sql.conftest import Connection
from tests.sql.graph import apply, chunks, claim, dataset, end, job, open_lease, problems, tasks, value

OWNED = {"owner": "team/flights-1"}


def test_an_id_that_another_resource_of_the_namespace_has_is_refused_by_name(rolled_back: Connection) -> None:
    db = rolled_back
    apply(db, [dataset("team/out", "1") | OWNED], [job("team/make", [], ["team/out"], owner="team/make-1")])
    taken = r"the id team/out is taken: .* belongs to the DataSet team/flights-1; choose"
    with pytest.raises(DatabaseError, match=taken), db.transaction():
        apply(db, [dataset("team/out", "1") | {"owner": "team/flights-2"}], [])
    with pytest.raises(DatabaseError, match=r"the id team/make is taken: .* belongs to the DataFlowJob team/make-1"):
        apply(db, [], [job("team/make", [], ["team/out"], owner="team/make-2")])


def test_two_namespaces_and_a_file_have_the_same_ids_side_by_side(rolled_back: Connection) -> None:
    db, lease = rolled_back, open_lease(rolled_back)
    for space in ("", "team/", "other/"):
        owner = {"owner": f"{space}x"} if space else {}
        made = job(f"{space}make", [f"{space}in"], [f"{space}out"], **owner)
        apply(db, [dataset(f"{space}in", "1") | owner, dataset(f"{space}out") | owner], [made])
    (run,) = claim(db, lease, "team/make")
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"
    assert tasks(db) == {"make/1": "QUEUED", "team/make/1": "DONE", "other/make/1": "QUEUED"}
    assert chunks(db)["other/out/1"] == "DECLARED"
    assert value(db, "SELECT opendataflow.job_status('other/make') -> 'running'") == []
    assert problems(db) == []


@pytest.mark.parametrize("key", ["other/out", "out"])
def test_no_resource_owns_what_another_namespace_or_a_file_has(rolled_back: Connection, key: str) -> None:
    with pytest.raises(DatabaseError, match="dataset_of_namespace"):
        apply(rolled_back, [dataset(key) | OWNED], [])


@pytest.mark.parametrize("key", ["a/b/c", "/a", "a/", ""])
def test_a_key_is_an_id_or_a_namespace_and_an_id(rolled_back: Connection, key: str) -> None:
    with pytest.raises(DatabaseError, match="dataset_key"):
        apply(rolled_back, [dataset(key)], [])


def test_a_job_can_t_use_another_namespace_s_data_set_unless_that_is_shared(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("team/flights", "1") | OWNED, dataset("other/out")], [])
    with (
        pytest.raises(DatabaseError, match="team does not share it with namespace other"),
        rolled_back.transaction(),
    ):
        apply(rolled_back, [], [job("other/make", ["team/flights"], ["other/out"], owner="other/make")])
    apply(rolled_back, [dataset("team/flights", "1") | OWNED | {"share_with": ["other"]}], [])
    assert apply(rolled_back, [], [job("other/make", ["team/flights"], ["other/out"], owner="other/make")]) == [
        "other/make"
    ]


def test_a_job_never_writes_another_namespace_s_data_set_also_if_it_is_shared(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("team/flights", "1") | OWNED | {"share_with": ["other"]}], [])
    with pytest.raises(DatabaseError, match="other namespaces may only read it"), rolled_back.transaction():
        apply(rolled_back, [], [job("other/make", [], ["team/flights"], owner="other/make")])


def test_a_job_claims_nothing_while_a_data_set_is_not_shared_any_more(rolled_back: Connection) -> None:
    db, lease = rolled_back, open_lease(rolled_back)
    shared = dataset("team/flights", "1", "2") | OWNED
    apply(db, [shared | {"share_with": ["other"]}, dataset("other/out")], [])
    apply(db, [], [job("other/make", ["team/flights"], ["other/out"], owner="other/make", parallelism=1)])
    (run,) = claim(db, lease, "other/make")
    apply(db, [shared], [])
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"
    assert claim(db, lease, "other/make") == []
    assert "team/flights" in value(db, "SELECT opendataflow.job_status('other/make') ->> 'sharing'")
    assert "team/flights" in value(db, "SELECT opendataflow.why('other/make', '2') ->> 'sharing'")
    with pytest.raises(DatabaseError, match="team/flights"), db.transaction():
        db.execute("SELECT opendataflow.require_shared('{other/make}')")
    apply(db, [shared | {"share_with": ["other"]}], [])
    assert [run["data_id"] for run in claim(db, lease, "other/make")] == ["2"]
    assert problems(db) == []


def test_a_resource_s_limits_are_changed_in_the_resource(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("team/out", "1")], [job("team/make", [], ["team/out"], owner="team/make")])
    with pytest.raises(DatabaseError, match="job team/make belongs to the DataFlowJob team/make: change its"):
        rolled_back.execute("SELECT opendataflow.scale_job('team/make', 3, 'me')")


def test_a_deleted_job_starts_nothing_its_run_ends_well_and_it_goes_on_when_it_is_applied_again(
    rolled_back: Connection,
) -> None:
    db, declared = rolled_back, job("make", [], ["out"])
    apply(db, [dataset("out", "1", "2")], [declared])
    lease = open_lease(db)
    (run,) = claim(db, lease, "make")
    db.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert claim(db, lease, "make") == []
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"
    assert chunks(db) == {"out/1": "READY", "out/2": "DECLARED"}
    assert problems(db) == []
    apply(db, [], [declared])
    assert [run["data_id"] for run in claim(db, lease, "make")] == ["2"]
    assert tasks(db) == {"make/1": "DONE", "make/2": "RUNNING"}
    assert problems(db) == []


def test_the_tasks_of_a_deleted_job_are_kept_also_when_its_run_fails(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"], retry_limit=0)])
    (run,) = claim(rolled_back, open_lease(rolled_back), "make")
    rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    end(rolled_back, run, "FAILED")
    assert tasks(rolled_back) == {"make/1": "FAILED"}
    assert problems(rolled_back) == []


def test_the_runs_of_a_deleted_job_are_cancelled_where_it_says_so(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1", "2")], [job("make", [], ["out"], cancel_on_delete=True)])
    (run,) = claim(rolled_back, open_lease(rolled_back), "make")
    rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert value(rolled_back, "SELECT cancel_requested FROM opendataflow.run WHERE id = %s", run["run"])
    reason = "SELECT reason FROM opendataflow.history WHERE event = 'cancel' AND run = %s"
    assert value(rolled_back, reason, run["run"]) == "the job was deleted"


def test_the_data_sets_of_a_deleted_job_are_free_for_another_producer(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"])])
    rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert apply(rolled_back, [], [job("better", [], ["out"])]) == ["better"]


def test_deleting_twice_changes_nothing(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"])])
    for _ in range(2):
        rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert (
        value(rolled_back, "SELECT count(*) FROM opendataflow.history WHERE kind = 'job' AND to_state = 'deleted'") == 1
    )


def test_a_data_set_whose_resource_is_gone_keeps_its_chunks_for_its_namespace_and_is_not_shared_any_more(
    rolled_back: Connection,
) -> None:
    db = rolled_back
    apply(db, [dataset("team/out", "1") | OWNED | {"share_with": ["other"]}, dataset("other/made")], [])
    apply(db, [], [job("other/read", ["team/out"], ["other/made"], owner="other/read")])
    db.execute("SELECT opendataflow.disown_dataset('team/out', %s)", (OWNED["owner"],))
    assert claim(db, open_lease(db), "other/read") == []
    refusal = "team does not share it with namespace other"
    assert refusal in value(db, "SELECT opendataflow.sharing_refusal('other/read')")
    apply(db, [dataset("team/out") | {"owner": "team/again"}], [])
    assert chunks(db)["team/out/1"] == "READY"


def test_a_job_of_a_namespace_reads_no_data_set_of_a_file_but_today(rolled_back: Connection) -> None:
    db = rolled_back
    apply(db, [dataset("raw", "1"), dataset("team/out"), dataset("team/day")], [])
    apply(db, [], [job("team/daily", ["today"], ["team/day"], owner="team/daily", first_day="2013-01-01")])
    with pytest.raises(DatabaseError, match="no namespace and is not shared; to move it: dataflow db assign raw team"):
        apply(db, [], [job("team/load", ["raw"], ["team/out"], owner="team/load")])


def test_the_ids_of_a_job_become_no_chunks_of_a_data_set_that_it_only_reads(rolled_back: Connection) -> None:
    db, lease = rolled_back, open_lease(rolled_back)
    shared = dataset("team/flights", "1") | OWNED | {"share_with": ["other"]}
    apply(db, [shared, dataset("team/out")], [job("team/load", ["team/flights"], ["team/out"], owner="team/load")])
    own = dataset("other/own", "1", "x", "y")
    mix = job("other/mix", ["team/flights", "other/own"], ["other/made"], owner="other/mix")
    apply(db, [own, dataset("other/made")], [mix])
    assert {key for key in chunks(db) if key.startswith("team/")} == {"team/flights/1", "team/out/1"}
    waiting = {"other/mix/x": "WAITING", "other/mix/y": "WAITING"}
    assert tasks(db) == {"team/load/1": "QUEUED", "other/mix/1": "QUEUED"} | waiting
    assert problems(db) == []

    db.execute("SELECT opendataflow.publish('team/flights', '{x}', 'team')")
    assert tasks(db)["other/mix/x"] == "QUEUED"
    assert tasks(db)["team/load/x"] == "QUEUED"
    db.execute("SELECT opendataflow.force('other/mix', '{y}', 'other')")
    assert {run["data_id"] for run in claim(db, lease, "other/mix", 3)} == {"1", "x", "y"}
    assert "team/flights/y" not in chunks(db)
    assert problems(db) == []


def test_a_reader_neither_keeps_nor_withdraws_the_chunks_of_another_namespace(rolled_back: Connection) -> None:
    db = rolled_back
    shared = dataset("team/flights", "1", "2", "3") | OWNED | {"share_with": ["other"]}
    mix = job("other/mix", ["team/flights", "other/own"], ["other/made"], owner="other/mix")
    apply(db, [shared, dataset("other/own", "1", "2"), dataset("other/made")], [])
    apply(db, [], [mix])
    apply(db, [dataset("other/own", "1")], [])
    assert chunks(db)["team/flights/2"] == "READY"
    assert tasks(db)["other/mix/2"] == "QUEUED"  # its own chunk stays, because the job reads the id elsewhere
    apply(db, [shared | dataset("team/flights", "3")], [])
    assert chunks(db)["team/flights/1"] == "RETIRED"
    assert "other/mix/2" not in tasks(db)
    assert tasks(db)["other/mix/1"] == "WAITING"
    assert problems(db) == []
    apply(db, [dataset("other/own", "1", "2")], [])
    assert chunks(db)["team/flights/2"] == "RETIRED"
    assert problems(db) == []


def test_the_ids_of_a_job_become_no_days(rolled_back: Connection) -> None:
    db = rolled_back
    apply(db, [dataset("team/day")], [job("team/daily", ["today"], ["team/day"], first_day="2013-01-01")])
    both = job("other/daily", ["today", "other/own"], ["other/day"], first_day="2013-01-01")
    apply(db, [dataset("other/own", "2013-01-01", "2013-x"), dataset("other/day")], [both])
    assert [key for key in chunks(db) if key.startswith("today/")] == []
    assert [key for key in tasks(db) if key.startswith("team/")] == []
    db.execute("SELECT opendataflow.publish('today', '{2013-01-01}', 'test')")
    assert {key: state for key, state in tasks(db).items() if key.endswith("2013-01-01")} == {
        "team/daily/2013-01-01": "QUEUED",
        "other/daily/2013-01-01": "QUEUED",
    }
    assert problems(db) == []


def test_a_resubmit_with_everything_downstream_leaves_the_tasks_of_other_namespaces(rolled_back: Connection) -> None:
    db, lease = rolled_back, open_lease(rolled_back)
    apply(db, [dataset("team/raw", "1"), dataset("team/flights") | OWNED | {"share_with": ["other"]}], [])
    apply(db, [dataset("team/out"), dataset("other/out")], [])
    load = job("team/load", ["team/raw"], ["team/flights"], owner="team/load")
    more = job("team/more", ["team/flights"], ["team/out"], owner="team/more")
    apply(db, [], [load, more, job("other/read", ["team/flights"], ["other/out"], owner="other/read")])
    for name in ("team/load", "team/more", "other/read"):
        (run,) = claim(db, lease, name)
        end(db, run, "DONE")
    answers = db.execute(
        "SELECT job, data_id FROM opendataflow.resubmit_cascade('team/load', '{1}', 'team')"
    ).fetchall()
    assert {answer["job"] for answer in answers} == {"team/load", "team/more"}
    assert tasks(db) == {"team/load/1": "QUEUED", "team/more/1": "WAITING", "other/read/1": "DONE"}
    for name in ("team/load", "team/more"):
        (run,) = claim(db, lease, name)
        end(db, run, "DONE")
    assert value(db, "SELECT stale FROM opendataflow.task WHERE job = 'other/read'")
    assert problems(db) == []
