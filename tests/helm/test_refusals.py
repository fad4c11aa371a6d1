"""Values that helm refuses, each with one sentence that says what is wrong and where."""

from typing import Any

import pytest

from tests.helm.chart import Failed, Helm

REFUSED: list[tuple[dict[str, Any], str]] = [
    # By the templates: values that contradict each other.
    (
        {"database": {"existingSecret": "ours", "builtIn": {"enabled": True}}},
        "database.existingSecret and database.builtIn.enabled=true contradict each other: take one of them away",
    ),
    (
        {"database": {"builtIn": {"enabled": False}}},
        "there is no database: set database.existingSecret to a Secret with the address of your Postgres",
    ),
    (
        {"podDisruptionBudget": {"enabled": True}},
        "podDisruptionBudget.enabled=true needs replicas=2: with one operator its node could never be drained",
    ),
    (
        {"spark": {"enabled": False, "namespaces": ["a"]}},
        "spark.namespaces is set, but spark.enabled is false: take one of them away",
    ),
    (
        {"namespaces": ["a", "b"], "spark": {"namespaces": ["b", "c"]}},
        "spark.namespaces has c, which is not in namespaces: nothing would run there",
    ),
    (
        {"serviceAccount": {"create": False}},
        "serviceAccount.create is false: set serviceAccount.name to the one that is there",
    ),
    (
        {"metrics": {"serviceMonitor": {"enabled": True}}},
        "metrics.serviceMonitor.enabled=true needs networkPolicy.metricsFrom: name the pods of your Prometheus there",
    ),
    # By the schema: what no value can be.
    ({"databse": {}}, "additional properties 'databse' not allowed"),
    ({"database": {"existngSecret": "ours"}}, "at '/database': additional properties 'existngSecret' not allowed"),
    ({"image": {"tag": 1.2}}, "at '/image/tag': got number, want string"),
    ({"image": {"repository": "a/b:1"}}, "at '/image/repository': 'a/b:1' does not match pattern"),
    ({"image": {"pullPolicy": "Sometimes"}}, "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent'"),
    ({"replicas": 3}, "at '/replicas': maximum: got 3, want 2"),
    ({"replicas": "two"}, "at '/replicas': got string, want integer"),
    ({"parallelism": 0}, "at '/parallelism': minimum: got 0, want 1"),
    ({"maxRunsPerNamespace": -1}, "at '/maxRunsPerNamespace': minimum: got -1, want 0"),
    ({"limits": {"chunksPerNamespace": -1}}, "at '/limits/chunksPerNamespace': minimum: got -1, want 0"),
    ({"podPolicy": "privileged"}, "at '/podPolicy': value must be one of 'restricted', 'baseline', 'any'"),
    ({"allowedServiceAccounts": ["a,b"]}, "at '/allowedServiceAccounts/0': 'a,b' does not match pattern"),
    ({"namespaces": "team-a"}, "at '/namespaces': got string, want array"),
    ({"namespaces": ["a", "a"]}, "at '/namespaces': items at 0 and 1 are equal"),
    ({"namespaces": ["Team_A"]}, "at '/namespaces/0': 'Team_A' does not match pattern"),
    ({"namespaces": ["a,b"]}, "at '/namespaces/0': 'a,b' does not match pattern"),
    ({"log": {"level": "debug"}}, "at '/log/level': value must be one of 'DEBUG', 'INFO', 'WARNING'"),
    ({"database": {"secretKey": "a key"}}, "at '/database/secretKey': 'a key' does not match pattern"),
    ({"database": {"existingSecret": "Our Secret"}}, "at '/database/existingSecret': 'Our Secret' does not match"),
    ({"database": {"builtIn": {"runAsUser": 0}}}, "at '/database/builtIn/runAsUser': minimum: got 0, want 1"),
    (
        {"database": {"builtIn": {"persistence": {"size": "eight"}}}},
        "at '/database/builtIn/persistence/size': 'eight' does not match pattern",
    ),
    ({"imagePullSecrets": ["registry"]}, "at '/imagePullSecrets/0': got string, want object"),
    ({"nodeSelector": {"gpu": True}}, "at '/nodeSelector/gpu': got boolean, want string"),
    ({"podAnnotations": {"a": 1}}, "at '/podAnnotations/a': got number, want string"),
    ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "at '/metrics/serviceMonitor/interval': 'often' does not"),
    ({"uninstall": {"timeoutSeconds": 1}}, "at '/uninstall/timeoutSeconds': minimum: got 1, want 10"),
    (
        {"podLabels": {"app.kubernetes.io/component": "x"}},
        "podLabels has app.kubernetes.io/component, by which the operator's pods are found: take it away",
    ),
    ({"fullnameOverride": "1st"}, "at '/fullnameOverride': '1st' does not match pattern"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
def test_it_is_refused_with_one_sentence(helm: Helm, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Failed) as refused:
        helm.rendered(values=values)
    assert str(refused.value).count(sentence) == 1, refused.value


def test_an_option_can_be_written_out_where_it_would_be_so_anyway(helm: Helm) -> None:
    helm.rendered(values={"database": {"builtIn": {"enabled": True}}})
    helm.rendered(values={"database": {"existingSecret": "ours", "builtIn": {"enabled": False}}})
    helm.rendered(values={"replicas": 2, "podDisruptionBudget": {"enabled": True}})
    helm.rendered(values={"podDisruptionBudget": {"enabled": False}})
    helm.rendered(values={"metrics": {"serviceMonitor": {"enabled": True}}, "networkPolicy": {"enabled": False}})
    helm.rendered(values={"serviceAccount": {"create": False, "name": "ours"}})
