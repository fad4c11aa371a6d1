"""Statuses are small at any number of chunks, and never refused for their length."""

import json
from datetime import UTC, datetime

from opendataflow.model.resources.statuses import (
    Condition,
    DataFlowJobStatus,
    DataSetStatus,
    Failure,
    Gap,
    SharedInput,
    TaskCounts,
)

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def test_the_largest_status_is_smaller_than_32_kib() -> None:
    most, word = 2**53, "x" * 10_000
    condition = Condition(type="Ready", status="False", last_transition_time=NOON, reason=word, message=word)
    failure = Failure(data_id=word, run=most, message=word, at=NOON, forced=True)
    counts = TaskCounts(**dict.fromkeys(TaskCounts.model_fields, most))
    job = DataFlowJobStatus(
        conditions=(condition,) * 10,
        state=word,
        counts=counts,
        watermark=word,
        last_failures=(failure,) * 10,
        shared_inputs=(SharedInput(dataset=word, location=word, hash=word),) * 5,
    )
    gaps = (Gap(start=word, end=word, chunks=most),) * 10
    for status in (job, DataSetStatus(conditions=(condition,) * 10, watermark=word, gaps=gaps)):
        assert len(json.dumps(status.body())) < 32 * 1024


def test_a_body_has_the_names_of_yaml_and_nothing_that_is_not_known() -> None:
    status = DataFlowJobStatus(observed_generation=3, counts=TaskCounts(total=2), rate=1.5)
    assert status.body() == {
        "observedGeneration": 3,
        "conditions": [],
        "counts": dict.fromkeys(TaskCounts.model_fields, 0) | {"total": 2},
        "rate": 1.5,
        "lastFailures": [],
        "sharedInputs": [],
        "replicas": 0,
    }


def test_more_runs_than_an_api_server_counts_are_the_most_that_it_counts() -> None:
    assert DataFlowJobStatus(replicas=2**40).replicas == 2**31 - 1


def test_times_are_written_in_utc() -> None:
    assert Failure(data_id="a", run=1, message="", at=NOON).body()["at"] == "2026-11-28T12:00:00Z"
