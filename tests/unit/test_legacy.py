"""What is taken over from the rows of the framework that came before, and what is not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from opendataflow.core.status.legacy_import import OldChunk, OldRows, Running, old_state
from opendataflow.errors import InvalidInput

EARLIER, LATER = datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC)


def status(data_id: str, state: str, **changes: Any) -> dict[str, Any]:
    row = {"datasetid": "a", "jobid": "j", "dataid": data_id, "locktype": "OUT", "status": state, "modified": EARLIER}
    return {**row, **changes}


def statuses(*rows: dict[str, Any]) -> OldRows:
    return OldRows((), ({"datasetid": "a"},), rows)


def test_the_newest_row_of_a_chunk_counts_whatever_the_order_of_the_rows() -> None:
    rows = [status("1", "READY", jobid="x", modified=LATER), status("1", "FAILED"), status("1", "HOLD", modified=None)]
    for order in (rows, rows[::-1]):
        state = old_state(statuses(*order))
        assert state.chunks == (OldChunk("a", "1", "READY", "x", LATER),)
        assert state.left == ("older rows of chunks that several jobs have a row for: 2",)


@pytest.mark.parametrize(
    ("decision", "expected"),
    [(Running.SKIP, ["READY"]), (Running.FAILED, ["READY", "FAILED"]), (Running.RESUBMIT, ["READY", "RESUBMIT"])],
)
def test_what_becomes_of_running_chunks_is_decided_by_a_person(decision: Running, expected: list[str]) -> None:
    state = old_state(statuses(status("1", "READY"), status("2", "RUNNING"), status("2", "RUNNING", locktype="IN")))
    assert [chunk.data_id for chunk in state.running] == ["2"]
    assert [chunk.status for chunk in state.decided(decision)] == expected


def test_every_row_that_is_wrong_is_reported_at_once() -> None:
    rows = OldRows(
        ({"jobid": None, "itemtype": "IN", "datasetid": "a", "itemvalue": None},),
        ({"datasetid": "a", "hostname": "x"}, {"datasetid": "a", "hostname": "y"}, {"datasetid": ""}),
        (status("1", "DONE"), status("", "READY")),
    )
    with pytest.raises(InvalidInput) as caught:
        old_state(rows)
    assert len(str(caught.value).splitlines()) == 5


def test_an_id_with_a_slash_would_be_one_of_a_namespace_and_is_refused() -> None:
    job = {"jobid": "a/j", "itemtype": "IN", "datasetid": "b/x", "itemvalue": None}
    with pytest.raises(InvalidInput) as caught:
        old_state(OldRows((job,), ({"datasetid": "b/x", "hostname": "h"},), ()))
    assert [line.partition(" has a /")[0] for line in str(caught.value).splitlines()] == ["the id a/j", "the id b/x"]


def test_the_built_in_data_set_is_not_taken_over_but_jobs_that_read_it_are() -> None:
    job = {"jobid": "j", "itemtype": "IN", "datasetid": "today", "itemvalue": None}
    state = old_state(OldRows((job,), ({"datasetid": "today", "hostname": "x"},), ()))
    assert (state.datasets, state.jobs, state.left) == ((), (job,), ())


def test_the_same_data_set_twice_is_one() -> None:
    row = {"datasetid": "a", "hostname": "x"}
    assert old_state(OldRows((), (row, dict(row)), ())).datasets == (("a", {"hostname": "x"}),)
