"""What the chart renders to, for each main set of values and in what must hold for all of them."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import chart_values
from crds import generate
from opendataflow.control.main import _parser
from tests.helm.chart import CHART, GOLDEN, ROOT, SETS, Failed, Helm, golden, of_kind, pod_specs

every_set = pytest.mark.parametrize("values", SETS, ids=lambda path: path.stem)


@every_set
def test_a_set_of_values_renders_to_its_golden_file(helm: Helm, values: Path) -> None:
    assert golden(helm, values) == (GOLDEN / values.name).read_text("utf-8"), "run: make golden"


def test_every_golden_file_is_of_a_set() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {path.name for path in SETS}


@every_set
def test_helm_lint_has_nothing_to_say(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, f"--values={values}")


@every_set
def test_no_role_has_a_verb_on_secrets_or_a_wildcard(helm: Helm, values: Path) -> None:
    roles = of_kind(helm.objects(f"--values={values}"), "Role", "ClusterRole")
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert not {"secrets", "*"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}, role["metadata"]


@every_set
def test_every_container_is_restricted(helm: Helm, values: Path) -> None:
    specs = pod_specs(helm.objects(f"--values={values}"))
    assert len(specs) >= 2
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_only_the_operator_reaches_postgres_and_only_its_namespace_reads_metrics_by_default(helm: Helm) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(helm.objects(), "NetworkPolicy")}
    (to_postgres,) = policies["dataflow-postgres"]["ingress"]
    assert to_postgres["ports"] == [{"port": "postgres"}]
    (client,) = to_postgres["from"]
    assert set(client) == {"podSelector"}
    (chosen,) = client["podSelector"]["matchExpressions"]
    assert (chosen["key"], chosen["values"]) == ("app.kubernetes.io/component", ["operator", "cleanup"])
    (to_metrics,) = policies["dataflow"]["ingress"]
    assert to_metrics == {"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}


@every_set
def test_the_address_of_postgres_is_in_no_pod(helm: Helm, values: Path) -> None:
    for spec in pod_specs(helm.objects(f"--values={values}")):
        assert "postgresql://" not in json.dumps(spec)


@every_set
def test_the_programs_know_the_arguments_that_they_get(helm: Helm, values: Path) -> None:
    containers = [one for spec in pod_specs(helm.objects(f"--values={values}")) for one in spec["containers"]]
    commands = [one["args"] for one in containers if "args" in one]
    assert sorted(args[0] for args in commands) == ["cleanup", "operator"]
    for args in commands:
        _parser().parse_args(args)  # ends the process where it knows one not


def test_every_definition_is_installed_and_kept_at_uninstall(helm: Helm) -> None:
    found = of_kind(helm.objects(), "CustomResourceDefinition")
    assert {one["metadata"]["name"].split(".")[0] for one in found} == {"datasets", "dataflowjobs", "dataflowactions"}
    assert all(one["metadata"]["annotations"] == generate.KEEP for one in found)
    without = helm.objects("--set=crds.install=false")
    assert of_kind(without, "CustomResourceDefinition") == []


def test_the_definitions_in_the_chart_are_what_the_models_say() -> None:
    written = {path: path.read_text("utf-8") for path in generate.CHART.iterdir()}
    assert written == {path: text for path, text in generate.files().items() if path.parent == generate.CHART}, (
        "run: make crds"
    )


def test_the_chart_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(
        Failed, match=r"requires kubeVersion: >=1\.29\.0-0 which is incompatible with Kubernetes v1\.28"
    ):
        helm.rendered("--kube-version=1.28.9")
    helm.rendered("--kube-version=1.29.0")
    helm.rendered("--kube-version=v1.30.5-gke.1014001")


def test_every_value_says_what_it_means_and_has_a_place_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    documented = {name: text for name, _, text in chart_values.values()}
    assert [name for name, text in documented.items() if not text] == []
    assert set(leaves(schema)) - {"global"} == set(documented)


def leaves(schema: dict[str, Any], path: str = "") -> list[str]:
    """The paths of a schema's values; a map whose keys are all known is none, unless it is as in a container."""
    known = schema.get("properties")
    if known is None or path.endswith("resources"):
        assert schema.get("type"), path
        return [path]
    assert schema["additionalProperties"] is False, path
    return [leaf for name, below in known.items() for leaf in leaves(below, f"{path}.{name}".lstrip("."))]


def test_the_chart_can_be_packaged_and_used_by_another_chart(helm: Helm, tmp_path: Path) -> None:
    helm("package", CHART, f"--destination={tmp_path}")
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n")
    (parent / "values.yaml").write_text("global: {team: data}\nopendataflow: {replicas: 2}\n")
    (package,) = tmp_path.glob("*.tgz")
    package.rename(parent / "charts" / package.name)
    objects = [one for one in yaml.safe_load_all(helm("template", "flow", parent)) if one]
    assert [one["spec"]["replicas"] for one in of_kind(objects, "Deployment")] == [2]


def test_two_releases_of_one_name_in_two_namespaces_have_nothing_in_common(helm: Helm) -> None:
    def names(namespace: str) -> set[tuple[str, str, str]]:
        objects = helm.objects("--set=crds.install=false", namespace=namespace)
        return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}

    assert names("a") & names("b") == set()


def test_the_longest_name_of_a_release_still_makes_names_that_fit(helm: Helm) -> None:
    release = "a" * 53
    text = helm("template", release, CHART, "--namespace=n", "--set=crds.install=false")
    objects = [one for one in yaml.safe_load_all(text) if one]
    for one in objects:
        assert len(one["metadata"]["name"]) <= 63, one["metadata"]["name"]
    for one in of_kind(objects, "StatefulSet", "Deployment"):
        assert len(one["metadata"]["name"]) <= 63 - len("-0123456789"), "its pods have labels with a hash"


def test_names_that_look_like_numbers_stay_names(helm: Helm) -> None:
    values = {
        "namespaces": ["2024"],
        "serviceAccount": {"name": "7"},
        "spark": {"serviceAccount": {"name": "8"}},
        "database": {"existingSecret": "9", "secretKey": "10"},
        "priorityClassName": "11",
    }
    ours = helm.objects("--set=crds.install=false", namespace="2025", values=values)
    built_in = {"database": {"builtIn": {"persistence": {"storageClass": "12"}}}}
    theirs = helm.objects("--set=crds.install=false", namespace="2025", values=built_in)
    texts = {"name", "namespace", "key", "serviceAccountName", "priorityClassName", "storageClassName", "password"}
    wrong = [found for found in fields(ours + theirs) if found[0] in texts and not isinstance(found[1], str)]
    assert wrong == []


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    """All fields of objects, however deep, that are no objects or lists."""
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from fields(inner)
        else:
            yield str(name), inner


def test_what_is_installed_twice_has_two_passwords(helm: Helm) -> None:
    def password() -> str:
        (secret,) = of_kind(helm.objects(), "Secret")
        return str(secret["stringData"]["password"])

    first, second = password(), password()
    assert len(first) == len(second) == 32
    assert first != second


@every_set
def test_every_object_has_the_labels_by_which_people_find_it(helm: Helm, values: Path) -> None:
    for one in helm.objects(f"--values={values}", "--set=crds.install=false"):
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "dataflow", one["metadata"]
        assert labels["app.kubernetes.io/name"] == "opendataflow"


def test_a_label_of_a_user_that_the_chart_has_too_is_there_once_and_is_the_user_s(helm: Helm) -> None:
    """Each object is read by a reader that refuses a key that is there twice."""
    labels = {"app.kubernetes.io/version": "mine", "team": "7"}
    part = {"enabled": True, "labels": labels}
    values = {
        "metrics": {"serviceMonitor": part, "rules": part, "dashboard": part},
        "networkPolicy": {"enabled": False},
        "podLabels": labels,
    }
    objects = helm.objects("--set=crds.install=false", values=values)
    found = [one["metadata"]["labels"] for one in of_kind(objects, "ServiceMonitor", "PrometheusRule", "ConfigMap")]
    found += [one["spec"]["template"]["metadata"]["labels"] for one in of_kind(objects, "Deployment")]
    assert len(found) == 4
    for one in found:
        assert one.items() >= {**labels, "app.kubernetes.io/name": "opendataflow"}.items()
