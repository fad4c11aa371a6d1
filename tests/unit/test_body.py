"""The body of a custom resource, as an API server hands it over, becomes a model or one sentence for each fault."""

from typing import Any

import pytest

from opendataflow.errors import InvalidInput
from opendataflow.model.body import resource_of
from opendataflow.model.resources import DataFlowAction, DataFlowJob, DataSet
from opendataflow.names import API_VERSION


def body(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "team", "uid": "1", "generation": 2, "managedFields": [], **metadata},
        "spec": spec,
        "status": {"state": "Running"},
    }


JOB: dict[str, Any] = {"inputs": ["a"], "runtime": {"script": {"image": "busybox"}}}


def test_every_kind_is_read() -> None:
    assert isinstance(resource_of(body("DataFlowJob", JOB)), DataFlowJob)
    assert isinstance(resource_of(body("DataSet", {})), DataSet)
    action = resource_of(body("DataFlowAction", {"job": "j", "action": "hold", "chunks": ["a"]}))
    assert isinstance(action, DataFlowAction)
    assert action.spec.ttl_seconds == 7 * 24 * 3600


def test_fields_of_a_newer_version_are_passed_over() -> None:
    read = resource_of(body("DataFlowJob", {**JOB, "fromTheFuture": 1, "retry": {"new": True, "limit": 7}}))
    assert isinstance(read, DataFlowJob)
    assert read.spec.retry.limit == 7


def test_on_a_cluster_a_script_may_run_the_entry_point_of_its_image() -> None:
    read = resource_of(body("DataFlowJob", JOB))
    assert isinstance(read, DataFlowJob)
    assert read.spec.runtime.script is not None
    assert read.spec.runtime.script.command == ()


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        (
            "DataFlowJob",
            {**JOB, "runtime": {"script": {"command": ["a"]}}},
            "spec.runtime.script.image: a cluster runs containers; write the image",
        ),
        (
            "DataFlowJob",
            {**JOB, "runtime": {"script": {"image": "a", "workingDirectory": "b"}}},
            "spec.runtime.script.workingDirectory: in a container the working directory is an absolute path",
        ),
        (
            "DataFlowJob",
            {**JOB, "retry": {"limit": 1.5, "backoff": {"initial": "1d"}}},
            (
                "spec.retry.limit: a whole number is wanted, found 1.5\n"
                'spec.retry.backoff.initial: a duration is hours, minutes and seconds like "90s", "5m" or "1h30m", '
                'found "1d"'
            ),
        ),
        (
            "DataSet",
            {"credentials": {"encryptedPassword": "hunter2"}},
            "spec.credentials: on a cluster the passkey comes from a Secret; write passkeySecretRef",
        ),
        (
            "DataFlowAction",
            {"job": "j", "action": "publish", "chunks": ["a"]},
            "spec.action: publish, accept and reject are asked of a data set",
        ),
    ],
)
def test_each_fault_is_a_sentence(kind: str, spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        resource_of(body(kind, spec))
    assert str(caught.value) == sentence
