"""The status of a data set says what is there of it."""

import json
from datetime import UTC, datetime

import pytest

from opendataflow.core.status.conditions import Fault
from opendataflow.core.status.dataset_state import ObservedDataSet, dataset_status
from tests.kstatus import kstatus

NOW = datetime(2026, 11, 28, 10, 0, tzinfo=UTC)
FOUND = {
    "counts": {"READY": 5, "DECLARED": 2},
    "watermark": "3",
    "gaps": [{"from": "4", "to": "5", "chunks": 2}],
}


def test_figures() -> None:
    status = dataset_status(ObservedDataSet(1, 1, found=FOUND), NOW).body()
    assert status["counts"]["total"] == 7
    assert (status["progress"], status["watermark"]) == ("5/7", "3")
    assert status["gaps"] == [{"from": "4", "to": "5", "chunks": 2}]


def test_figures_stay_where_nothing_new_is_known() -> None:
    before = dataset_status(ObservedDataSet(1, 1, found=FOUND), NOW).body()
    assert dataset_status(ObservedDataSet(1, 1, before=before), NOW).body() == before


@pytest.mark.parametrize(
    ("verdict", "these"),
    [
        ("Current", ObservedDataSet(2, 2, found=FOUND)),
        ("InProgress", ObservedDataSet(1)),
        ("InProgress", ObservedDataSet(3, 2, found=FOUND)),
        ("InProgress", ObservedDataSet(2, 2, unreachable="Postgres at db does not answer")),
        ("Failed", ObservedDataSet(1, fault=Fault("IdTaken", "bookings belongs to other/bookings"))),
    ],
)
def test_tools_that_go_by_kstatus_see_what_is_so(verdict: str, these: ObservedDataSet) -> None:
    assert kstatus(these.generation, dataset_status(these, NOW).body()) == verdict


def test_a_status_full_of_the_longest_texts_is_below_32_kib() -> None:
    text = "\x01" * 5000
    gap = {"from": text, "to": text, "chunks": 2**53}
    these = ObservedDataSet(
        1,
        1,
        fault=Fault("IdTaken", text),
        unreachable=text,
        found={"counts": {}, "watermark": text, "gaps": [gap] * 20},
    )
    body = dataset_status(these, NOW).body()
    assert len(json.dumps(body, ensure_ascii=False).encode()) < 32 * 1024
