"""The SparkApplication of a run: YAML in, YAML out; and what users may not write about theirs."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow import names
from opendataflow.core.kubernetes.pods import Container, Operator, Password, PodConfig, SecretKey, run_pod
from opendataflow.core.kubernetes.spark_application import check_application, spark_application
from opendataflow.core.runs.environment import JobFacts
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Host
from tests.pods import NONCE

CASES = Path(__file__).parent / "data" / "applications"
OPERATOR = Operator(engine="0123456789ab", image="example.org/opendataflow:1")
MAIN = Container(image="")


def made(case: dict[str, Any], make: Any = spark_application) -> dict[str, Any]:
    job = JobFacts(**{**case["job"], "inputs": tuple(case["job"]["inputs"]), "outputs": tuple(case["job"]["outputs"])})
    datasets = {each["id"]: DataSetFacts(**each) for each in case["datasets"]}
    written = case["config"]
    passwords = {
        name: Password(SecretKey(**each["secret"]) if "secret" in each else None, each.get("sealed"))
        for name, each in written.get("passwords", {}).items()
    }
    config = PodConfig(**{**written, "main": MAIN, "passwords": passwords})
    host = Host("kubernetes", "")
    run = case["run"]
    counters = (run["fence"], run["attempt"], 0, 0)
    claimed = ClaimedRun(run["run"], "load", run["data_id"], *counters, {}, "lease", host, "", NONCE)
    result: dict[str, Any] = make(job, claimed, datasets, config, OPERATOR)
    return result


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.yaml") if "." not in path.stem))
def test_an_application_is_made_as_it_is_written_down(name: str) -> None:
    case = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    before = copy.deepcopy(case)
    assert made(case) == yaml.safe_load((CASES / f"{name}.manifest.yaml").read_text())
    assert case == before


def test_driver_and_executors_have_the_variables_of_every_run_s_pod() -> None:
    case = yaml.safe_load((CASES / "fields.yaml").read_text())
    spec = made(case)["spec"]
    case["config"].pop("template")
    expected = made(case, run_pod)["spec"]["containers"][0]["env"]
    assert spec["driver"]["env"][: len(expected)] == expected
    assert spec["executor"]["env"] == expected


def test_nothing_that_a_pod_of_a_run_is_known_by_is_handed_on_to_executors() -> None:
    application = made(yaml.safe_load((CASES / "fields.yaml").read_text()))
    handed_on = {**application["metadata"]["labels"], **application["spec"]["executor"].get("labels", {})}
    assert not handed_on.keys() & {names.LABEL_RUN, names.LABEL_ENGINE, names.LABEL_JOB}


# What can't be written ---------------------------------------------------------------------------------------

JOB = JobFacts("load", "local:///load.py", ("in",), (), env={"MODE": "full"}, namespace="team")
GOOD = {"type": "Python", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///load.py"}
SPEC = "runtime.sparkApplication.template.spec"
PLAIN = (
    "can't be set: a password is never written in plain text; give it to driver and executor as a variable from a "
    "Secret (env), or with the credentials of a data set"
)
OURS = "opendataflow.io/run is the framework's; choose another name"


def container(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "spark-kubernetes-driver", **fields}]}}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mainApplicationFile": None}, f"{SPEC}.mainApplicationFile: this field is needed"),
    ({"type": None}, f"{SPEC}.type: this field is needed"),
    ({"sparkVersion": None}, f"{SPEC}.sparkVersion: this field is needed"),
    (
        {"schedule": "@daily"},
        f"{SPEC}.schedule can't be set: that is a ScheduledSparkApplication; a job runs when its chunks are ready",
    ),
    ({"suspend": True}, f"{SPEC}.suspend can't be set: write the job's suspend"),
    ({"mode": "client"}, f"{SPEC}.mode can only be cluster: the driver has to be a pod"),
    (
        {"restartPolicy": {"type": "OnFailure"}},
        f"{SPEC}.restartPolicy can only be Never: the job's retry says how often a chunk is tried",
    ),
    ({"restartPolicy": "Never"}, f"{SPEC}.restartPolicy has to be an object"),
    ({"driver": {"podName": "mine"}}, f"{SPEC}.driver.podName can't be set: each run has a driver of its own"),
    ({"driver": []}, f"{SPEC}.driver has to be an object"),
    ({"driver": {"env": {}}}, f"{SPEC}.driver.env has to be a list"),
    ({"driver": {"env": [{"value": "x"}]}}, f"{SPEC}.driver.env[0] has no name; it identifies the item"),
    (
        {"sparkConf": {"spark.kubernetes.driver.pod.name": "x"}},
        f"{SPEC}.sparkConf: spark.kubernetes.driver.pod.name can't be set: each run has a driver of its own",
    ),
    (
        {"sparkConf": {"spark.kubernetes.driverEnv.dataid": "x"}},
        f"{SPEC}.sparkConf: the framework sets the variable dataid; choose another name",
    ),
    (
        {"sparkConf": {"spark.executorEnv.MODE": "x"}},
        f"{SPEC}.sparkConf: the env item MODE sets the variable MODE; choose another name",
    ),
    (
        {"sparkConf": {"spark.kubernetes.executor.secretKeyRef.in_password": "a:b"}},
        f"{SPEC}.sparkConf: the data set in sets the variable in_password; choose another name",
    ),
    (
        {"sparkConf": {"spark.hadoop.fs.s3a.secret.key": "x"}},
        f"{SPEC}.sparkConf: spark.hadoop.fs.s3a.secret.key {PLAIN}",
    ),
    (
        {"sparkConf": {"spark.kubernetes.driverEnv.DB_PASSWORD": "x"}},
        f"{SPEC}.sparkConf: spark.kubernetes.driverEnv.DB_PASSWORD {PLAIN}",
    ),
    ({"hadoopConf": {"fs.s3a.secret.key": "x"}}, f"{SPEC}.hadoopConf: fs.s3a.secret.key {PLAIN}"),
    ({"sparkConf": {f"spark.kubernetes.driver.label.{names.LABEL_RUN}": "7"}}, f"{SPEC}.sparkConf: {OURS}"),
    (
        {"driver": {"env": [{"name": "in_password", "value": "x"}]}},
        f"{SPEC}.driver.env: the data set in sets the variable in_password; choose another name",
    ),
    (
        {"executor": {"envVars": {"DATAFLOW_X": "x"}}},
        f"{SPEC}.executor.envVars: the names DATAFLOW_* are the framework's, also DATAFLOW_X; rename it",
    ),
    (
        {"driver": {"envSecretKeyRefs": {"dataid": {"name": "a", "key": "b"}}}},
        f"{SPEC}.driver.envSecretKeyRefs: the framework sets the variable dataid; choose another name",
    ),
    (
        {"driver": {"envFrom": [{"secretRef": {"name": "x"}}]}},
        (
            f"{SPEC}.driver.envFrom can't be set: its variables can't be distinguished from those of the framework: "
            "name each in env"
        ),
    ),
    (
        {"driver": container(env=[{"name": "dataid", "value": "x"}])},
        (
            f"{SPEC}.driver.template.spec.containers[spark-kubernetes-driver].env: "
            "the framework sets the variable dataid; "
            "choose another name"
        ),
    ),
    (
        {"driver": {"template": {"spec": {"$patch": "replace"}}}},
        f"{SPEC}.driver.template.spec.$patch can't be set: directives of patches are not supported here",
    ),
    ({"driver": {"template": {"spec": None}}}, f"{SPEC}.driver.template.spec can't be null; leave it out"),
    (
        {"executor": {"template": {"spec": {"containers": None}}}},
        f"{SPEC}.executor.template.spec.containers can't be null; leave it out",
    ),
    ({"driver": {"labels": {names.LABEL_RUN: "7"}}}, f"{SPEC}.driver.labels: {OURS}"),
    (
        {"executor": {"template": {"metadata": {"annotations": {names.ANNOTATION_RUN: "7"}}}}},
        f"{SPEC}.executor.template.metadata.annotations: {OURS}",
    ),
    (
        {"volumes": [{"name": "dataflow-context"}]},
        f"{SPEC}.volumes: dataflow-context is the framework's; choose another name",
    ),
    (
        {"driver": {"volumeMounts": [{"name": "x", "mountPath": "/etc/opendataflow/"}]}},
        f"{SPEC}.driver.volumeMounts: /etc/opendataflow/ is the framework's; choose another path",
    ),
]


@pytest.mark.parametrize(("written", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_is_the_framework_s_is_refused_with_a_sentence(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_application(JOB, PodConfig(MAIN, template={"spec": {**GOOD, **written}}))
    assert str(caught.value) == sentence


def test_the_name_of_an_application_is_its_run_s() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_application(JOB, PodConfig(MAIN, template={"metadata": {"name": "mine"}, "spec": GOOD}))
    place = "runtime.sparkApplication.template.metadata.name"
    assert str(caught.value) == f"{place} can't be set; labels and annotations can"


def test_a_ciphertext_is_refused_with_what_to_do() -> None:
    sealed = {"in": Password(sealed="df1:x", passkey=SecretKey("keys", "passkey"))}
    with pytest.raises(InvalidInput) as caught:
        check_application(JOB, PodConfig(MAIN, template={"spec": GOOD}, passwords=sealed))
    assert str(caught.value) == (
        "data set in: encryptedPassword can't be opened in a SparkApplication, as its image starts the program by "
        "itself; write credentials.secretRef"
    )


def test_what_is_allowed_is_let_through() -> None:
    written = {
        "driver": {**container(env=[{"name": "X", "value": "x"}]), "envVars": {"Y": "y"}, "labels": {"a": "b"}},
        "executor": None,
        "mode": "cluster",
        "suspend": False,
        "sparkConf": {
            "spark.executorEnv.Z": "z",
            "spark.kubernetes.driver.label.a": "b",
            "spark.kubernetes.driver.secretKeyRef.MY_PASSWORD": "a:b",
            "spark.kubernetes.executor.secrets.my-secret": "/etc/secrets",
        },
    }
    check_application(JOB, PodConfig(MAIN, template={"spec": {**GOOD, **written}}))
