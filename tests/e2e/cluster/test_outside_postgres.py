"""The life of an installation with a Postgres outside: in two namespaces, with what goes wrong there, an upgrade with a
migration and the way back. The tests share it, and each leaves it as it was."""

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.names import LABEL_JOB, LABEL_RUN
from tests.e2e import next_version
from tests.e2e.cluster import reaching
from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installing import (
    KEEP_DEFINITIONS,
    RELEASE,
    image_values,
    install,
    let_end,
    long_job,
    running,
    uninstall,
)
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.times import Times
from tests.helm.chart import CHART
from tests.kube.cluster.api import Object
from tests.kube.conftest import Kubectl, apply_resources, leave, new_namespace
from tests.kube.jobs import dataset, documents, job
from tests.sql.newer import NEXT, NEXT_APPLIED
from tests.waiting import wait_until

SECONDS = 300
SECRET = "ours"
PASSFILE = "/etc/passfile/passfile"
VALUES = (
    f"--set=database.existingSecret={SECRET}",
    f'--set-json=extraVolumes=[{{"name": "passfile", "secret": {{"secretName": "{SECRET}"}}}}]',
    '--set-json=extraVolumeMounts=[{"name": "passfile", "mountPath": "/etc/passfile"}]',
)


@dataclass(frozen=True)
class Outside:
    """An operator in `home`, which works there and in `other`; its Postgres is in a third namespace."""

    cluster: RealCluster
    home: Kubectl
    other: Kubectl
    postgres: Kubectl
    dsn: str
    busybox: str
    begun: str = ""
    """When helm began to install it."""

    def operator_pod(self) -> Object:
        """The newest pod of the operator, or nothing."""
        found = self.home.json("get", "pods", "--selector=app.kubernetes.io/component=operator")["items"]
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return alive[0] if alive else {}

    def log(self, container: str = "operator") -> str:
        """The log of the operator, or of its init container."""
        return self.home("logs", f"deployment/{RELEASE}", f"--container={container}")

    def readyz(self) -> str:
        """What the operator says of itself."""
        path = f"/api/v1/namespaces/{self.home.namespace}/services/{RELEASE}:http/proxy/readyz"
        return self.cluster.api.text("GET", path)

    def restart(self) -> None:
        """As the documentation has it; the operator need not become ready."""
        self.home("rollout", "restart", f"deployment/{RELEASE}")

    def until_ready(self) -> None:
        """Wait until the Deployment is as it should be."""
        self.home("rollout", "status", f"deployment/{RELEASE}", f"--timeout={SECONDS}s")

    def point_to(self, dsn: str) -> None:
        """Write the Secret with the address of Postgres, and with its password in a passfile of libpq."""
        parts = conninfo_to_dict(dsn)
        content = {
            "dsn": f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}?passfile={PASSFILE}",
            "passfile": f"*:*:*:{parts['user']}:{parts['password']}\n",
        }
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": content}
        self.home("apply", "-f-", stdin=json.dumps(secret))

    def helm(self, *arguments: str) -> str:
        """Run helm in the namespace of the release."""
        return self.cluster.helm(self.home.namespace, *arguments)

    def heal(self) -> None:
        """Bring back what the chart has made."""
        self.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", "--wait", "--timeout=4m")

    def short_job(self, where: Kubectl, name: str) -> None:
        """Apply a job of two chunks that only say which."""
        runtime = {"script": {"image": self.busybox, "command": ["sh", "-c", "echo $dataid"]}}
        made = job(name, [f"{name}-in"], [f"{name}-out"], runtime=runtime)
        where("apply", "-f-", stdin=documents(dataset(f"{name}-in", 2), dataset(f"{name}-out"), made))

    def ask(self, query: str) -> str:
        """Ask Postgres; return its answer in one line for each row."""
        psql = ("psql", "--username=dataflow", "--dbname=dataflow", "--no-align", "--tuples-only")
        return self.postgres("exec", f"{RELEASE}-postgres-0", "--", *psql, f"--command={query}").strip()


@contextmanager
def namespaces(cluster: RealCluster, number: int) -> Iterator[list[Kubectl]]:
    made = [new_namespace(cluster.api) for _ in range(number)]
    yield [Kubectl(cluster.api, name) for name in made]
    for name in made:
        leave(cluster.api, name)


@pytest.fixture(scope="module")
def outside(cluster: RealCluster) -> Iterator[Outside]:
    """Shared by the tests here; Postgres is the chart's own, put where no operator is."""
    with left_out_when_unavailable():
        busybox = cluster.image("busybox")
        postgres_image = image_values(cluster, database_builtIn_image="postgres")
    apply_resources(cluster.api)
    with namespaces(cluster, 3) as (home, other, postgres):
        cluster.namespaces = [each.namespace for each in (home, other, postgres)]
        only = ("--show-only=templates/postgres.yaml", "--set=database.builtIn.persistence.enabled=false")
        rendered = cluster.helm(postgres.namespace, "template", RELEASE, str(CHART), *only, *postgres_image)
        postgres("apply", "-f-", stdin=rendered)
        postgres("rollout", "status", f"statefulset/{RELEASE}-postgres", f"--timeout={SECONDS}s")
        secret = postgres.json("get", "secret", f"{RELEASE}-postgres")
        dsn = base64.b64decode(secret["data"]["dsn"]).decode()
        made = Outside(cluster, home, other, postgres, dsn, busybox)
        made.point_to(dsn)
        watched = [home.namespace, other.namespace]
        begun = install(cluster, home.namespace, KEEP_DEFINITIONS, *VALUES, watched=watched)
        yield replace(made, begun=begun.isoformat())
        uninstall(cluster, home.namespace)


@pytest.fixture(autouse=True)
def shown(cluster: RealCluster, outside: Outside) -> None:
    """What is shown beside a failure."""
    cluster.namespaces = [each.namespace for each in (outside.home, outside.other, outside.postgres)]


def container_state(pod: Object, container: str) -> dict[str, Any]:
    """The status of an init container; empty before there is one."""
    statuses: list[dict[str, Any]] = pod.get("status", {}).get("initContainerStatuses", [])
    return next((one for one in statuses if one["name"] == container), {})


def ended_with(pod: Object) -> str:
    """What the init container has left as its last words, whether it is to be started again or has been."""
    status = container_state(pod, "migrate")
    found = [status.get(when, {}).get("terminated", {}).get("message", "") for when in ("state", "lastState")]
    return " ".join(found)


def test_jobs_of_two_namespaces_run_on_a_postgres_of_a_third(outside: Outside, times: Times) -> None:
    pod = outside.operator_pod()
    ready = next(one for one in pod["status"]["conditions"] if one["type"] == "Ready")
    times.between("helm install -> operator ready", outside.begun, ready["lastTransitionTime"])
    jobs = {"here": outside.home, "there": outside.other}
    for name, where in jobs.items():
        outside.short_job(where, name)
    for name, where in jobs.items():
        where("wait", f"dfj/{name}", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
    assert outside.ask("SELECT count(*) FROM opendataflow.run WHERE state = 'SUCCEEDED'") == "4"


def test_an_operator_that_gets_no_database_says_why_and_begins_by_itself_when_the_secret_is_right(
    outside: Outside,
) -> None:
    home = outside.home
    try:
        home("delete", "secret", SECRET)
        outside.restart()

        def waits_for_the_secret() -> bool:
            described = home("describe", "pods", "--selector=app.kubernetes.io/component=operator")
            return "FailedMount" in described and f'secret "{SECRET}" not found' in described

        wait_until(waits_for_the_secret, "the pod names the Secret", SECONDS)
        nowhere = re.sub("@.*:5432", "@nowhere.invalid:5432", outside.dsn)
        outside.point_to(nowhere)

        def waits_for_the_host() -> bool:
            try:
                return "Postgres at nowhere.invalid:5432/dataflow does not answer" in outside.log("migrate")
            except subprocess.CalledProcessError:  # it has not begun
                return False

        wait_until(waits_for_the_host, "the init container names the host", SECONDS)
        outside.point_to(re.sub("//dataflow:.*@", "//dataflow:hunter2@", outside.dsn))
        outside.restart()
        refused = 'refuses the connection: password authentication failed for user "dataflow"'
        wait_until(lambda: refused in ended_with(outside.operator_pod()), "the pod says why", SECONDS)
        described = home("describe", "pods", "--selector=app.kubernetes.io/component=operator")
        assert refused in described
        assert "hunter2" not in described + outside.log("migrate")
    finally:
        outside.point_to(outside.dsn)
    outside.until_ready()


def test_rights_that_a_namespace_lacks_are_named_while_the_other_goes_on_and_count_when_they_are_back(
    outside: Outside,
) -> None:
    other = outside.other
    try:
        role = other.json("get", "role", RELEASE)
        role["rules"] = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
        other("replace", "-f-", stdin=json.dumps(role))
        outside.restart()  # it would look once a minute
        outside.until_ready()
        no_pods = f"create, delete, deletecollection, get, list, patch, watch pods in namespace {other.namespace}"
        wait_until(lambda: words(no_pods) <= words(outside.readyz()), "/readyz names what is missing", SECONDS)
        outside.short_job(other, "later")
        stalled = '--for=jsonpath={.status.conditions[?(@.type=="Stalled")].reason}=RightsMissing'
        other("wait", "dfj/later", stalled, f"--timeout={SECONDS}s")
        other("delete", "rolebinding", RELEASE)
        blind = f"in namespace {other.namespace}, so nothing is done there"
        wait_until(lambda: blind in outside.readyz(), "/readyz names what follows", SECONDS)
        assert blind in outside.log()
        assert "Traceback" not in outside.log()
        outside.short_job(outside.home, "meanwhile")
        outside.home("wait", "dfj/meanwhile", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
        assert other("get", "pods", f"--selector={LABEL_RUN}=later") == ""
    finally:
        outside.heal()
    other("wait", "dfj/later", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
    assert outside.readyz() == "ok\n"


def words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]+", text))


def test_runs_live_through_an_upgrade_with_a_migration_and_the_way_back_and_are_done_once(
    outside: Outside, tmp_path: Path
) -> None:
    cluster, home = outside.cluster, outside.home
    with left_out_when_unavailable():
        newer = image_values(cluster, image="next")
    home("apply", "-f-", stdin=long_job("long", outside.busybox, 4))
    before = running(cluster, home.namespace, 3)

    chart = str(next_version.chart(tmp_path))
    outside.helm("upgrade", RELEASE, chart, "--reset-then-reuse-values", *newer, "--wait", "--timeout=4m")
    try:
        assert NEXT_APPLIED in outside.log("migrate")
        assert running(cluster, home.namespace, 3) == before
        first = min(before)
        let_end(home, [first])
        wait_until(lambda: first not in running(cluster, home.namespace, 3), "the newer one goes on with the job", 300)
        between = running(cluster, home.namespace, 3)
        assert before - {first} < between
    finally:
        outside.helm("rollback", RELEASE, "--wait", "--timeout=4m")
    assert f"the tables of schema {int(NEXT.split('_')[0])}, which is newer, stay" in outside.log("migrate")
    assert running(cluster, home.namespace, 3) == between
    let_end(home, between)
    home("wait", "dfj/long", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
    done = "SELECT data_id, state FROM opendataflow.run WHERE opendataflow.bare_id(job) = 'long' ORDER BY 1"
    assert outside.ask(done).splitlines() == [f"{n}-{n}|SUCCEEDED" for n in range(4)]


def test_a_run_reaches_neither_postgres_nor_the_operator_nor_other_namespaces(
    outside: Outside, operator_image: str
) -> None:
    home, other, postgres = (each.namespace for each in (outside.home, outside.other, outside.postgres))
    command = ["/opt/opendataflow/bin/python", "-c", Path(reaching.__file__).read_text("utf-8")]
    script = {"image": operator_image, "command": command, "args": [home, postgres, other]}
    # The account of Spark drivers may do the most of all accounts that a job may have.
    template = {"spec": {"serviceAccountName": "opendataflow-spark", "automountServiceAccountToken": True}}
    made = job("spy", ["spy-in"], ["spy-out"], runtime={"script": script}, podTemplate=template)
    outside.other("apply", "-f-", stdin=documents(dataset("spy-in", 1), dataset("spy-out"), made))
    outside.other("wait", "dfj/spy", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
    log = outside.other("logs", f"--selector={LABEL_JOB}=spy", "--container=main")
    tried = json.loads(log.strip().splitlines()[-1])
    assert "password authentication failed" in tried.pop("postgres")
    assert tried.pop("own pods") == 200
    assert tried
    assert set(tried.values()) == {403}
