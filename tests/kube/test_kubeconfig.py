"""The command line through a kubeconfig: the same verbs, the same output and exit codes as with Postgres."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from opendataflow.cli import commands
from opendataflow.cli.cluster import actions
from opendataflow.cli.cluster.choice import Cluster
from opendataflow.keys import key_of
from opendataflow.launch.cluster import api as client
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.names import API_VERSION, ExitCode
from tests.e2e.conftest import DATAFLOW, Answer
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.proxy import Fault, Proxy
from tests.kube.operating import operating
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, claim, dataset, end, job, of_namespace, open_lease, tasks

Ask = Callable[..., Answer]
VARIABLES = ("DATAFLOW_DSN", "DATAFLOW_PROPERTIES", "DATAFLOW_KUBE", "KUBECONFIG")


def declare(db: Connection, namespace: str = "") -> None:
    """Job j makes b of a, k makes c of b; 1 is done by j, 2 has failed, 3 to 30 wait. `namespace`: of resources."""
    own = partial(of_namespace, namespace) if namespace else dict
    ids = [str(number) for number in range(1, 31)]
    apply(
        db,
        [own(dataset("a", *ids)), own(dataset("b")), own(dataset("c"))],
        [own(job("j", ["a"], ["b"], retry_limit=0)), own(job("k", ["b"], ["c"]))],
    )
    one, two = claim(db, open_lease(db), key_of(namespace, "j"), 2)
    end(db, one, "DONE")
    end(db, two, "FAILED", reason="cut")


@pytest.fixture
def db(dsn: str, namespace: str) -> Iterator[Connection]:
    """The operator's database."""
    with open_connection(dsn) as connection:
        declare(connection, namespace)
        yield connection


@pytest.fixture
def operator(dsn: str, cluster: Api, namespace: str, db: Connection) -> Iterator[Connection]:
    """An operator at work in the namespace."""
    with operating(dsn, cluster.kubeconfig, namespace):
        yield db


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Run a command inside this process, in an empty folder, with some variables; return all that it printed."""

    def run(*arguments: str, **environ: str) -> Answer:
        capsys.readouterr()
        with monkeypatch.context() as patched:
            patched.chdir(tmp_path)
            for name in VARIABLES:
                patched.delenv(name, raising=False)
            for name, text in {"DATAFLOW_HOME": str(tmp_path / "home"), **environ}.items():
                patched.setenv(name, text)
            code = commands.run(list(arguments))
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture
def kube(ask: Ask, cluster: Api, namespace: str) -> Ask:
    """Run a command in the namespace of the test."""
    return lambda *arguments: ask(*arguments, "--namespace", namespace, KUBECONFIG=str(cluster.kubeconfig))


ASKED = [
    "resubmit j 1",
    "resubmit j 1 1 2",
    "resubmit j --failed --reason fixed",
    "resubmit j 1 --cascade",
    "resubmit b 1 --dataset",
    "resubmit b 1 --dataset --cascade",
    "hold j 3 4",
    "hold j --from 29",
    "hold b 1 --dataset",
    "release j 3",
    "skip j --from 5 --to 7",
    "force j 30",
    "cancel j 1",
    "publish b 3 x",
    "accept b 1",
    "reject b 1",
    "hold j 1",
    "hold j 99",
    "hold j 99 98 97 96 95 94 93",
    "skip j --status HELD",
    "hold j --status NONE",
    "hold j",
    "hold j 1 --failed",
    "publish b 1 --from 1",
]


@pytest.mark.usefixtures("operator")
def test_every_verb_says_the_same_as_with_postgres(
    ask: Ask, kube: Ask, lasting_dsn: str, db: Connection, namespace: str
) -> None:
    with open_connection(lasting_dsn) as other:
        declare(other)
        for command in ASKED:
            with_postgres = ask(*command.split(), DATAFLOW_DSN=lasting_dsn)
            assert kube(*command.split()) == with_postgres, command
            own = {key.removeprefix(f"{namespace}/"): state for key, state in tasks(db).items()}
            assert own == tasks(other), command


@pytest.mark.usefixtures("operator")
def test_a_job_that_the_operator_does_not_know_is_unknown(kube: Ask) -> None:
    assert kube("hold", "nothing", "1") == Answer(ExitCode.USAGE, "", "error: there is no job nothing\n")


@pytest.mark.usefixtures("operator")
def test_of_many_chunks_the_first_are_printed_and_the_rest_is_counted(kube: Ask) -> None:
    answer = kube("hold", "j", "--from", "3")

    assert answer.code == ExitCode.OK
    lines = answer.out.splitlines()
    assert (lines[0], lines[19]) == ("j 3: HELD", "j 22: HELD")
    assert lines[20:] == ["… and 8 more (hold: 28 done)"]


def test_the_history_says_who_has_asked_and_why(kube: Ask, operator: Connection, namespace: str) -> None:
    kube("hold", "j", "3", "--reason", "not today")

    row = operator.execute("SELECT actor, reason FROM opendataflow.history WHERE event = 'hold'").fetchone()
    assert row is not None
    assert row["reason"] == "not today"
    assert row["actor"].startswith(f"DataFlowAction {namespace}/hold-")
    assert " for " in row["actor"]


def test_an_operator_that_does_not_answer_is_named_with_what_to_do(
    kube: Ask, cluster: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "WAIT_SECONDS", 1.0)
    answer = kube("hold", "j", "1")

    [made] = cluster.items(f"/apis/{API_VERSION}/namespaces/{namespace}/dataflowactions")
    assert made["spec"] == {
        "job": "j",
        "action": "hold",
        "chunks": ["1"],
        "stale": False,
        "cascade": False,
        "ttl": "168h",
    }
    assert answer.code == ExitCode.UNREACHABLE
    assert f"kubectl delete dataflowaction {made['metadata']['name']} --namespace {namespace}" in answer.err


@pytest.mark.usefixtures("operator")
async def test_an_action_whose_creation_got_no_answer_is_asked_for_once(
    cluster: Api, namespace: str, proxy: Proxy
) -> None:
    proxy.fail(Fault("POST", "dataflowactions", drop="reply"))
    async with client.Api(from_kubeconfig([proxy.kubeconfig])) as api:
        spec = {"job": "j", "action": "hold", "chunks": ["3"]}
        status = await actions.request_action(Cluster(api, namespace), spec, "ada@laptop")
        assert [method for method, _ in proxy.seen].count("POST") == 2

    assert (status.phase, status.lines) == ("Done", ("j 3: HELD",))
    assert len(cluster.items(f"/apis/{API_VERSION}/namespaces/{namespace}/dataflowactions")) == 1


def test_an_api_server_that_is_unreachable_is_named(
    ask: Ask, cluster: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "CREATE_SECONDS", 0.5)
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))

    for command in ("hold j 1", "get jobs", "scale j 3"):
        answer = ask(*command.split(), KUBECONFIG=str(tmp_path / "kubeconfig"))
        assert (answer.code, answer.out) == (ExitCode.UNREACHABLE, "")
        assert "the Kubernetes API at https://127.0.0.1:9 does not answer" in answer.err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("why j 1", "only Postgres can answer this"),
        ("describe job j", "only Postgres can answer this"),
        ("inspect j 1", "only Postgres can answer this"),
        ("get runs", "only Postgres can answer this"),
        ("get chunks", "only Postgres can answer this"),
        ("logs j 1", "only Postgres can answer this"),
        ("hold j 1 --dry-run", "only Postgres can answer a dry run"),
        ("get tasks", "only Postgres can answer this"),
        ("hold j --failed --from 1", "chunks are chosen by one --status, --stale, or --from and --to"),
        ("hold j --status QUEUED --status RETRYING", "chunks are chosen by one --status, --stale, or --from and --to"),
        ("resubmit j --stale --to 1", "chunks are chosen by one --status, --stale, or --from and --to"),
        ("scale j 3 --reason night", "--reason goes into the history in Postgres"),
    ],
)
def test_what_a_cluster_can_t_do_is_refused_in_a_sentence(kube: Ask, command: str, sentence: str) -> None:
    answer = kube(*command.split())

    assert (answer.code, answer.out) == (ExitCode.USAGE, "")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_more_ids_than_an_action_can_have_are_refused_with_what_to_do(kube: Ask) -> None:
    answer = kube("hold", "j", *map(str, range(1001)))

    assert answer.code == ExitCode.USAGE
    assert "1001 data ids are more than the 1000 of one DataFlowAction: choose them by --from" in answer.err


# Jobs and data sets


@pytest.fixture
def resources(cluster: Api, namespace: str) -> str:
    """DataFlowJob load with the id j and data set a in the namespace, with statuses; return the job's path."""
    base = f"/apis/{API_VERSION}/namespaces/{namespace}"
    container = {"script": {"image": "busybox", "command": ["true"]}}
    spec = {"id": "j", "inputs": ["a"], "outputs": ["b"], "parallelism": 2, "runtime": container}
    cluster.create(f"{base}/dataflowjobs", _resource("DataFlowJob", "load", spec))
    location = {"kind": "postgres", "database": "dwh", "schemaname": "s", "tablename": "t"}
    cluster.create(f"{base}/datasets", _resource("DataSet", "a", {"location": location}))
    counts = {"total": 30, "done": 11, "stale": 3, "running": 2, "failed": 1, "waiting": 16}
    failure = {"dataId": "2", "run": 7, "message": "exit code 1", "at": "2026-11-28T08:00:00Z"}
    status = {
        "state": "Running",
        "counts": counts,
        "rate": 120,
        "eta": "8m",
        "watermark": "1",
    }
    cluster.patch(f"{base}/dataflowjobs/load/status", {"status": {**status, "lastFailures": [failure]}})
    cluster.patch(f"{base}/datasets/a/status", {"status": {"counts": {"total": 30, "ready": 29, "failed": 1}}})
    return f"{base}/dataflowjobs/load"


def _resource(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_job_is_scaled_suspended_and_resumed_by_its_resource(kube: Ask, cluster: Api, resources: str) -> None:
    assert kube("scale", "j", "5") == Answer(0, "job j: parallelism 2 -> 5; 2 are running\n", "")
    assert kube("scale", "j", "1").out.startswith("job j: parallelism 5 -> 1; 2 runs still go on")
    assert kube("suspend", "j").out.startswith("job j is suspended: ")
    assert kube("suspend", "j").out.startswith("job j was suspended already; 2 runs ")
    assert cluster.get(resources)["spec"]["suspend"] is True
    assert kube("resume", "j").out == "job j goes on: it may have 1 run at a time, 2 are running\n"
    spec = cluster.get(resources)["spec"]
    assert (spec["suspend"], spec["parallelism"]) == (False, 1)


@pytest.mark.usefixtures("resources", "operator")
def test_a_namespace_may_be_written_before_the_id_and_is_that_of_the_context_by_default(
    ask: Ask, cluster: Api, namespace: str, tmp_path: Path
) -> None:
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    (tmp_path / "elsewhere").write_text(json.dumps(config))
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "here").write_text(json.dumps(config))
    elsewhere, here = ({"KUBECONFIG": str(tmp_path / name)} for name in ("elsewhere", "here"))

    assert ask("hold", f"{namespace}/j", "3", **elsewhere) == Answer(0, "j 3: HELD\n", "")
    assert ask("release", "j", "3", **here).code == 0
    assert ask("scale", f"{namespace}/j", "5", **elsewhere).out.startswith("job j: parallelism 2 -> 5")
    assert ask("status", f"{namespace}/j", **elsewhere).out == ask("status", "j", **here).out
    both = ask("hold", f"{namespace}/j", "3", "--namespace", "other", **elsewhere)
    sentence = f"error: {namespace}/j is in namespace {namespace}, and --namespace names other: write one\n"
    assert both == Answer(ExitCode.USAGE, "", sentence)


@pytest.mark.usefixtures("resources")
def test_a_job_that_is_not_there_is_named_with_what_may_be_meant(kube: Ask, namespace: str) -> None:
    for command in ("scale jj 3", "suspend jj", "status jj"):
        sentence = f"error: there is no job jj in namespace {namespace} (did you mean j?)\n"
        assert kube(*command.split()) == Answer(ExitCode.USAGE, "", sentence)


@pytest.mark.usefixtures("resources")
def test_jobs_and_data_sets_are_listed_with_the_columns_of_postgres(kube: Ask) -> None:
    [row] = json.loads(kube("get", "jobs", "--output", "json").out)
    assert row == {
        "job": "j", "state": "Running", "done": 11, "total": 30, "stale": 3, "running": 2, "retrying": 0, "failed": 1,
        "parallelism": 2, "inputs": "a", "outputs": "b",
    }  # fmt: skip
    [row] = json.loads(kube("get", "datasets", "--output", "json").out)
    assert row == {
        "dataset": "a", "kind": "postgres", "place": "dwh.s.t", "producer": None, "consumers": "j",
        "ready": 29, "failed": 1, "chunks": 30, "declaring": None,
    }  # fmt: skip
    assert kube("get", "jobs").out.split()[:2] == ["JOB", "STATE"]


@pytest.mark.usefixtures("resources")
def test_the_status_of_a_job_is_that_of_its_resource(kube: Ask) -> None:
    *first, stale, last = (line.strip() for line in kube("status", "j").out.splitlines())
    assert first == [
        "j   11 of 30 done, 3 stale, 16 WAITING, 2 RUNNING, 1 FAILED   parallelism 2",
        "rate       2 a minute, about 8m left",
        "watermark  all done up to 1, stale ones included",
    ]
    assert stale.startswith("stale      3 chunks ")
    assert stale.endswith(" dataflow resubmit j --stale")
    assert last == "failed     2, run 7: exit code 1"


def test_a_job_without_a_status_says_so(kube: Ask, cluster: Api, namespace: str) -> None:
    spec = {"inputs": ["a"], "runtime": {"script": {"image": "busybox", "command": ["true"]}}}
    cluster.create(f"/apis/{API_VERSION}/namespaces/{namespace}/dataflowjobs", _resource("DataFlowJob", "new", spec))

    assert "none yet: the operator has not taken the job over" in kube("status").out


# What is meant


@pytest.mark.usefixtures("resources")
def test_postgres_is_meant_where_it_is_named_and_the_cluster_where_it_is_asked_for(
    ask: Ask, cluster: Api, namespace: str, dsn: str, tmp_path: Path
) -> None:
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    config["contexts"][0]["context"]["namespace"] = namespace
    config["contexts"].append({"name": "other", "context": {**config["contexts"][0]["context"], "namespace": "other"}})
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    both = {"DATAFLOW_DSN": dsn, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    in_cluster, in_postgres = "load", "none"

    def seen(*options: str, **environ: str) -> str:
        found = json.loads(ask("get", "jobs", "--output", "json", *options, **environ).out)
        return in_cluster if found else in_postgres

    assert seen(**both) == in_postgres
    assert seen("--kube", **both) == in_cluster
    assert seen("--namespace", namespace, **both) == in_cluster
    assert seen("--namespace", "other", **both) == in_postgres
    assert seen("--context", "other", **both) == in_postgres
    assert seen(**both, DATAFLOW_KUBE="1") == in_cluster
    assert seen(**both, DATAFLOW_KUBE="0") == in_postgres
    assert seen(KUBECONFIG=both["KUBECONFIG"]) == in_cluster


def test_an_embedded_database_goes_before_a_kubeconfig_that_happens_to_be_there(
    cluster: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opendataflow.cli.cluster import choice

    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("DATAFLOW_HOME", str(tmp_path))
    for name in VARIABLES[:3]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert choice.through_cluster()
    (tmp_path / "postgres").mkdir()
    assert not choice.through_cluster()


@pytest.mark.usefixtures("resources")
def test_kubectl_runs_it_as_a_plugin(cluster: Api, namespace: str, dsn: str, tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(cluster.kubeconfig), "DATAFLOW_DSN": dsn, "HOME": str(tmp_path)}

    def plugin(*arguments: str) -> Any:
        script = "import sys; from opendataflow.cli.main import kubectl; sys.argv[0] = 'kubectl-dataflow'; kubectl()"
        python = DATAFLOW.parent / "python"
        path = {name: text for name, text in os.environ.items() if name in ("PATH", "PYTHONPATH")}
        return subprocess.run(
            [python, "-c", script, *arguments], env={**path, **environ}, capture_output=True, text=True, check=False
        )

    done = plugin("get", "jobs", "-n", namespace)
    assert done.stdout.splitlines()[1].split()[:2] == ["j", "Running"]
    assert plugin("get", "runs").stderr == "no runs\n"


def test_what_only_postgres_knows_is_asked_there_when_it_is_named(ask: Ask, cluster: Api, dsn: str) -> None:
    environ = {"KUBECONFIG": str(cluster.kubeconfig), "DATAFLOW_KUBE": "1"}

    assert ask("get", "runs", **environ, DATAFLOW_DSN=dsn) == Answer(0, "", "no runs\n")
    assert ask("get", "runs", **environ).code == ExitCode.USAGE
