"""Jobs and data sets that custom resources declare: an id has one owner, data sets are shared on purpose, and what is
deleted can be declared again."""

import pytest
from psycopg.errors import DatabaseError

from tests.sql.conftest import Connection
from tests.sql.graph import apply, chunks, claim, dataset, end, job, open_lease, problems, tasks, value

OWNED = {"owner": "team/flights"}


def test_an_id_that_another_resource_has_is_refused_by_name(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1") | OWNED], [job("make", [], ["out"], owner="team/make")])
    with pytest.raises(DatabaseError, match=r"the id out is taken: .* belongs to the DataSet team/flights; choose"):
        apply(rolled_back, [dataset("out", "1") | {"owner": "other/flights"}], [])


def test_a_file_can_t_take_what_a_resource_has(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"], owner="team/make")])
    with pytest.raises(DatabaseError, match=r"the id make is taken: .* belongs to the DataFlowJob team/make"):
        apply(rolled_back, [], [job("make", [], ["out"])])


def test_a_resource_takes_over_what_a_file_has_declared(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"])])
    apply(rolled_back, [dataset("out", "1") | OWNED], [job("make", [], ["out"], owner="team/make")])
    assert value(rolled_back, "SELECT owner FROM opendataflow.job") == "team/make"


def test_a_job_can_t_use_another_namespace_s_data_set_unless_that_is_shared(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("flights", "1") | OWNED, dataset("out")], [])
    with (
        pytest.raises(
            DatabaseError, match=r"belongs to the DataSet team/flights and is not shared with namespace other"
        ),
        rolled_back.transaction(),
    ):
        apply(rolled_back, [], [job("make", ["flights"], ["out"], owner="other/make")])
    apply(rolled_back, [dataset("flights", "1") | OWNED | {"share_with": ["other"]}], [])
    assert apply(rolled_back, [], [job("make", ["flights"], ["out"], owner="other/make")]) == ["make"]


def test_a_job_never_writes_another_namespace_s_data_set_also_if_it_is_shared(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("flights", "1") | OWNED | {"share_with": ["other"]}], [])
    with pytest.raises(DatabaseError, match="other namespaces may only read it"), rolled_back.transaction():
        apply(rolled_back, [], [job("make", [], ["flights"], owner="other/make")])


def test_a_job_claims_nothing_while_a_data_set_is_not_shared_any_more(rolled_back: Connection) -> None:
    db, lease = rolled_back, open_lease(rolled_back)
    shared = dataset("flights", "1", "2") | OWNED
    apply(db, [shared | {"share_with": ["other"]}, dataset("out")], [])
    apply(db, [], [job("make", ["flights"], ["out"], owner="other/make", parallelism=1)])
    (run,) = claim(db, lease, "make")
    apply(db, [shared], [])
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"
    assert claim(db, lease, "make") == []
    assert "flights" in value(db, "SELECT opendataflow.job_status('make') ->> 'sharing'")
    assert "flights" in value(db, "SELECT opendataflow.why('make', '2') ->> 'sharing'")
    with pytest.raises(DatabaseError, match="flights"), db.transaction():
        db.execute("SELECT opendataflow.require_shared('{make}')")
    apply(db, [shared | {"share_with": ["other"]}], [])
    assert [run["data_id"] for run in claim(db, lease, "make")] == ["2"]
    assert problems(db) == []


def test_a_resource_s_limits_are_changed_in_the_resource(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"], owner="team/make")])
    with pytest.raises(DatabaseError, match="job make belongs to the DataFlowJob team/make: change its"):
        rolled_back.execute("SELECT opendataflow.scale_job('make', 3, 'me')")


def test_a_deleted_job_starts_nothing_its_run_ends_well_and_it_goes_on_when_it_is_applied_again(
    rolled_back: Connection,
) -> None:
    db, declared = rolled_back, job("make", [], ["out"], owner="team/make")
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
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"], owner="team/make")])
    rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert apply(rolled_back, [], [job("better", [], ["out"], owner="team/better")]) == ["better"]


def test_deleting_twice_changes_nothing(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("out", "1")], [job("make", [], ["out"])])
    for _ in range(2):
        rolled_back.execute("SELECT opendataflow.delete_job('make', 'test')")
    assert (
        value(rolled_back, "SELECT count(*) FROM opendataflow.history WHERE kind = 'job' AND to_state = 'deleted'") == 1
    )


def test_a_data_set_whose_resource_is_gone_keeps_its_chunks_and_can_be_declared_by_another_one(
    rolled_back: Connection,
) -> None:
    apply(rolled_back, [dataset("out", "1") | OWNED], [])
    rolled_back.execute("SELECT opendataflow.disown_dataset('out', 'team/flights')")
    apply(rolled_back, [dataset("out") | {"owner": "other/flights"}], [])
    assert chunks(rolled_back) == {"out/1": "READY"}
