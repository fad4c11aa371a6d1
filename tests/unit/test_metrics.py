"""What Prometheus reads of the operator."""

from prometheus_client.parser import text_string_to_metric_families

from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.names import OutcomeClass


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


LOAD = (("job", "load"), ("job_namespace", "team-a"))


def test_figures_of_jobs_and_runs() -> None:
    metrics = Metrics("1.2.3")
    metrics.job("team-a/load", {"DONE": 3, "FAILED": 1}, stale=2, breaker_open=True)
    metrics.run_ended("team-a/load", OutcomeClass.SUCCESS, 0.4)
    metrics.run_ended("team-a/load", OutcomeClass.OUT_OF_MEMORY)
    metrics.claimed(0.01)
    metrics.leading(7)
    metrics.request("create", 201)
    metrics.resource_failed("DataSet")
    seen = samples(metrics)
    assert seen["opendataflow_tasks", (*LOAD, ("state", "DONE"))] == 3
    assert seen["opendataflow_tasks", (*LOAD, ("state", "QUEUED"))] == 0
    assert seen["opendataflow_stale_tasks", LOAD] == 2
    assert seen["opendataflow_runs_total", (*LOAD, ("outcome", "OOMKilled"))] == 1
    assert seen["opendataflow_exit_to_commit_seconds_count", ()] == 1
    assert seen["opendataflow_claim_seconds_sum", ()] == 0.01
    assert seen["opendataflow_breaker_open", LOAD] == 1
    assert (seen["opendataflow_leader", ()], seen["opendataflow_leader_epoch", ()]) == (1, 7)
    assert seen["opendataflow_resource_failures_total", (("kind", "DataSet"),)] == 1
    assert seen["opendataflow_api_requests_total", (("code", "201"), ("verb", "create"))] == 1
    assert seen["opendataflow_build_info", (("version", "1.2.3"),)] == 1


def test_every_figure_is_ours_or_of_the_process() -> None:
    names = {name for name, _ in samples(Metrics("1"))}
    assert {name.split("_")[0] for name in names} == {"opendataflow", "process", "python"}
    assert not any(name.endswith("_created") for name in names)


def test_a_job_that_is_gone_leaves_no_figures() -> None:
    metrics = Metrics("1")
    metrics.job("load", {"DONE": 3}, stale=0, breaker_open=False)
    metrics.run_ended("load", OutcomeClass.SUCCESS)
    metrics.forget("load")
    metrics.forget("never seen")
    assert not any("load" in str(labels) for _, labels in samples(metrics))


def test_two_processes_in_one_have_figures_of_their_own() -> None:
    one, two = Metrics("1"), Metrics("1")
    one.leading(1)
    assert samples(two)["opendataflow_leader", ()] == 0
