"""What users wrote, as rows: every key is a column, nothing that is executed is among them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opendataflow.core.runs.declared import (
    dataset_row,
    fields_digest,
    job_row,
    links,
    spec_digest,
    spec_text,
    starts_same_runs,
)
from opendataflow.core.runs.graph import JobLinks
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.api import DataFlowJob, DataSet
from opendataflow.names import API_VERSION

TABLES = Path(__file__).parents[2] / "sql" / "schema" / "tables.sql"


def columns(table: str) -> set[str]:
    text = TABLES.read_text("utf-8")
    body = text[text.index(f"CREATE TABLE opendataflow.{table} (") :]
    return set(re.findall(r"^    ([a-z_]+)\s", body[: body.index("\n)")], re.MULTILINE))


def dataset(name: str = "flights", **spec: Any) -> DataSet:
    return DataSet.model_validate(
        {"apiVersion": API_VERSION, "kind": "DataSet", "metadata": {"name": name}, "spec": spec}
    )


def job(name: str = "load", **spec: Any) -> DataFlowJob:
    whole = {"inputs": ["a"], "outputs": ["b"], "runtime": {"script": {"command": ["./secret-script.sh"]}}, **spec}
    return DataFlowJob.model_validate(
        {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": name}, "spec": whole}
    )


def test_the_keys_of_a_data_set_are_its_columns_and_its_chunks() -> None:
    assert set(dataset_row(dataset())) - {"chunks"} <= columns("dataset")


def test_the_keys_of_a_job_are_its_columns_and_its_links() -> None:
    assert set(job_row(job())) - {"inputs", "outputs", "env", "tests"} <= columns("job")


def test_a_data_set_keeps_what_is_written_of_its_place() -> None:
    row = dataset_row(
        dataset(
            location={"kind": "postgres", "hostname": "h", "username": "u", "options": {"fetchsize": "10"}},
            credentials={"encryptedPassword": "lmibu"},
        )
    )
    assert (row["id"], row["kind"], row["hostname"], row["username"]) == ("flights", "postgres", "h", "u")
    assert row["encryptedpass"] == "lmibu"
    assert row["options"] == {"fetchsize": "10"}
    assert (row["tablename"], row["url"], row["partitioning"]) == (None, None, None)


def test_the_id_counts_and_not_the_name() -> None:
    assert dataset_row(dataset("flights", id="dwh.flights"))["id"] == "dwh.flights"
    assert job_row(job("load", id="dwh.load"))["id"] == "dwh.load"


def test_chunks_come_with_their_bounds() -> None:
    row = dataset_row(dataset(chunkSource={"range": {"from": 0, "to": 15, "step": 10}}))
    assert row["chunks"] == [
        {"id": "0-9", "bounds": {"from": 0, "to": 10}},
        {"id": "10-14", "bounds": {"from": 10, "to": 15}},
    ]


def test_listed_chunks_have_no_bounds() -> None:
    assert dataset_row(dataset(chunkSource={"list": ["x"]}))["chunks"] == [{"id": "x", "bounds": None}]


def test_without_a_chunk_source_there_are_no_chunks() -> None:
    assert dataset_row(dataset())["chunks"] == []


def test_a_job_keeps_its_limits() -> None:
    row = job_row(
        job(
            parallelism=7,
            priority=-1,
            suspend=True,
            order="descending",
            chunks={"from": "1", "to": "9"},
            retry={"limit": 4, "infrastructureLimit": 6, "backoff": {"initial": "5s", "factor": 3.0, "max": "1m"}},
            runDeadline="2h",
            env={"MODE": "full"},
        )
    )
    assert row == {
        "id": "load",
        "parallelism": 7,
        "priority": -1,
        "suspended": True,
        "descending": True,
        "chunk_from": "1",
        "chunk_to": "9",
        "retry_limit": 4,
        "infrastructure_limit": 6,
        "backoff_initial": 5.0,
        "backoff_factor": 3.0,
        "backoff_maximum": 60.0,
        "run_deadline": 7200.0,
        "cancel_on_delete": False,
        "pipeline": None,
        "inputs": ["a"],
        "outputs": ["b"],
        "env": {"MODE": "full"},
        "tests": None,
    }


def test_a_job_that_says_little_has_the_documented_defaults() -> None:
    row = job_row(job())
    assert (row["parallelism"], row["priority"], row["suspended"], row["descending"]) == (1, 0, False, False)
    assert (row["chunk_from"], row["chunk_to"], row["run_deadline"]) == (None, None, None)
    assert (row["retry_limit"], row["infrastructure_limit"]) == (2, 5)
    assert (row["backoff_initial"], row["backoff_factor"], row["backoff_maximum"]) == (10.0, 2.0, 600.0)


def test_what_is_executed_is_not_stored() -> None:
    assert "secret-script" not in str(job_row(job()))


def test_two_data_sets_that_would_set_one_variable_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the data set a-b and the data set a\.b both set the variable a_b_"):
        job_row(job(inputs=["a-b", "a.b"]))


def test_the_links_of_a_job_are_read_from_a_row() -> None:
    assert links({"job": "j", "inputs": ["a"], "outputs": ["b", "c"]}) == JobLinks("j", ("a",), ("b", "c"))


def test_the_text_of_a_spec_has_its_digest_and_makes_the_same_job() -> None:
    before = job(env={"A": "ü", "B": "2"}, podTemplate={"spec": {"nodeSelector": None, "volumes": [{"a": 1.5}]}})
    spec = json.loads(spec_text(before))
    assert fields_digest(spec) == spec_digest(before)
    assert job(**spec) == before


def test_the_text_of_a_spec_has_neither_requests_nor_consents_and_no_order() -> None:
    one = job(env={"A": "1", "B": "2"}, resubmit={"id": "x", "failed": True}, allow={"change": "0123"})
    other = job(env={"B": "2", "A": "1"})
    assert (spec_text(one), spec_digest(one)) == (spec_text(other), spec_digest(other))


def test_the_digest_differs_in_one_half_only_if_the_limits_change() -> None:
    slow, fast, other = (spec_digest(job(**spec)) for spec in ({}, {"parallelism": 9}, {"env": {"A": "1"}}))
    assert starts_same_runs(slow, fast)
    assert not starts_same_runs(slow, other)
    assert len({slow, fast, other}) == 3
