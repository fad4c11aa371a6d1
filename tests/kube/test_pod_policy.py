"""What the pods of a job may ask for: as the API server judges pods, and what the author of a job sees."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.policy.pod_security import PodPolicy, judge_pod_security
from opendataflow.names import ConditionType, PodProfile, Reason
from tests.kube.cluster.api import Api, Refused
from tests.kube.jobs import dataset, job
from tests.kube.scene import Scene
from tests.pod_specs import CASES
from tests.waiting import wait_until

HOST = {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}


@pytest.mark.parametrize("profile", [PodProfile.RESTRICTED, PodProfile.BASELINE])
def test_the_api_server_permits_the_same_pods(profile: PodProfile, cluster: Api, namespace: str) -> None:
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": profile.value}}}
    cluster.patch(f"/api/v1/namespaces/{namespace}", strict)
    answers = {case.name: permitted(cluster, namespace, case.manifest()) for case in CASES}
    theirs = {name: answer for name, answer in answers.items() if answer is not None}
    ours = {case.name: not judge_pod_security(case.manifest(), PodPolicy(profile)) for case in CASES}
    assert theirs == {name: ours[name] for name in theirs}
    assert len(theirs) > len(CASES) * 3 / 4


def permitted(api: Api, namespace: str, manifest: dict[str, Any]) -> bool | None:
    """Whether the admission of the API server permits a pod; None if its features or settings do not know the pod."""
    try:
        api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", manifest)
    except Refused as error:
        return False if "violates PodSecurity" in str(error) else None
    return True


def stalled(scene: Scene, name: str, **spec: Any) -> str:
    """Apply a job; return the message of its condition. None removes a field."""
    made = job(name, [f"{name}-in"], [f"{name}-out"], **spec)
    made["spec"] = {field: value for field, value in made["spec"].items() if value is not None}
    scene.apply(dataset(f"{name}-in", 1), dataset(f"{name}-out"), made)
    message = scene.sees(name, ConditionType.STALLED, "True", Reason.POD_POLICY)
    scene.until_event(name, Reason.POD_POLICY)
    return message


def test_a_job_that_asks_for_too_much_starts_nothing_and_names_the_field(scene: Scene) -> None:
    scene.start()
    spark = {"mainApplicationFile": "local:///load.py", "serviceAccount": "admin", "executor": {"instances": 1}}
    application = {"type": "Python", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///load.py"}
    template = {"spec": {**application, "driver": {"template": {"spec": {"nodeName": "n1"}}}}}
    expected: dict[str, tuple[dict[str, Any], str]] = {
        "script": ({"podTemplate": {"spec": HOST}}, "podTemplate.spec.volumes[node].hostPath: "),
        "spark": ({"runtime": {"spark": spark}, "podTemplate": {}}, "runtime.spark.serviceAccount: "),
        "application": (
            {"runtime": {"sparkApplication": {"template": template}}, "podTemplate": None},
            "runtime.sparkApplication.template.spec.driver.template.spec.nodeName: ",
        ),
    }
    for name, (spec, beginning) in expected.items():
        message = stalled(scene, name, **spec)
        assert message.startswith(beginning)
        assert message.endswith("(the operator's podPolicy is restricted)")
        assert scene.tasks(name)[0]["state"] == "QUEUED"
        assert scene.runs(name) == []
    scene.patch("script", podTemplate={"spec": None})
    scene.until_done("script", 1)


def test_a_job_that_asks_for_too_much_runs_if_the_administrator_permits_everything(scene: Scene) -> None:
    scene.start(DATAFLOW_POD_POLICY="any")
    scene.flow("load", 1, podTemplate={"spec": HOST})
    scene.until_done("load", 1)


def test_a_changed_policy_stops_the_next_runs_of_a_job_and_not_those_that_have_started(scene: Scene) -> None:
    before = scene.start(DATAFLOW_POD_POLICY="any")
    scene.flow("load", 2, {"run-seconds": "forever"}, parallelism=1)
    scene.running("load")
    scene.patch("load", podTemplate={"spec": HOST})
    before.operator.stop()
    scene.start()
    message = scene.sees("load", ConditionType.STALLED, "True", Reason.POD_POLICY)
    assert message.startswith("podTemplate.spec.volumes[node].hostPath: ")
    wait_until(lambda: len(scene.pods("load")) == 1, "the run continues, and no other starts")


def test_no_job_runs_in_the_namespace_of_the_operator(own_scene: Scene) -> None:
    own_scene.start(DATAFLOW_NAMESPACES="", POD_NAMESPACE=own_scene.namespace)
    message = stalled(own_scene, "load")
    assert message.startswith("metadata.namespace: ")
    assert own_scene.runs("load") == []
