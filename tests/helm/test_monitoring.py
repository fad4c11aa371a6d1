"""Alert rules and the dashboard ask for metrics that the operator has."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.names import OutcomeClass, TaskState
from tests.helm.chart import CHART, Helm, of_kind

_NAME = re.compile(r"\b(?:opendataflow|process)_[a-z_]+")
_LABELS = re.compile(r"\b(?:by|without|on) \(([^)]*)\)")
SCRAPED = {"namespace", "service", "pod", "instance", "le"}
"""Labels that Prometheus adds, or that a histogram has."""


def operator() -> tuple[set[str], set[str]]:
    """The names of all metrics, and of all labels."""
    metrics = Metrics("1")
    metrics.job("load", {}, stale=0, breaker_open=False)
    metrics.run_ended("load", OutcomeClass.SUCCESS, 1.0)
    metrics.queue("claims", 0)
    metrics.rights("a", missing=True)
    metrics.request("GET", 200)
    samples = [s for f in text_string_to_metric_families(metrics.exposition().decode()) for s in f.samples]
    return {s.name for s in samples}, {label for s in samples for label in s.labels}


def rules() -> list[dict[str, object]]:
    text = (
        (CHART / "files" / "rules.yaml").read_text().replace("HERE", 'namespace="a"').replace("SERVICE", 'service="b"')
    )
    (group,) = yaml.safe_load(text)["groups"]
    found: list[dict[str, object]] = group["rules"]
    return found


def queries_of_dashboard() -> list[str]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return asked + [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]


@pytest.mark.parametrize("query", [*(str(rule["expr"]) for rule in rules()), *queries_of_dashboard()])
def test_every_figure_and_label_that_is_asked_for_exists(query: str) -> None:
    names, labels = operator()
    asked = set(_NAME.findall(query))
    assert asked
    assert asked <= names
    by = {label.strip() for group in _LABELS.findall(query) for label in group.split(",")}
    chosen = set(re.findall(r"[{,]\s*([a-z_]+)=", query))
    assert by | chosen <= labels | SCRAPED


def test_every_state_that_is_asked_for_exists() -> None:
    asked = re.findall(
        r'state="([A-Z]+)"', " ".join([*(str(rule["expr"]) for rule in rules()), *queries_of_dashboard()])
    )
    assert asked
    assert set(asked) <= {state.value for state in TaskState}


def test_every_alert_says_what_it_means_and_how_bad_it_is() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) == 10
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})


def test_rules_are_about_this_release_only(helm: Helm) -> None:
    (made,) = of_kind(helm.objects("--set=metrics.rules.enabled=true", namespace="flow"), "PrometheusRule")
    for group in made["spec"]["groups"]:
        for rule in group["rules"]:
            own = 'service="dataflow"' if "rights" in rule["expr"] else 'namespace="flow",service="dataflow"'
            assert own in rule["expr"]
            assert not re.search("HERE|SERVICE", json.dumps(rule))


def test_the_dashboard_arrives_as_it_is(helm: Helm) -> None:
    (made,) = of_kind(helm.objects("--set=metrics.dashboard.enabled=true"), "ConfigMap")
    assert json.loads(made["data"]["opendataflow.json"])["title"] == "OpenDataFlow"
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
