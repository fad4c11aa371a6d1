"""Runs as SparkApplications, with a stand-in for the Kubeflow Spark operator that plays the submitter: see
`tests.kube.spark_operator`. Everything else is real: the operator, the API server, its garbage collector, Postgres.

Seen at others: a controller that restarts between a submission and its record, so that the run is lost or there twice;
a driver that vanished before its end was seen; a submission that failed without a pod; one that nobody picks up.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from opendataflow.control.cleanup import _KINDS
from opendataflow.names import ANNOTATION_CONTEXT, FINALIZER, LABEL_APPLICATION, LABEL_DONE, LABEL_RUN
from tests.conftest import fresh_database
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.cluster.pods import pod_annotations
from tests.kube.conftest import OwnCluster, fresh_namespace, new_namespace
from tests.kube.jobs import action, dataset, job
from tests.kube.lasting import Lasting
from tests.kube.scene import AT_ONCE, SECONDS, Scene, new_scene
from tests.kube.spark_operator.controller import applications, install, operating
from tests.kube.test_cleanup import cleanup
from tests.waiting import wait_until

ONCE = {"limit": 0, "infrastructureLimit": 0, **AT_ONCE}
FOREVER = {"run_seconds": "forever"}


def free_all(api: Api, namespace: str) -> None:
    """As `opendataflow cleanup` does it, for namespaces that nobody waits for."""
    for application in api.items(applications(namespace)):
        with suppress(Refused):  # it has gone
            path = f"{applications(namespace)}/{application['metadata']['name']}"
            api.patch(path, {"metadata": {"finalizers": None}})


@pytest.fixture(scope="module")
def spark_cluster(cluster: Api) -> Api:
    """The cluster, which has the stand-in's definition."""
    install(cluster)
    return cluster


@pytest.fixture(scope="module")
def lasting(
    postgres_server: str, template_database: str, spark_cluster: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lasting]:
    @contextmanager
    def make() -> Iterator[Scene]:
        with (
            fresh_database(postgres_server, template_database) as dsn,
            contextmanager(fresh_namespace)(spark_cluster) as namespace,
        ):
            folder = tmp_path_factory.mktemp("operators")
            with new_scene(dsn, spark_cluster, namespace, folder) as made, operating(spark_cluster, namespace):
                yield made
            free_all(spark_cluster, namespace)

    made = Lasting(make)
    yield made
    made.leave()


@pytest.fixture
def steady(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """One operator for the tests that do not end it."""
    yield from lasting.lend(request)


@pytest.fixture
def own(dsn: str, spark_cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """A database and namespace of its own, without anybody who picks up SparkApplications."""
    with new_scene(dsn, spark_cluster, namespace, tmp_path) as made:
        yield made
    free_all(spark_cluster, namespace)


def resource(
    name: str,
    driver: dict[str, str] | None = None,
    template: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A DataFlowJob with SparkApplications. `driver`: what its pods do. `template`: more of the spec."""
    written = {
        "type": "Python",
        "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///app/load.py",
        "driver": {"annotations": pod_annotations(**(driver or {}))},
        "executor": {"instances": 1},
        **(template or {}),
    }
    whole = {"spec": written, **({"metadata": metadata} if metadata else {})}
    made = job(name, [f"{name}-in"], [f"{name}-out"], **spec)
    del made["spec"]["podTemplate"]
    made["spec"]["runtime"] = {"sparkApplication": {"template": whole}}
    return made


def flow(scene: Scene, name: str, chunks: int = 1, driver: dict[str, str] | None = None, **more: Any) -> None:
    """Apply such a job with its data sets."""
    scene.apply(dataset(f"{name}-in", chunks), dataset(f"{name}-out"), resource(name, driver, **more))


def of(scene: Scene, name: str) -> list[Object]:
    """The SparkApplications of a job, the oldest first."""
    found = scene.api.items(applications(scene.namespace))
    return [each for each in found if each["metadata"]["name"].startswith(f"{name}-r")]


def state_of(application: Object) -> str:
    """The last state that the Spark operator has written; empty before it has."""
    return str(application.get("status", {}).get("applicationState", {}).get("state", ""))


def delete_application(scene: Scene, name: str) -> None:
    (first,) = of(scene, name)
    scene.api.delete(f"{applications(scene.namespace)}/{first['metadata']['name']}")


def all_is_released(scene: Scene) -> None:
    wait_until(
        lambda: not [each for each in scene.api.items(applications(scene.namespace)) if _kept(each)],
        "all SparkApplications are released",
        SECONDS,
    )


def _kept(application: Object) -> bool:
    return FINALIZER in (application["metadata"].get("finalizers") or [])


# How they end -----------------------------------------------------------------------------------------------


def test_each_chunk_is_one_application_whose_driver_is_judged(steady: Scene) -> None:
    flow(steady, "load", 3, {"run_seconds": "1"}, parallelism=2)
    steady.until_done("load", 3)
    assert steady.classes("load") == [None] * 3
    assert len({run["pod_uid"] for run in steady.runs("load")}) == 3
    assert len(of(steady, "load")) == 3
    all_is_released(steady)
    assert all(LABEL_DONE in each["metadata"]["labels"] for each in of(steady, "load"))
    assert steady.recorder.most["load"] <= 2
    steady.is_right()


def test_driver_and_executor_have_the_chunk_s_variables_and_its_context(steady: Scene) -> None:
    flow(steady, "seen", 1, FOREVER, env={"PRICE": "$5 $(HOME)"})
    (driver,) = steady.running("seen")
    pods = f"/api/v1/namespaces/{steady.namespace}/pods"
    executors = (
        f"{pods}?labelSelector=spark-role=executor,sparkoperator.k8s.io/app-name={driver.removesuffix('-driver')}"
    )
    wait_until(lambda: len(steady.api.items(executors)) == 1, "there is an executor", SECONDS)
    (executor,) = steady.api.items(executors)
    for pod in (steady.api.get(steady.pod_path(driver)), executor):
        variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert variables["dataid"] == "0-0"
        assert variables["cmd"] == "local:///app/load.py"
        assert variables["PRICE"] == "$$5 $$(HOME)"
        assert variables["DATAFLOW_CONTEXT"] == "/etc/opendataflow/context.json"
        assert json.loads(pod["metadata"]["annotations"][ANNOTATION_CONTEXT])["data_id"] == "0-0"
        assert any(volume.get("downwardAPI") for volume in pod["spec"]["volumes"])
    assert LABEL_RUN not in executor["metadata"]["labels"]
    steady.annotate(driver, run_seconds=0)
    steady.until_done("seen", 1)
    steady.is_right()


def test_an_exit_code_consumes_the_program_s_budget(steady: Scene) -> None:
    flow(steady, "failing", 1, {"exit_code": "3"}, retry={"limit": 1, **AT_ONCE})
    steady.until_failed("failing")
    assert steady.classes("failing") == ["Application"] * 2
    assert steady.consumed("failing") == [(2, 0)]
    assert steady.runs("failing")[0]["message"].startswith("exit code 3")
    steady.is_right()


def test_a_submission_that_fails_is_infrastructure_and_says_why(steady: Scene) -> None:
    metadata = {"annotations": pod_annotations(submission_error="no such class: org.example.Load")}
    flow(steady, "unsubmitted", retry=ONCE, metadata=metadata)
    steady.until_failed("unsubmitted")
    assert steady.classes("unsubmitted") == ["Infrastructure"]
    sentence = "could not submit it: no such class: org.example.Load (SubmissionFailed)"
    assert sentence in steady.sees("unsubmitted", "Succeeded", "False", "ChunksFailed")
    all_is_released(steady)
    steady.is_right()


def test_a_driver_without_an_image_is_seen_and_ends_at_the_start_deadline(steady: Scene) -> None:
    flow(steady, "imageless", 1, {"image_pull": "fail"}, retry=ONCE, startDeadline="30s")
    assert "none/spark:1" in steady.sees("imageless", "Progressing", "True", "ImagePull")
    steady.until_failed("imageless")
    assert "image pull" in steady.runs("imageless")[0]["message"]
    steady.is_right()


def test_a_run_is_stopped_at_its_deadline(steady: Scene) -> None:
    flow(steady, "slow", 1, FOREVER, retry=ONCE, runDeadline="2s")
    steady.until_failed("slow")
    assert steady.classes("slow") == ["DeadlineExceeded"]
    steady.is_right()


def test_a_driver_described_by_a_pod_template_is_a_run_too(steady: Scene) -> None:
    described = {"spec": {"containers": [{"name": "proxy", "image": "none/proxy:1"}]}}
    sidecar = {"annotations": pod_annotations(run_seconds=1, sidecar="keeps-running"), "template": described}
    flow(steady, "described", template={"driver": sidecar})
    steady.until_done("described", 1)
    (pod,) = steady.pods("described")
    assert [each["name"] for each in pod["spec"]["containers"]] == ["spark-kubernetes-driver", "proxy"]
    assert pod["status"]["phase"] == "Running"
    steady.is_right()


# Others have their hands in it ------------------------------------------------------------------------------


def test_a_driver_deleted_by_somebody_is_tried_again(steady: Scene) -> None:
    flow(steady, "deleted", 1, FOREVER, retry={"limit": 0, **AT_ONCE})
    (first,) = steady.running("deleted")
    steady.api.delete(steady.pod_path(first))
    second = steady.another("deleted", first)
    assert steady.classes("deleted") == ["Infrastructure", None]
    assert "deleted by somebody" in steady.runs("deleted")[0]["message"]
    steady.annotate(second, run_seconds=0)
    steady.until_done("deleted", 1)
    steady.is_right()


def test_an_application_deleted_by_somebody_is_tried_again_when_its_driver_is_dead(steady: Scene) -> None:
    flow(steady, "withdrawn", 1, {**FOREVER, "stop_seconds": "3"}, retry={"limit": 0, **AT_ONCE})
    (first,) = steady.running("withdrawn")
    delete_application(steady, "withdrawn")
    second = steady.another("withdrawn", first)
    assert steady.classes("withdrawn") == ["Infrastructure", None]
    steady.annotate(second, run_seconds=0)
    steady.until_done("withdrawn", 1)
    steady.is_right()  # never two at a time


def test_an_application_that_is_deleted_when_its_driver_has_succeeded_has_succeeded(steady: Scene) -> None:
    flow(steady, "raced", 1, FOREVER)
    (first,) = steady.running("raced")
    steady.annotate(first, run_seconds=0)
    steady.api.wait(steady.pod_path(first), lambda pod: pod["status"]["phase"] == "Succeeded", "it succeeded")
    delete_application(steady, "raced")
    steady.until_done("raced", 1)
    assert steady.classes("raced") == [None]
    steady.is_right()


# What people ask --------------------------------------------------------------------------------------------


def test_chunks_are_asked_for_again_by_a_patch(steady: Scene) -> None:
    flow(steady, "again", 2)
    steady.until_done("again", 2)
    steady.patch("again", resubmit={"id": "fix-1", "chunks": ["0-0"]})
    wait_until(lambda: len(steady.runs("again")) == 3, "it runs again", SECONDS)
    steady.until_done("again", 2)
    assert len(of(steady, "again")) == 3
    steady.is_right()


def test_suspending_lets_them_go_on_and_starts_nothing_new(steady: Scene) -> None:
    flow(steady, "paused", 3, FOREVER, parallelism=1)
    (first,) = steady.running("paused")
    steady.patch("paused", suspend=True)
    steady.sees("paused", "Suspended", "True", "Suspended")
    steady.annotate(first, run_seconds=0)
    steady.until_done("paused", 1)
    wait_until(lambda: steady.database.running("paused") == 0, "nothing runs", SECONDS)
    assert len(of(steady, "paused")) == 1
    steady.is_right()


def test_cancelling_ends_the_driver_and_frees_the_chunk(steady: Scene) -> None:
    flow(steady, "stopped", 1, FOREVER)
    (first,) = steady.running("stopped")
    steady.apply(action("stop-it", job="stopped", action="cancel", chunks=["0-0"]))
    steady.until_failed("stopped")
    assert steady.classes("stopped") == ["Cancelled"]
    pod = steady.api.find(steady.pod_path(first))
    assert pod is None or pod["status"]["phase"] == "Failed"
    steady.is_right()


@pytest.mark.parametrize(("policy", "state"), [("Drain", "DONE"), ("Cancel", "FAILED")])
def test_a_job_that_is_deleted_lets_its_runs_end_or_ends_them(steady: Scene, policy: str, state: str) -> None:
    name = f"gone-{policy.lower()}"
    flow(steady, name, 1, FOREVER, onDelete=policy)
    (first,) = steady.running(name)
    steady.api.kubectl(f"--namespace={steady.namespace}", "delete", "dfj", name)
    if policy == "Drain":
        steady.annotate(first, run_seconds=0)
    wait_until(lambda: steady.database.states(name)[state] == 1, f"its task is {state}", SECONDS)
    all_is_released(steady)
    steady.is_right()


# What is refused --------------------------------------------------------------------------------------------


def test_what_a_run_can_not_honour_is_reported_before_anything_starts(steady: Scene) -> None:
    flow(steady, "restarting", template={"restartPolicy": {"type": "Always"}})
    message = steady.sees("restarting", "Stalled", "True", "InvalidSpec")
    assert "template.spec.restartPolicy can only be Never" in message
    assert of(steady, "restarting") == []


def test_what_the_api_server_refuses_stalls_the_job_until_it_is_fixed(steady: Scene) -> None:
    flow(steady, "mistyped", template={"type": "Cobol"})
    assert 'Unsupported value: "Cobol"' in steady.sees("mistyped", "Stalled", "True", "NotCreatable")
    steady.apply(resource("mistyped"))
    steady.until_done("mistyped", 1)
    steady.is_right()


def test_a_pod_template_beside_it_is_refused_with_where_to_write_it(steady: Scene) -> None:
    made = resource("beside")
    made["spec"]["podTemplate"] = {"spec": {}}
    with pytest.raises(subprocess.CalledProcessError) as refused:
        steady.apply(made)
    assert "the pods of a SparkApplication are described in runtime.sparkApplication.template.spec" in str(
        refused.value.stderr
    )


def test_passwords_come_from_secrets_and_are_kept_nowhere_else(steady: Scene) -> None:
    planted = "hunter2-in-a-secret"
    secrets = f"/api/v1/namespaces/{steady.namespace}/secrets"
    steady.api.create(secrets, {"metadata": {"name": "db"}, "stringData": {"password": planted}})
    credentials = {"secretRef": {"name": "db", "key": "password"}}
    made = resource("secretive", FOREVER)
    steady.apply(dataset("secretive-in", 1, credentials=credentials), dataset("secretive-out"), made)
    (driver,) = steady.running("secretive")
    variables = steady.api.get(steady.pod_path(driver))["spec"]["containers"][0]["env"]
    password = next(each for each in variables if each["name"] == "secretive_in_password")
    assert password["valueFrom"] == {"secretKeyRef": {"name": "db", "key": "password"}}
    steady.annotate(driver, run_seconds=0)
    steady.until_done("secretive", 1)
    kinds = "sparkapplications,pods,dataflowjobs,datasets,events"
    shown = steady.api.kubectl(f"--namespace={steady.namespace}", "get", kinds, "--output=json")
    assert "secretive_in_password" in shown
    assert planted not in shown
    assert planted not in steady.operators.made[0].output()
    assert planted not in str([steady.runs("secretive"), steady.tasks("secretive")])
    steady.is_right()


def test_a_ciphertext_is_refused_with_what_to_do(steady: Scene) -> None:
    sealed = {"encryptedPassword": "df1:x", "passkeySecretRef": {"name": "keys", "key": "passkey"}}
    steady.apply(dataset("sealed-in", 1, credentials=sealed), dataset("sealed-out"), resource("sealed"))
    assert "write credentials.secretRef" in steady.sees("sealed", "Stalled", "True", "InvalidSpec")


# Nobody there -----------------------------------------------------------------------------------------------


def test_one_that_nobody_picks_up_is_given_up_at_its_start_deadline(own: Scene) -> None:
    own.start()
    flow(own, "ignored", retry=ONCE, startDeadline="5s")
    own.until_failed("ignored")
    assert own.classes("ignored") == ["Infrastructure"]
    assert "does a Spark operator watch" in own.runs("ignored")[0]["message"]
    own.is_right()


def test_why_nothing_runs_is_seen_while_nobody_picks_it_up(own: Scene) -> None:
    own.start()
    flow(own, "waiting")
    assert "nobody has picked up" in own.sees("waiting", "Progressing", "True", "SubmissionPending")
    with operating(own.api, own.namespace):
        own.until_done("waiting", 1)
    own.is_right()


def test_without_the_kind_the_job_says_what_to_install_and_goes_on_when_it_is_there(
    dsn: str, own_cluster: OwnCluster, tmp_path: Path
) -> None:
    api = own_cluster.api
    namespace = new_namespace(api)
    with new_scene(dsn, api, namespace, tmp_path) as scene:
        operator = scene.start()
        flow(scene, "early", 1)
        message = scene.sees("early", "Stalled", "True", "NotCreatable")
        assert "install the Kubeflow Spark operator" in message
        install(api)
        scene.apply(resource("early", env={"AGAIN": "1"}))
        with operating(api, namespace):
            scene.until_done("early", 1)
        assert scene.consumed("early") == [(0, 0)]
        scene.is_right()
        assert operator.healthy


# Operators come and go --------------------------------------------------------------------------------------


def test_an_operator_that_is_killed_is_followed_by_one_that_goes_on(own: Scene) -> None:
    with operating(own.api, own.namespace):
        first = own.start()
        flow(own, "followed", 3, FOREVER, parallelism=3)
        names = own.running("followed", 3)
        first.operator.kill()
        own.annotate(names[0], run_seconds=0)
        own.api.wait(own.pod_path(names[0]), lambda pod: pod["status"]["phase"] == "Succeeded", "one has ended")
        own.operators.restart()
        own.until_done("followed", 1)
        for name in names[1:]:
            own.annotate(name, run_seconds=0)
        own.until_done("followed", 3)
    assert len(own.runs("followed")) == 3
    own.is_right()


def test_a_driver_that_has_ended_and_gone_while_no_operator_ran_has_its_outcome_in_its_application(own: Scene) -> None:
    with operating(own.api, own.namespace):
        first = own.start()
        flow(own, "missed", 2, FOREVER, parallelism=2, retry={"limit": 0, **AT_ONCE})
        names = own.running("missed", 2)
        first.operator.kill()
        own.annotate(names[0], run_seconds=0)
        own.annotate(names[1], run_seconds=0, exit_code=4)

        def states() -> list[str]:
            return sorted(map(state_of, of(own, "missed")))

        wait_until(lambda: states() == ["COMPLETED", "FAILED"], "the Spark operator has seen it", SECONDS)
        for name in names:
            own.api.delete(own.pod_path(name))
            own.api.wait_gone(own.pod_path(name))
        own.operators.restart()
        own.until_done("missed", 1)
        own.until_failed("missed")
    assert sorted(map(str, own.classes("missed"))) == ["Application", "None"]
    assert sorted(run["message"] for run in own.runs("missed")) == ["exit code 0", "exit code 4"]
    own.is_right()


def test_the_outcome_of_one_that_was_deleted_meanwhile_is_kept_until_it_is_committed(own: Scene) -> None:
    with operating(own.api, own.namespace):
        first = own.start()
        flow(own, "kept", 1, FOREVER)
        (driver,) = own.running("kept")
        first.operator.kill()
        own.annotate(driver, run_seconds=0)
        path = f"{applications(own.namespace)}/{driver.removesuffix('-driver')}"

        own.api.wait(path, lambda application: state_of(application) == "COMPLETED", "it is completed")
        wait_a_second = own.api.get(path)["status"]["terminationTime"]
        wait_until(lambda: _now(own) > wait_a_second, "a second later", SECONDS)
        own.api.delete(path)
        own.api.wait_gone(own.pod_path(driver))
        own.operators.restart()
        own.until_done("kept", 1)
        assert own.classes("kept") == [None]
    own.is_right()


def _now(scene: Scene) -> str:
    """The clock of Postgres, as the cluster writes it."""
    (row,) = scene.database.rows("""SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS now""")
    return str(row["now"])


# Nothing hangs ----------------------------------------------------------------------------------------------


@contextmanager
def left_alone(scene: Scene) -> Iterator[None]:
    """An operator that has gone for good while two of its applications run."""
    with operating(scene.api, scene.namespace):
        operator = scene.start()
        flow(scene, "left", 2, FOREVER, parallelism=2)
        scene.running("left", 2)
        operator.operator.stop()
        yield


def test_what_an_operator_has_left_is_freed_by_cleanup(own: Scene) -> None:
    with left_alone(own):
        path = f"/api/v1/namespaces/{own.namespace}"
        own.api.delete(path)
        code, output = cleanup(own, "--namespace", own.namespace)
        assert code == 0, output
        assert f"namespace {own.namespace}: 2 SparkApplications freed" in output
    own.api.wait_gone(path, SECONDS)
    assert {kind.label for kind in _KINDS} >= {LABEL_APPLICATION}


def test_a_namespace_with_running_applications_is_deleted_while_the_operator_works(own: Scene) -> None:
    with operating(own.api, own.namespace):
        operator = own.start()
        flow(own, "leaving", 2, FOREVER, parallelism=2)
        own.running("leaving", 2)
        path = f"/api/v1/namespaces/{own.namespace}"
        own.api.delete(path)
        own.api.wait_gone(path, SECONDS)
        assert operator.healthy
