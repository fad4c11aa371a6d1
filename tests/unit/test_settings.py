"""Settings of the program from the environment."""

from pathlib import Path

import pytest

from opendataflow import __version__
from opendataflow.errors import InvalidInput
from opendataflow.names import PodProfile
from opendataflow.settings import Notifications, read_operator_settings, read_settings


def test_the_dsn_is_taken_as_it_is() -> None:
    assert read_settings({"DATAFLOW_DSN": "postgresql://h/db"}).dsn == "postgresql://h/db"


@pytest.mark.parametrize("environ", [{}, {"DATAFLOW_DSN": ""}])
def test_no_dsn_or_an_empty_one_means_the_embedded_postgres(environ: dict[str, str]) -> None:
    assert read_settings(environ).dsn is None


def test_the_home_is_where_it_is_configured() -> None:
    settings = read_settings({"DATAFLOW_HOME": "/data/flow"})
    assert settings.home == Path("/data/flow")
    assert settings.postgres_home == Path("/data/flow/postgres")
    assert settings.runs_home("0123456789ab") == Path("/data/flow/runs/0123456789ab")


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({"DATAFLOW_HOME": "flow"}).home == tmp_path / "flow"


def test_a_user_keeps_the_state_where_the_desktop_standard_says() -> None:
    assert read_settings({"XDG_STATE_HOME": "/state"}, uid=1000).home == Path("/state/opendataflow")


@pytest.mark.parametrize("environ", [{}, {"XDG_STATE_HOME": ""}])
def test_a_user_keeps_the_state_in_the_home_folder(environ: dict[str, str]) -> None:
    assert read_settings(environ, uid=1000).home == Path.home() / ".local/state/opendataflow"


def test_root_keeps_the_state_where_the_user_of_postgres_can_enter() -> None:
    assert read_settings({"XDG_STATE_HOME": "/root/state"}, uid=0).home == Path("/var/lib/opendataflow")


def test_a_configured_home_counts_for_root_too() -> None:
    assert read_settings({"DATAFLOW_HOME": "/data"}, uid=0).home == Path("/data")


def test_the_file_with_the_address_is_named_by_a_variable() -> None:
    assert read_settings({"DATAFLOW_PROPERTIES": "/etc/flow.properties"}).properties == Path("/etc/flow.properties")
    assert read_settings({}).properties is None


def test_recipients_are_kept_as_they_are_written_and_not_shown() -> None:
    given = {
        "DATAFLOW_NOTIFY_COMMAND": "send --token s3cret",
        "DATAFLOW_NOTIFY_WEBHOOK": "https://h/s3cret",
        "DATAFLOW_NOTIFY_SMTP": "smtp://s3cret",
        "DATAFLOW_NOTIFY_SMTP_PASSWORD": "s3cret",
    }
    settings = read_settings({"DATAFLOW_HOME": "/data", **given})
    assert settings.notifications == Notifications(*given.values())
    assert "s3cret" not in repr(settings)


def test_an_empty_target_is_none() -> None:
    settings = read_settings({"DATAFLOW_HOME": "/data", "DATAFLOW_NOTIFY_WEBHOOK": ""})
    assert settings.notifications == Notifications()


@pytest.mark.parametrize(
    ("environ", "meant"), [({}, False), ({"DATAFLOW_KUBE": "0"}, False), ({"DATAFLOW_KUBE": "1"}, True)]
)
def test_the_cluster_is_meant_where_a_variable_says_so(environ: dict[str, str], meant: bool) -> None:
    assert read_settings(environ).kube is meant


def test_a_kubeconfig_is_noticed_and_not_meant_by_that_alone() -> None:
    settings = read_settings({"KUBECONFIG": "/home/ada/.kube/config"})
    assert settings.kubeconfig
    assert not settings.kube


def test_the_policy_for_pods_is_the_strictest_unless_another_is_set() -> None:
    usual = read_operator_settings({})
    assert (usual.pod_policy, usual.allowed_accounts) == (PodProfile.RESTRICTED, ())
    settings = read_operator_settings({"DATAFLOW_POD_POLICY": "any", "DATAFLOW_ALLOWED_SERVICE_ACCOUNTS": "a, b,"})
    assert (settings.pod_policy, settings.allowed_accounts) == (PodProfile.ANY, ("a", "b"))


def test_the_namespace_of_the_operator_is_closed_to_jobs_unless_it_is_listed() -> None:
    assert read_operator_settings({}).closed_namespace == ""
    own = {"POD_NAMESPACE": "flow"}
    assert read_operator_settings(own).closed_namespace == "flow"
    assert read_operator_settings({**own, "DATAFLOW_NAMESPACES": "team-a"}).closed_namespace == "flow"
    assert read_operator_settings({**own, "DATAFLOW_NAMESPACES": "team-a,flow"}).closed_namespace == ""


def test_an_unknown_policy_for_pods_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_operator_settings({"DATAFLOW_POD_POLICY": "privileged"})
    assert str(caught.value) == "DATAFLOW_POD_POLICY is one of restricted, baseline, any, not 'privileged'"


def test_the_image_and_the_account_of_spark_drivers_have_a_default() -> None:
    usual = read_operator_settings({})
    assert (usual.spark_image, usual.spark_account) == (f"opendataflow/spark:{__version__}", "opendataflow-spark")
    settings = read_operator_settings({"DATAFLOW_SPARK_IMAGE": "a/b:1", "DATAFLOW_SPARK_SERVICE_ACCOUNT": "drivers"})
    assert (settings.spark_image, settings.spark_account) == ("a/b:1", "drivers")


def test_a_namespace_has_no_limit_of_runs_unless_one_is_set() -> None:
    assert read_operator_settings({}).namespace_parallelism is None
    assert read_operator_settings({"DATAFLOW_MAX_RUNS_PER_NAMESPACE": "0"}).namespace_parallelism is None
    assert read_operator_settings({"DATAFLOW_MAX_RUNS_PER_NAMESPACE": "20"}).namespace_parallelism == 20
    with pytest.raises(InvalidInput, match="DATAFLOW_MAX_RUNS_PER_NAMESPACE is a whole number of at least 0"):
        read_operator_settings({"DATAFLOW_MAX_RUNS_PER_NAMESPACE": "-1"})
