"""The manifest of a run's pod: YAML in, YAML out; and what users may not write about their pods."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opendataflow import names
from opendataflow.core.kubernetes.pod_template import merged
from opendataflow.core.kubernetes.pods import Container, Operator, Password, PodConfig, SecretKey, check_config, run_pod
from opendataflow.core.runs.environment import JobFacts
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Host
from tests.pods import NONCE

CASES = Path(__file__).parent / "data" / "pods"
OPERATOR = Operator(engine="0123456789ab", image="example.org/opendataflow:1")


def config_of(written: dict[str, Any]) -> PodConfig:
    main: dict[str, Any] = {**written["main"]}
    main |= {name: tuple(main[name]) for name in ("command", "args") if name in main}
    passwords = {
        name: Password(
            secret=SecretKey(**each["secret"]) if "secret" in each else None,
            sealed=each.get("sealed"),
            passkey=SecretKey(**each["passkey"]) if "passkey" in each else None,
        )
        for name, each in written.get("passwords", {}).items()
    }
    return PodConfig(**{**written, "main": Container(**main), "passwords": passwords})


def claimed(run: int = 1, data_id: str = "1.0", fence: int = 5, attempt: int = 1) -> ClaimedRun:
    return ClaimedRun(run, "load", data_id, fence, attempt, 0, 0, {}, "lease", Host("kubernetes", ""), "", NONCE)


def made(case: dict[str, Any]) -> dict[str, Any]:
    job = JobFacts(**{**case["job"], "inputs": tuple(case["job"]["inputs"]), "outputs": tuple(case["job"]["outputs"])})
    datasets = {each["id"]: DataSetFacts(**each) for each in case["datasets"]}
    return run_pod(job, claimed(**case["run"]), datasets, config_of(case["config"]), OPERATOR)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.yaml") if "." not in path.stem))
def test_a_pod_is_made_as_it_is_written_down(name: str) -> None:
    case = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    before = copy.deepcopy(case)
    assert made(case) == yaml.safe_load((CASES / f"{name}.manifest.yaml").read_text())
    assert case == before


# What can't be written ---------------------------------------------------------------------------------------

JOB = JobFacts("load", "./load.sh", ("in",), (), env={"MODE": "full"}, namespace="team")


def main(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **fields}]}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"metadata": {"name": "mine"}},
        "podTemplate.metadata.name can't be set; labels and annotations can",
    ),
    ({"metadata": {"finalizers": []}}, "podTemplate.metadata.finalizers can't be set; labels and annotations can"),
    (
        {"metadata": {"labels": {names.LABEL_RUN: "7"}}},
        "podTemplate.metadata.labels: opendataflow.io/run is the framework's; choose another name",
    ),
    (
        {"metadata": {"annotations": {names.ANNOTATION_CONTEXT: ""}}},
        "podTemplate.metadata.annotations: opendataflow.io/context is the framework's; choose another name",
    ),
    ({"metadata": {"labels": {"a": 5}}}, "podTemplate.metadata.labels has to be texts by name; quote a"),
    ({"metadata": {"labels": []}}, "podTemplate.metadata.labels has to be texts by name; quote them"),
    ({"spec": []}, "podTemplate.spec has to be an object"),
    (
        {"spec": {"restartPolicy": "Always"}},
        "podTemplate.spec.restartPolicy can't be set: a run pod never restarts its containers",
    ),
    (
        {"spec": {"activeDeadlineSeconds": 5}},
        "podTemplate.spec.activeDeadlineSeconds can't be set: write the job's runDeadline",
    ),
    ({"spec": {"containers": None}}, "podTemplate.spec.containers can't be null; leave it out"),
    ({"spec": {"containers": {}}}, "podTemplate.spec.containers has to be a list"),
    (
        {"spec": {"containers": [{"image": "x"}]}},
        "podTemplate.spec.containers[0] has no name; it identifies the item",
    ),
    (
        {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
        "podTemplate.spec.containers: a is there twice",
    ),
    (
        {"spec": {"volumes": [{"name": 5}]}},
        "podTemplate.spec.volumes[0].name has to be a text; quote it",
    ),
    (
        {"spec": {"$patch": "replace"}},
        "podTemplate.spec.$patch can't be set: directives of patches are not supported here",
    ),
    (
        {"spec": {"volumes": [{"name": "dataflow"}]}},
        "podTemplate.spec.volumes: dataflow is the framework's; choose another name",
    ),
    (
        {"spec": {"initContainers": [{"name": "open-passwords"}]}},
        "podTemplate.spec.initContainers: open-passwords is the framework's; choose another name",
    ),
    (main(image="x"), "podTemplate.spec.containers[main].image can't be set: write runtime.script.image"),
    (main(command=["x"]), "podTemplate.spec.containers[main].command can't be set: write runtime.script.command"),
    (
        main(terminationMessagePolicy="FallbackToLogsOnError"),
        "podTemplate.spec.containers[main].terminationMessagePolicy can't be set: a status must not show a log",
    ),
    (
        main(env=[{"name": "in_password", "value": "x"}]),
        "podTemplate.spec.containers[main].env: the data set in sets the variable in_password already; rename it",
    ),
    (
        main(env=[{"name": "MODE", "value": "x"}]),
        "podTemplate.spec.containers[main].env: the env item MODE sets the variable MODE already; rename it",
    ),
    (
        main(env=[{"name": "DATAFLOW_NEW", "value": "x"}]),
        "podTemplate.spec.containers[main].env: the framework sets the variable DATAFLOW_NEW already; rename it",
    ),
    (
        main(volumeMounts=[{"name": "x", "mountPath": "/dataflow/sub"}]),
        "podTemplate.spec.containers[main].volumeMounts: /dataflow/sub is the framework's; choose another path",
    ),
]


@pytest.mark.parametrize(("template", "sentence"), REFUSED)
def test_what_the_framework_needs_can_not_be_written(template: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_config(JOB, PodConfig(Container("x"), template=template))
    assert str(refused.value) == sentence


def test_a_ciphertext_needs_a_command() -> None:
    passwords = {"in": Password(sealed="df1:x", passkey=SecretKey("keys", "passkey"))}
    with pytest.raises(InvalidInput) as refused:
        check_config(JOB, PodConfig(Container("x"), passwords=passwords))
    assert str(refused.value) == (
        "job load: the password of data set in is opened before the command starts, so the command has to be known; "
        "write runtime.script.command"
    )


def test_a_ciphertext_needs_the_secret_of_its_passkey() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_config(JOB, PodConfig(Container("x", ("y",)), passwords={"in": Password(sealed="df1:x")}))
    assert str(refused.value) == (
        "data set in: encryptedPassword is opened with a passkey from a Secret; write passkeySecretRef"
    )


_LEAF = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["main", "a", "5", "/dataflow"])
_FIELDS = st.sampled_from(["labels", "containers", "initContainers", "volumes", "env", "name", "volumeMounts", "a"])
_ANY = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_FIELDS, inner, max_size=3), max_leaves=12
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["main", "a", "b"])}, optional={"env": _ANY, "resources": _ANY}),
    max_size=3,
)
_SPECS = st.fixed_dictionaries(
    {}, optional={"containers": _CONTAINERS, "initContainers": _CONTAINERS, "volumes": _ANY, "securityContext": _ANY}
)
_TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _ANY,
        "spec": st.dictionaries(_FIELDS, _ANY, max_size=4)
        | st.fixed_dictionaries(
            {}, optional={"containers": _CONTAINERS, "initContainers": _CONTAINERS, "volumes": _ANY}
        ),
    },
)


@given(_TEMPLATES)
def test_any_template_is_refused_with_a_sentence_or_keeps_what_the_framework_needs(template: dict[str, Any]) -> None:
    config = PodConfig(Container("x", ("y",)), template=template)
    try:
        pod = run_pod(JOB, claimed(), {"in": DataSetFacts("in")}, config, OPERATOR)
    except InvalidInput:
        return
    assert pod["metadata"]["finalizers"] == [names.FINALIZER]
    assert pod["metadata"]["labels"][names.LABEL_RUN] == "1"
    assert pod["spec"]["restartPolicy"] == "Never"
    (the_main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
    assert (the_main["image"], the_main["command"]) == ("x", ["y"])
    assert json.dumps(pod)


@pytest.mark.parametrize(
    ("base", "written", "result"),
    [
        ({"a": 1, "b": {"c": 2}}, {"b": {"d": 3}}, {"a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "C", "value": "3"}, {"name": "A", "value": "9"}]},
            {"env": [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]},
        ),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
    ],
)
def test_how_a_template_is_merged(base: Any, written: Any, result: Any) -> None:
    assert merged(base, written) == result
