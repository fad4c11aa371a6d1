"""Declarations of many chunks: rows without a list, statuses that are not complete, and shares that take turns."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from opendataflow.control.resources.catalog import KeyQueue
from opendataflow.core.runs.declared import MANY_CHUNKS, dataset_row
from opendataflow.core.status.conditions import condition
from opendataflow.core.status.dataset_state import ObservedDataSet, dataset_status
from opendataflow.core.status.status_events import status_events
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.statuses import DataSetStatus
from opendataflow.names import ConditionType
from opendataflow.settings import read_operator_settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS: dict[str, Any] = {"counts": {"READY": 10}, "watermark": None, "gaps": []}


def data_set(chunks: int) -> DataSet:
    source = {"range": {"from": 0, "to": chunks, "step": 1}}
    body = {"apiVersion": "opendataflow.io/v1alpha1", "kind": "DataSet", "metadata": {"name": "d"}}
    return DataSet.model_validate({**body, "spec": {"chunkSource": source}})


def test_a_long_chunk_source_is_a_rule_and_no_list() -> None:
    row = dataset_row(data_set(MANY_CHUNKS + 1))
    assert row["source"] == {"range": {"from": 0, "to": MANY_CHUNKS + 1, "step": 1}}
    assert "chunks" not in row


def test_a_short_chunk_source_is_a_list() -> None:
    row = dataset_row(data_set(2))
    assert [chunk["id"] for chunk in row["chunks"]] == ["0-0", "1-1"]
    assert "source" not in row


def shown(status: DataSetStatus, kind: ConditionType) -> tuple[str, str, str]:
    found = condition(status.conditions, kind)
    return ("", "", "") if found is None else (found.status, found.reason, found.message)


@pytest.mark.parametrize(
    ("facts", "ready", "progressing"),
    [
        (
            {"declaring": True, "found": {**COUNTS, "declaring": {"declared": 10, "total": 30}}},
            ("False", "Declaring", "declaring 10 of 30 chunks"),
            ("True", "Declaring", "declaring 10 of 30 chunks"),
        ),
        (
            {"declaring": True},
            ("False", "Declaring", "declaring its chunks"),
            ("True", "Declaring", "declaring its chunks"),
        ),
        ({"declaring": False}, ("True", "TakenOver", ""), ("False", "Declared", "")),
        ({"declaring": None}, ("Unknown", "NotTakenOver", ""), ("Unknown", "NotTakenOver", "")),
    ],
)
def test_a_data_set_is_ready_when_all_its_chunks_are_declared(
    facts: dict[str, Any], ready: tuple[str, str, str], progressing: tuple[str, str, str]
) -> None:
    status = dataset_status(ObservedDataSet(generation=1, accepted=1, **facts), NOW)
    assert shown(status, ConditionType.READY) == ready
    assert shown(status, ConditionType.PROGRESSING) == progressing


def test_the_progress_of_a_data_set_does_not_look_complete_while_chunks_follow() -> None:
    found = {**COUNTS, "declaring": {"declared": 10, "total": 30}}
    status = dataset_status(ObservedDataSet(generation=1, accepted=1, declaring=True, found=found), NOW)
    assert status.progress == "10/10, declaring"
    assert status.watermark is None


def test_a_data_set_is_accepted_by_an_event_when_its_last_chunk_is_declared() -> None:
    declaring = dataset_status(ObservedDataSet(generation=1, accepted=1, declaring=True), NOW)
    declared = dataset_status(ObservedDataSet(generation=1, accepted=1, before=declaring.body()), NOW)
    assert status_events({}, declaring) == []
    assert [event.reason for event in status_events(declaring.body(), declared)] == ["Accepted"]


async def test_shares_of_a_queue_take_turns_and_each_keeps_its_order() -> None:
    queue: KeyQueue[str] = KeyQueue(lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "a1", "b2", "c1"):
        queue.put(key)
    assert len(queue) == 6
    assert [await queue.get() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put("d1")
    assert await waiting == "d1"


def test_the_limits_of_a_namespace_are_settings() -> None:
    names = ("CHUNKS", "JOBS", "DATA_SETS")
    given = {f"DATAFLOW_MAX_{name}_PER_NAMESPACE": str(n) for n, name in enumerate(names)}
    settings = read_operator_settings(given | {"DATAFLOW_MAX_ROWS_PER_CHANGE": "3"})
    assert (settings.chunks_per_namespace, settings.rows_per_change) == (None, 3)
    assert (settings.jobs_per_namespace, settings.data_sets_per_namespace) == (1, 2)
