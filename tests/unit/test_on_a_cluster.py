"""The same models, for a cluster: what is needed there and not on one machine, and the other way round."""

from typing import Any

import pytest
from pydantic import ValidationError

from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.resources.api import DataFlowAction, DataFlowJob
from opendataflow.model.resources.crd import KINDS
from opendataflow.names import API_VERSION

MODELS = {kind.name: kind.model for kind in KINDS}
JOB: dict[str, Any] = {"inputs": ["a"], "runtime": {"script": {"image": "busybox"}}}


def body(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "x", "namespace": "team"}, "spec": spec}


def refusal(kind: str, spec: dict[str, Any], context: dict[str, Any] | None) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        MODELS[kind].model_validate(body(kind, spec), context=context)
    return sentences(MODELS[kind], caught.value)


def test_a_script_may_run_the_entry_point_of_its_image_there_only() -> None:
    read = DataFlowJob.model_validate(body("DataFlowJob", JOB), context=CLUSTER_CONTEXT)
    assert read.spec.runtime.script is not None
    assert read.spec.runtime.script.command == ()
    assert refusal("DataFlowJob", JOB, None) == ["spec.runtime.script.command: this field is needed"]


def test_an_action_is_kept_for_a_week() -> None:
    written = body("DataFlowAction", {"job": "j", "action": "hold", "chunks": ["a"]})
    assert DataFlowAction.model_validate(written).spec.ttl_seconds == 7 * 24 * 3600


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        (
            "DataFlowJob",
            {"inputs": ["a"], "runtime": {"script": {"command": ["a"]}}},
            "spec.runtime.script.image: a cluster runs containers; write the image",
        ),
        (
            "DataFlowJob",
            {"inputs": ["a"], "runtime": {"script": {"command": ["a"], "image": "a", "workingDirectory": "b"}}},
            "spec.runtime.script.workingDirectory: in a container the working directory is an absolute path",
        ),
        (
            "DataSet",
            {"credentials": {"encryptedPassword": "hunter2"}},
            "spec.credentials: on a cluster the passkey comes from a Secret; write passkeySecretRef",
        ),
    ],
)
def test_what_a_cluster_needs_is_no_fault_on_one_machine(kind: str, spec: dict[str, Any], sentence: str) -> None:
    assert refusal(kind, spec, CLUSTER_CONTEXT) == [sentence]
    MODELS[kind].model_validate(body(kind, spec))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"job": "j", "chunks": ["a"]}, "spec.action: this field is needed"),
        ({"action": "hold", "chunks": ["a"]}, "spec: exactly one of job, dataset is wanted, found none"),
        ({"job": "j", "action": "hold"}, "spec: exactly one of chunks, range, status and stale is wanted"),
        ({"job": "j", "action": "hold", "range": {}}, "spec.range: from, to or both are wanted"),
        (
            {"job": "j", "action": "publish", "chunks": ["a"]},
            "spec.action: publish, accept and reject are asked of a data set",
        ),
        ({"dataset": "d", "action": "skip", "chunks": ["a"]}, "spec.action: skip, force and cancel are asked of a job"),
        (
            {"job": "j", "action": "hold", "status": "READY"},
            "spec.status: READY is a status of chunks: for the tasks of a job, write QUEUED",
        ),
        (
            {"job": "j", "action": "hold", "status": "PENDING"},
            (
                "spec.status: tasks of a job are never in this state, but WAITING, QUEUED, RUNNING, RETRYING, DONE, "
                "FAILED, HELD, SKIPPED"
            ),
        ),
        (
            {"dataset": "d", "action": "hold", "status": "DONE"},
            (
                "spec.status: chunks of a data set are never in this state, but DECLARED, READY, RUNNING, FAILED, "
                "RESUBMIT, HOLD, PENDING"
            ),
        ),
        ({"job": "j", "action": "hold", "chunks": ["a"], "cascade": True}, "spec.cascade: only resubmit has a cascade"),
        ({"job": "j", "action": "hold", "stale": True}, "spec.stale: only resubmit makes stale chunks again"),
    ],
)
def test_a_fault_of_an_action_is_one_sentence_with_its_place(spec: dict[str, Any], sentence: str) -> None:
    assert refusal("DataFlowAction", spec, CLUSTER_CONTEXT) == [sentence]
