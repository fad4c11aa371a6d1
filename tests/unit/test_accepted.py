"""The accepted spec in a status is used only if it is the one that Postgres has recorded, whatever the status says."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.control.resources.accepted import accepted_job, accepted_text
from opendataflow.control.resources.bodies import parse_entry
from opendataflow.control.resources.catalog import Key
from opendataflow.core.runs.declared import fields_digest, spec_digest, spec_text
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.model.resources.statuses import LONGEST_SPEC

KEY = Key("DataFlowJob", "team", "load")
SPEC = {
    "inputs": ["raw"],
    "outputs": ["clean"],
    "runtime": {"script": {"image": "etl:1", "command": ["./etl"], "resources": {"requests": {"cpu": 2}}}},
    "retry": {"backoff": {"factor": 2}},
    "podTemplate": {"spec": {"volumes": [{"name": "a", "emptyDir": None}]}},
}


def parsed(**changed: Any) -> DataFlowJob:
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    model = parse_entry("DataFlowJob", {"metadata": metadata, "spec": SPEC | changed}).model
    assert isinstance(model, DataFlowJob)
    return model


JOB = parsed()
TEXT, DIGEST = spec_text(JOB), spec_digest(JOB)


def refusal(text: object, declared_as: str = DIGEST) -> str:
    with pytest.raises(InvalidInput) as refused:
        accepted_job(KEY, {} if text is None else {"acceptedSpec": text}, declared_as)
    return str(refused.value)


def test_the_text_of_a_job_is_read_as_the_same_job() -> None:
    assert accepted_job(KEY, {"acceptedSpec": TEXT}, DIGEST) == JOB


def test_a_consent_and_a_request_are_not_in_it() -> None:
    asked = parsed(resubmit={"id": "x", "failed": True}, allow={"change": "0123"})
    assert accepted_job(KEY, {"acceptedSpec": spec_text(asked)}, DIGEST) == JOB


def test_a_missing_text_is_named() -> None:
    assert refusal(None) == "status.acceptedSpec is missing (a spec of more than 65536 characters is left out)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        '"text"',
        "[]",
        "[" * LONGEST_SPEC,
        '{"a":' * (LONGEST_SPEC // 5),
        "9" * LONGEST_SPEC,
        " " * LONGEST_SPEC + TEXT,
        {"inputs": ["raw"]},
        7,
    ],
    ids=range(11),
)
def test_a_damaged_text_is_refused_in_one_sentence(text: object) -> None:
    assert refusal(text) == f"status.acceptedSpec is not a JSON object of at most {LONGEST_SPEC} characters"


@pytest.mark.parametrize(
    "text",
    [
        spec_text(parsed(env={"A": "forged"})),
        spec_text(parsed(parallelism=1000)),
        TEXT[:-1] + ',"resubmit":{"id":"x","failed":true}}',
        TEXT[:-1] + ',"outputs":["theirs"]}',
        "{}",
        '{"runtime":NaN}',
        '{"\\ud800":1}',
    ],
    ids=["program", "limit", "request", "twice", "empty", "nan", "surrogate"],
)
def test_another_spec_is_not_trusted(text: str) -> None:
    assert refusal(text) == "status.acceptedSpec is not the spec that was accepted last"


def test_a_text_of_another_version_is_compared_by_its_fields_and_not_by_those_of_this_version() -> None:
    older = json.loads(TEXT)
    del older["keepLog"]  # a field that the version before did not have
    assert accepted_job(KEY, {"acceptedSpec": json.dumps(older)}, fields_digest(older)) == JOB
    assert accepted_text(JOB, fields_digest(older)) is None  # the status keeps the older text
    assert accepted_text(JOB, DIGEST) == TEXT


def test_a_spec_that_this_version_does_not_accept_any_more_is_named() -> None:
    older = json.loads(TEXT) | {"order": "sideways"}
    output = refusal(json.dumps(older), fields_digest(older))
    assert output.startswith("this version does not accept status.acceptedSpec: spec.order: ")


@given(st.text(max_size=200) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps) | st.integers())
@settings(max_examples=200)
def test_whatever_is_in_the_status_is_refused_by_a_sentence(text: object) -> None:
    assert refusal(text).startswith("status.acceptedSpec is not ")
