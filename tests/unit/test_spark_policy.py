"""What may reach pods through Spark: its settings, and the roles of a SparkApplication."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.pods import Container, Operator, PodConfig
from opendataflow.core.kubernetes.policy.pod_security import PodPolicy
from opendataflow.core.kubernetes.policy.spark_policy import judge_application, judge_settings
from opendataflow.core.kubernetes.spark_application import spark_application
from opendataflow.core.runs.environment import JobFacts
from opendataflow.errors import InvalidInput, PolicyViolated
from opendataflow.names import PodProfile
from tests import sparks
from tests.pods import claimed

STRICT = PodPolicy(PodProfile.RESTRICTED, ("spark",))
LAX = PodPolicy(PodProfile.BASELINE, ("spark",))
ANY = PodPolicy(PodProfile.ANY)

SETTINGS = [
    ("spark.kubernetes.namespace", "kube-system"),
    ("spark.kubernetes.context", "other"),
    ("spark.master", "local[1]"),
    ("spark.kubernetes.authenticate.driver.serviceAccountName", "admin"),
    ("spark.kubernetes.authenticate.executor.serviceAccountName", "admin"),
    ("spark.kubernetes.authenticate.serviceAccountName", "admin"),
    ("spark.kubernetes.authenticate.submission.oauthTokenFile", "/var/run/token"),
    ("spark.kubernetes.driver.podTemplateFile", "https://example.org/pod.yaml"),
    ("spark.kubernetes.executor.podTemplateFile", "/tmp/pod.yaml"),
    ("spark.kubernetes.scheduler.volcano.podGroupTemplateFile", "/tmp/group.yaml"),
    ("spark.kubernetes.driver.pod.featureSteps", "org.example.Step"),
    ("spark.kubernetes.executor.pod.featureSteps", "org.example.Step"),
    ("spark.kubernetes.driver.annotation.container.apparmor.security.beta.kubernetes.io/main", "unconfined"),
]
PERMITTED = {
    "spark.sql.shuffle.partitions": "8",
    "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    "spark.kubernetes.executor.volumes.persistentVolumeClaim.data.mount.path": "/data",
    "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path": "/scratch",
    "spark.kubernetes.node.selector.disk": "ssd",
    "spark.kubernetes.driver.annotation.team": "blue",
    "spark.kubernetes.executor.request.cores": "1",
}


def of_settings(settings: dict[str, str], policy: PodPolicy) -> list[str]:
    return [each.field for each in judge_settings(settings, "sparkConf", policy)]


@pytest.mark.parametrize(("name", "value"), SETTINGS, ids=[name for name, _ in SETTINGS])
def test_a_setting_that_moves_or_changes_pods_is_refused_by_name(name: str, value: str) -> None:
    for policy in (STRICT, LAX):
        assert of_settings({**PERMITTED, name: value}, policy) == [f"sparkConf.{name}"]
    assert of_settings({name: value}, ANY) == []


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize(("kind", "refusing"), [("hostPath", [STRICT, LAX]), ("nfs", [STRICT])])
def test_a_volume_of_spark_is_judged_by_its_kind(kind: str, refusing: list[PodPolicy], role: str) -> None:
    written = {f"spark.kubernetes.{role}.volumes.{kind}.data.mount.path": "/data"}
    for policy in (STRICT, LAX):
        field = [f"sparkConf.spark.kubernetes.{role}.volumes.{kind}"]
        assert of_settings(written, policy) == (field if policy in refusing else [])


GOOD = {"type": "Python", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///load.py"}
JOB = JobFacts("load", "local:///load.py", (), (), namespace="team")


def application(**spec: Any) -> dict[str, Any]:
    """Return the spec of a SparkApplication, as it is sent."""
    config = PodConfig(Container(image=""), template={"spec": {**GOOD, **spec}})
    made: dict[str, Any] = spark_application(JOB, claimed(7), {}, config, Operator("e1", "none/operator:1"))["spec"]
    return made


def template(role: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"spark-kubernetes-{role}", **spec.pop("main", {})}, *spec.pop("more", [])]
    return {"template": {"spec": {"containers": containers, **spec}}}


PRIVILEGED = {"securityContext": {"privileged": True}}
ROLES: list[tuple[dict[str, Any], str]] = [
    ({"hostNetwork": True}, "hostNetwork"),
    ({"serviceAccount": "admin"}, "serviceAccount"),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName"),
    ({"podSecurityContext": {"runAsUser": 0}}, "podSecurityContext.runAsUser"),
    (PRIVILEGED, "securityContext.privileged"),
    ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports.hostPort"),
    ({"sidecars": [{"name": "proxy", **PRIVILEGED}]}, "sidecars[proxy].securityContext.privileged"),
    ({"initContainers": [{"name": "a", **PRIVILEGED}]}, "initContainers[a].securityContext.privileged"),
    (
        {"annotations": {"container.apparmor.security.beta.kubernetes.io/x": "unconfined"}},
        "annotations[container.apparmor.security.beta.kubernetes.io/x]",
    ),
]


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize(("written", "field"), ROLES, ids=[field for _, field in ROLES])
def test_a_field_of_a_role_is_judged_as_the_field_of_a_pod(written: dict[str, Any], field: str, role: str) -> None:
    found = judge_application(application(**{role: written}), "spec", STRICT)
    assert [each.field for each in found] == [f"spec.{role}.{field}"]


@pytest.mark.parametrize("role", ["driver", "executor"])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeName": "n1"}, "nodeName"),
        ({"serviceAccountName": "admin"}, "serviceAccountName"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[v].hostPath"),
        ({"more": [{"name": "proxy", **PRIVILEGED}]}, "containers[proxy].securityContext.privileged"),
    ],
)
def test_a_template_of_a_role_is_judged_as_a_pod(spec: dict[str, Any], field: str, role: str) -> None:
    found = judge_application(application(**{role: template(role, **spec)}), "spec", STRICT)
    assert [each.field for each in found] == [f"spec.{role}.template.spec.{field}"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[v].hostPath"),
        ({"sparkConf": {"spark.kubernetes.namespace": "x"}}, "sparkConf.spark.kubernetes.namespace"),
        ({"sparkConfigMap": "settings"}, "sparkConfigMap"),
        ({"batchSchedulerOptions": {"priorityClassName": "system-x"}}, "batchSchedulerOptions.priorityClassName"),
    ],
)
def test_what_an_application_says_for_both_roles_is_judged(spec: dict[str, Any], field: str) -> None:
    assert {each.field for each in judge_application(application(**spec), "spec", STRICT)} == {f"spec.{field}"}
    assert list(judge_application(application(**spec), "spec", ANY)) == []


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"driver": template("driver", more=[{"name": "proxy"}], initContainers=[{"name": "a"}])},
        {"driver": {**template("driver"), "securityContext": {"runAsUser": 5}, "podSecurityContext": {"fsGroup": 5}}},
        {"executor": {"sidecars": [{"name": "proxy"}], "initContainers": [{"name": "a"}], "serviceAccount": "spark"}},
    ],
)
def test_missing_security_contexts_are_filled_in_before_an_application_is_judged(written: dict[str, Any]) -> None:
    assert list(judge_application(application(**written), "spec", STRICT)) == []


def test_a_list_of_containers_that_is_none_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"spec\.driver\.sidecars has to be a list"):
        application(driver={"sidecars": {}})


@pytest.mark.parametrize(
    ("case", "change", "field"),
    [
        ("alone", {"podTemplate": {"spec": {"hostPID": True}}}, "podTemplate.spec.hostPID"),
        (
            "executors",
            {"podTemplate": {"spec": {"serviceAccountName": "admin"}}},
            "podTemplate.spec.serviceAccountName",
        ),
        ("pipeline-git", {"podTemplate": {"spec": {"nodeName": "n1"}}}, "podTemplate.spec.nodeName"),
    ],
)
def test_the_pod_of_every_runtime_is_judged_when_its_job_is_checked(
    case: str, change: dict[str, Any], field: str
) -> None:
    written = sparks.case(case)
    written["job"]["spec"] |= change
    with pytest.raises(PolicyViolated) as caught:
        sparks.orders(written).check(sparks.declared(written))
    assert str(caught.value).startswith(f"{field}: ")


def test_the_settings_and_the_account_of_a_driver_are_judged_by_their_own_fields() -> None:
    written = sparks.case("executors")
    setting = "spark.kubernetes.executor.volumes.hostPath.data.mount.path"
    written["job"]["spec"]["runtime"]["spark"] |= {"serviceAccount": "admin", "sparkConf": {setting: "/data"}}
    with pytest.raises(PolicyViolated) as caught:
        sparks.orders(written).check(sparks.declared(written))
    assert str(caught.value) == (
        "runtime.spark.serviceAccount: only these service accounts are allowed: default, loader, opendataflow-spark "
        "(allowedServiceAccounts); runtime.spark.sparkConf.spark.kubernetes.executor.volumes.hostPath: the pod would "
        "read and write files of its node (the operator's podPolicy is restricted)"
    )
