"""Pipelines as jobs on real nodes: projects out of a ConfigMap, out of a folder of the pod, and from a git server of
the cluster, for everybody and private; tests of commits; a step that fails.

The project is the example with one more step, which prints the rows: so the log of a run says whether they are right.
"""

import datetime
import io
from pathlib import Path
from typing import Any

import paramiko
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.e2e.cluster.real_cluster import RealCluster, restricted_pod
from tests.e2e.cluster.test_spark import SOON
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, documents, job
from tests.pods import pod_of
from tests.share import in_share
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline"
SERVER = Path(__file__).parent / "git_server.py"
TOKEN = "t0ken-of-nobody-else"
SHOW = "def run(df):\n    print(sorted(map(tuple, df.collect())))\n    return df\n"
ROWS = {
    "2013-01-01": "[('AA', 2, 1, 9.5), ('UA', 1, 0, 11.0)]",
    "2013-01-02": "[('AA', 1, 0, -8.0), ('B6', 1, 1, 31.0)]",
}
EXPECTED = '{"carrier": "UA", "flights": 1, "late": 0, "mean_delay": -3.0}'


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def project() -> dict[str, str]:
    """The files of the project, side by side."""
    found = (EXAMPLE / "project.yml", *EXAMPLE.glob("pipelines/delays/*.py"), *EXAMPLE.glob("sources/*"))
    made = {path.name: path.read_text("utf-8") for path in found}
    listed = "[arrived, by_carrier]"
    assert listed in made["project.yml"]
    made["project.yml"] = made["project.yml"].replace(listed, "[arrived, by_carrier, show]")
    tested = 'expected_inputs = [[{"a": 1}]]\nexpected_output = [{"a": 1}]\n\n\n'
    return {**made, "show.py": tested + SHOW}


def pipeline_job(name: str, place: dict[str, Any], *mounts: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A job that runs the pipeline for each of `days`; `mounts`: folders and the volumes that are there."""
    driver, conf = {"memory": "512m"}, {"spark.driver.extraJavaOptions": SOON}
    pipeline = {"project": place, "pipeline": "delays", "output": "/data", "driver": driver, "sparkConf": conf, **more}
    mounts = (("/data", {"emptyDir": {}}), *mounts)
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": "100m"}},
        "volumeMounts": [{"name": f"v{n}", "mountPath": folder} for n, (folder, _) in enumerate(mounts)],
    }
    volumes = [{"name": f"v{n}", **volume} for n, (_, volume) in enumerate(mounts)]
    template = {"spec": {"containers": [container], "volumes": volumes}}
    runtime, retry = {"pipeline": pipeline}, {"limit": 0}
    return job(name, ["days"], [f"{name}-out"], runtime=runtime, podTemplate=template, retry=retry)


def days(*ids: str) -> dict[str, Any]:
    return dataset("days", chunkSource={"list": list(ids)})


# It asks as runs do: a pod is ready before each node leads its Service's address to it.
ANSWERS = """
until python -c "import socket; [socket.create_connection(('$0', port), 5).close() for port in (443, 22)]" 2>/dev/null
do sleep 0.5; done
"""


class GitServer:
    """A git server in a namespace, whose certificate the ConfigMap `authority` has."""

    def __init__(self, kubectl: Kubectl, cluster: RealCluster, image: str) -> None:
        self._kubectl = kubectl
        host = f"git.{kubectl.namespace}.svc"
        self.url = f"https://{host}"
        key, certificate = self_signed(host)
        own, user = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
        self.key = written(user)
        self.by_ssh = {
            "url": f"ssh://git@{host}/private.git",
            "secretRef": {"name": "git", "key": "ssh-privatekey"},
            "knownHosts": [f"{host} {own.get_name()} {own.get_base64()}"],
        }
        ssh = {"server": written(own), "user.pub": user.get_base64()}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "git"}}
        ports = [{"name": f"p{port}", "port": port, "targetPort": target} for port, target in ((443, 8443), (22, 2222))]
        kubectl(
            "apply",
            "--filename=-",
            stdin=documents(
                secret("tls", {"tls.crt": certificate, "tls.key": key}),
                secret("ssh", ssh),
                secret("git", {"token": TOKEN, "ssh-privatekey": self.key}),
                {**service, "spec": {"selector": {"app": "git"}, "ports": ports}},
                config_map("authority", **{"ca.crt": certificate}),
                config_map("server", **{"git_server.py": SERVER.read_text("utf-8")}),
                config_map("project", **project()),
                {"apiVersion": "v1", "kind": "Pod", **self._pod(image)},
            ),
        )
        cluster.api.wait(
            f"/api/v1/namespaces/{kubectl.namespace}/pods/git",
            lambda pod: any(c["ready"] for c in pod["status"].get("containerStatuses", ())),
            "the git server is ready",
            300,
        )
        kubectl("exec", "git", "--", "timeout", "300", "sh", "-c", ANSWERS, host)
        self.first = kubectl("logs", "git").strip()

    @staticmethod
    def _pod(image: str) -> dict[str, Any]:
        volumes: list[dict[str, Any]] = [
            {"name": "project", "configMap": {"name": "project"}},
            {"name": "server", "configMap": {"name": "server"}},
            {"name": "tls", "secret": {"secretName": "tls"}},
            {"name": "ssh", "secret": {"secretName": "ssh"}},
            {"name": "data", "emptyDir": {}},
        ]
        mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
        token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "git", "key": "token"}}}
        ready = {"tcpSocket": {"port": 8443}, "periodSeconds": 1}
        program = "python /server/git_server.py"
        command = ["sh", "-c", f"{program} commit /project && exec {program} serve 2>/dev/null"]
        pod = restricted_pod("git", image, command, volumeMounts=mounts, env=[token], readinessProbe=ready)
        pod["metadata"]["labels"] = {"app": "git"}
        pod["spec"]["volumes"] = volumes
        return pod

    def place(self, repository: str, **more: Any) -> dict[str, Any]:
        """What a job says of one of its repositories."""
        return {"git": {"url": f"{self.url}/{repository}.git", "ref": "master", **more}}

    def commit(self, **files: str) -> str:
        """Commit some files; return the commit."""
        for name, text in files.items():
            self._kubectl("exec", "--stdin", "git", "--", "sh", "-c", f"mkdir -p /data/next && cat > /data/next/{name}",
                          stdin=text)  # fmt: skip
        return self._commit_in("/data/next")

    def _commit_in(self, folder: str) -> str:
        return self._kubectl("exec", "git", "--", "python", "/server/git_server.py", "commit", folder).strip()


def secret(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def written(key: paramiko.PKey) -> str:
    """A private key as its user has it."""
    text = io.StringIO()
    key.write_private_key(text)
    return text.getvalue()


def self_signed(host: str) -> tuple[str, str]:
    """A key, and a certificate that is its own authority."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "git")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    kind = serialization.PrivateFormat.PKCS8
    return (
        key.private_bytes(pem, kind, serialization.NoEncryption()).decode(),
        made.public_bytes(pem).decode(),
    )


TRUSTED = ("/authority", {"configMap": {"name": "authority"}})
TRUST = {"SSL_CERT_FILE": "/authority/ca.crt"}


@pytest.fixture
def git(operator: None, kubectl: Kubectl, cluster: RealCluster, spark_image: str) -> GitServer:  # noqa: ARG001
    return GitServer(kubectl, cluster, spark_image)


def trusting(made: dict[str, Any]) -> dict[str, Any]:
    made["spec"]["env"] = TRUST
    return made


def runs(database: Database, of: str) -> list[dict[str, Any]]:
    return database.rows(f"SELECT * FROM opendataflow.run WHERE opendataflow.bare_id(job) = '{of}' ORDER BY id")


def runs_that_started(database: Database, of: str) -> list[dict[str, Any]]:
    """Return the runs of a job without those that found no server: these are tried again, and count as no attempt."""
    return [run for run in runs(database, of) if "the git server does not answer" not in (run["message"] or "")]


def printed(kubectl: Kubectl, run: dict[str, Any]) -> str:
    """The log of a run's driver; Postgres keeps those of runs that have failed."""
    return kubectl("logs", pod_of(run), "--container=main")


def everything_in(dsn: str) -> str:
    """All rows of all tables."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'opendataflow'").fetchall()
        return "\n".join(
            str(row) for (table,) in tables for row in connection.execute(f"SELECT t::text FROM opendataflow.{table} t")
        )


def everything_shown(kubectl: Kubectl) -> str:
    """Specs, statuses, events, and the logs of all containers of runs."""
    shown = kubectl("get", "pods,dataflowjobs,datasets,events,configmaps", "--output=yaml")
    for pod in kubectl.json("get", "pods", "--selector=opendataflow.io/run")["items"]:
        shown += kubectl("logs", pod["metadata"]["name"], "--all-containers")
    return shown


@in_share(0)
@pytest.mark.timeout(1200)
def test_a_project_comes_out_of_a_config_map_or_a_folder_or_from_git_also_with_a_token_or_key_that_nobody_sees(
    git: GitServer, kubectl: Kubectl, database: Database, dsn: str
) -> None:
    names = {"project.yml": "project.yml", "flights.csv": "sources/flights.csv"}
    steps = {f"{name}.py": f"pipelines/delays/{name}.py" for name in ("arrived", "by_carrier", "show")}
    items = [{"key": key, "path": path} for key, path in {**names, **steps}.items()]
    token = {"username": "deploy", "secretRef": {"name": "git", "key": "token"}}
    jobs = [
        pipeline_job("files", {"configMap": "project"}),
        pipeline_job("folder", {"path": "/mine"}, ("/mine", {"configMap": {"name": "project", "items": items}})),
        trusting(pipeline_job("public", git.place("public"), TRUSTED)),
        trusting(pipeline_job("private", git.place("private", **token), TRUSTED)),
        pipeline_job("keyed", git.place("private", **git.by_ssh)),
        pipeline_job("broken", {"configMap": "broken"}),
    ]
    broken = {**project(), "by_carrier.py": "def run(df):\n    return df.select('nothing')\n"}
    outputs = [dataset(f"{made['metadata']['name']}-out") for made in jobs]
    first = days("2013-01-01")
    kubectl("apply", "--filename=-", stdin=documents(config_map("broken", **broken), first, *outputs, *jobs))
    good = ("files", "folder", "public", "private", "keyed")
    all_jobs = (*good, "broken")
    wait_until(
        lambda: all(database.states(of)["DONE"] + database.states(of)["FAILED"] for of in all_jobs), "all ended", 900
    )
    for of in good:
        (run,) = runs_that_started(database, of)
        assert (run["state"], run["metrics"].get("rows")) == ("SUCCEEDED", 2), (of, run["message"], run["log_tail"])
        assert ROWS["2013-01-01"] in printed(kubectl, run), of
        assert run["metrics"].get("commit") == (None if of in ("files", "folder") else git.first)
    (failed,) = runs(database, "broken")
    sentence = "by_carrier has failed: pipelines/delays/by_carrier.py, line 2: AnalysisException: [UNRESOLVED_COLUMN"
    assert failed["message"].startswith(f"exit code 1: {sentence}")
    query = "SELECT status, reason FROM opendataflow.chunk WHERE opendataflow.bare_id(dataset) = 'broken-out'"
    (chunk,) = database.rows(query)
    assert (chunk["status"], chunk["reason"]) == ("FAILED", failed["message"])
    shown = everything_shown(kubectl) + everything_in(dsn)
    assert git.first in shown
    assert TOKEN not in shown
    assert git.key.splitlines()[1] not in shown


@pytest.mark.timeout(1200)
def test_a_commit_whose_tests_fail_is_reported_by_a_condition_and_runs_go_on_with_the_one_before(
    git: GitServer, kubectl: Kubectl, database: Database
) -> None:
    made = trusting(pipeline_job("tested", git.place("public"), TRUSTED, requireTests=True))
    kubectl("apply", "--filename=-", stdin=documents(days("2013-01-01"), dataset("tested-out"), made))
    kubectl("wait", "dfj/tested", "--for=condition=TestsPassed", "--timeout=600s")
    by_carrier = project()["by_carrier.py"]
    assert EXPECTED in by_carrier
    bad = git.commit(**{"by_carrier.py": by_carrier.replace(EXPECTED, EXPECTED.replace("-3.0", "4.0"))})
    kubectl("apply", "--filename=-", stdin=documents(days("2013-01-01", "2013-01-02")))
    wait_until(lambda: database.states("tested")["DONE"] == 2, "both days are done", 600)
    tested = [(run["failure_class"], run["metrics"]["commit"]) for run in runs_that_started(database, "tested")]
    assert tested == [(None, git.first), ("NotStarted", bad), (None, git.first)]
    assert ROWS["2013-01-02"] in printed(kubectl, runs(database, "tested")[-1])
    kubectl("wait", "dfj/tested", "--for=condition=TestsPassed=False", "--timeout=300s")
    (found,) = (c for c in kubectl.json("get", "dfj", "tested")["status"]["conditions"] if c["type"] == "TestsPassed")
    assert found["message"].startswith(
        f"the tests of pipeline delays fail at commit {bad[:12]}: pipelines/delays/by_carrier.py, line 19: "
    )
    assert found["message"].endswith(f"runs go on at commit {git.first[:12]}, whose tests pass")
