"""Passwords of both kinds on real nodes: runs log in with them, and then they are looked for wherever a cluster keeps
or shows anything. They may be in the user's Secrets and inside of the run's own containers, and nowhere else.

A mark that may be anywhere is looked for with them: where it is not found, nothing would be.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.faults.installation import SECONDS, Installation
from tests.e2e.cluster.installing import RELEASE
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.test_spark import spark_job
from tests.e2e.cluster.where_it_is import (
    Finds,
    look_at_api,
    look_at_logs,
    look_at_logs_of_nodes,
    look_at_postgres,
    look_into_process,
    processes_of,
    value_of,
    watched_processes,
)
from tests.kube.jobs import dataset, job
from tests.kube.scene import Flows
from tests.pods import pod_of
from tests.waiting import wait_until

POSTGRES = f"{RELEASE}-postgres-0"
USERS = ("reader", "writer", "chatty", "hushed")
"""Users of Postgres; for each there is a password."""

LOGIN = """
import os, sys, time
import psycopg

def login(data_set):
    parts = {"host": "hostname", "dbname": "database", "user": "username", "password": "password"}
    given = {part: os.environ[f"{data_set}_{name}"] for part, name in parts.items()}
    return psycopg.connect(**given, autocommit=True)

job, *data_sets = sys.argv[1:]
connections = [login(name) for name in data_sets]
for each in connections:
    each.execute("INSERT INTO login VALUES (%s, session_user)", (job,))
print(f"{job} has logged in", flush=True)
while not connections[0].execute("SELECT open FROM gate").fetchone()[0]:
    time.sleep(0.2)
sys.exit(int(os.environ["EXIT"]))
"""
"""Logs in to its data sets, goes on until the test ends it, and ends with the exit code in EXIT."""

JDBC = """
import os

from pyspark.sql import SparkSession

SECRETS = ("in_password", "out_password")


def secrets_of(_):
    return [[os.environ[name] for name in (*SECRETS, "dataid", "DATAFLOW_RUN_ID", "CRASH")]]


with SparkSession.builder.getOrCreate() as spark:
    here = secrets_of(None)[0]
    there = spark.sparkContext.parallelize(range(4), 4).mapPartitions(secrets_of).collect()
    assert all(found == here for found in there), "an executor sees something else"
    url = f"jdbc:postgresql://{os.environ['in_hostname']}/{os.environ['in_database']}"
    reading = {"user": os.environ["in_username"], "password": os.environ["in_password"]}
    part = {"column": "id", "lowerBound": 0, "upperBound": 1000, "numPartitions": 4}
    rows = spark.read.jdbc(url, os.environ["in_tablename"], **part, properties=reading)
    writing = {"user": os.environ["out_username"], "password": os.environ["out_password"]}
    rows.selectExpr("id * 2 AS id").write.jdbc(url, os.environ["out_tablename"], "append", writing)
"""
"""Executors see what the driver sees, and all of them log in."""

PRINTS = "import os, sys; print(os.environ[sys.argv[1]]); sys.exit(1)"


@dataclass
class Planted:
    """Secrets that contain texts that occur nowhere else, and what has been found of these."""

    installation: Installation
    tokens: dict[str, str]
    finds: Finds

    @classmethod
    def at(cls, installation: Installation) -> "Planted":
        """Make new ones; the operator's own password is the one that the chart has made."""
        tokens = {name: secrets.token_hex(12) for name in (*USERS, "passkey", "other")}
        tokens["mark"] = f"m{secrets.token_hex(8)}"
        postgres = installation.api.get(f"/api/v1/namespaces/{installation.home}/secrets/{RELEASE}-postgres")
        tokens["operator"] = value_of(postgres, "password")
        return cls(installation, tokens, Finds(tokens))

    def secret(self, name: str) -> str:
        """A secret that needs care on every way that it takes."""
        return f"{self.tokens[name]} $(X) $$ '\"\\ü"

    @property
    def marked(self) -> str:
        """The job whose name is the mark: short enough to be in the names of its pods."""
        return self.tokens["mark"]

    @property
    def here(self) -> Flows:
        return self.installation.here

    def places(self, name: str) -> set[str]:
        return self.finds.places[name]

    # -- what is applied --------------------------------------------------------------------------------------

    def make_users(self) -> None:
        """In the built-in Postgres, by its standard input: nobody sees it among the arguments of a process."""
        statements = [
            "SET search_path = public",
            "CREATE TABLE raw AS SELECT id FROM generate_series(1, 1000) id",
            "CREATE TABLE clean (id bigint)",
            "CREATE TABLE login (job text, username text)",
            "CREATE TABLE gate AS SELECT false AS open",
        ]
        for user in USERS:
            password = self.secret(user).replace("'", "''")
            statements.append(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        statements.append("GRANT SELECT ON raw, gate TO reader, writer")
        statements.append("GRANT INSERT ON login TO reader, writer")
        statements.append("GRANT ALL ON clean TO writer")
        self.psql(";\n".join(statements))

    def psql(self, statements: str) -> None:
        inside = ("exec", "--stdin", POSTGRES, "--", "psql", "--set=ON_ERROR_STOP=1", "--host=/var/run/postgresql")
        self.installation.api.kubectl(
            f"--namespace={self.installation.home}", *inside, "--username=dataflow", stdin=f"{statements};"
        )

    def make_secrets(self) -> None:
        """As an administrator does it without a file of it: `kubectl apply` would note all of it in an annotation."""
        for name in ("reader", "passkey", "chatty", "hushed"):
            body = {"metadata": {"name": name}, "stringData": {"it": self.secret(name)}}
            self.installation.api.create(f"/api/v1/namespaces/{self.here.namespace}/secrets", body)

    def data_set(self, name: str, user: str, chunks: int | None = 1, **spec: Any) -> dict[str, Any]:
        host = f"{RELEASE}-postgres.{self.installation.home}.svc"
        table = {"in": "raw", "out": "clean"}.get(name, name)
        location = {"kind": "postgres", "hostname": host, "database": "dataflow", "tablename": table, "username": user}
        return dataset(name, chunks, location=location, credentials=spec)

    def sealed(self, passkey: str) -> dict[str, Any]:
        text = seal(
            self.secret("writer"), self.secret(passkey), salt=os.urandom(SALT_BYTES), nonce=os.urandom(NONCE_BYTES)
        )
        return {"encryptedPassword": text, "passkeySecretRef": {"name": "passkey", "key": "it"}}

    def apply(self, image: str, spark_image: str) -> None:
        """The jobs, each of which is about one thing."""

        def python(name: str, inputs: list[str], *words: str, code: int = 0, **spec: Any) -> dict[str, Any]:
            script = {"image": image, "command": ["python", "-c", *words]}
            more = {"env": {"EXIT": str(code)}, "retry": {"limit": 0}, **spec}
            return job(name, inputs, [], runtime={"script": script}, **more)

        def in_secret(name: str) -> dict[str, Any]:
            return {"secretRef": {"name": name, "key": "it"}}

        spark = {"image": spark_image, "executor": {"instances": 1, "memory": "512m"}}
        program, jdbc = spark_job("jdbc", ["in"], JDBC, env={"CRASH": "$(dataid) $$ 'x'"}, spark=spark)
        jdbc["spec"]["outputs"] = ["out"]
        self.here.apply(
            program,
            self.data_set("in", "reader", **in_secret("reader")),
            self.data_set("out", "writer", None, **self.sealed("passkey")),
            self.data_set("sealed", "writer", **self.sealed("passkey")),
            self.data_set("locked", "writer", **self.sealed("other")),
            self.data_set("chatty", "chatty", **in_secret("chatty")),
            self.data_set("hushed", "hushed", **in_secret("hushed")),
            python(self.marked, ["in", "sealed"], LOGIN, self.marked, "in", "sealed"),
            python("fails", ["in", "sealed"], LOGIN, "fails", "sealed", "in", code=3),
            python("locked", ["locked"], LOGIN, "locked", "locked"),
            python("chatty", ["chatty"], PRINTS, "chatty_password"),
            python("hushed", ["hushed"], PRINTS, "hushed_password", keepLog=False),
            jdbc,
        )

    def has_logged_in(self) -> bool:
        """Whether both jobs have logged in to their data sets; they go on then."""
        for name in (self.marked, "fails"):
            assert self.here.database.states(name)["FAILED"] == 0, self.here.runs(name)[-1]
        return len(self.here.database.rows("SELECT FROM public.login")) == 4

    # -- what is looked at ------------------------------------------------------------------------------------

    def look_at_runs(self) -> None:
        """What changes while they run."""
        look_at_logs(self.finds, self.installation.api, self.here.namespace)
        for process in processes_of(self.installation.operator()["metadata"]["uid"]):
            look_into_process(self.finds, process, "the operator")

    def look_everywhere(self) -> None:
        """All of it."""
        self.look_at_runs()
        look_at_api(self.finds, self.installation.api)
        look_at_logs(self.finds, self.installation.api, self.installation.home)
        look_at_logs_of_nodes(self.finds, self.installation.cluster)
        look_at_postgres(self.finds, self.installation.api, self.installation.home, POSTGRES)


@pytest.fixture(scope="module")
def planted(
    cluster: RealCluster,
    lasting_installation: Installation,
    operator_image: str,
    spark_image: str,
) -> Planted:
    """All jobs have run; everything was looked at while they did, and after they had ended."""
    cluster.namespaces = lasting_installation.namespaces
    made = Planted.at(lasting_installation)
    here = made.here
    made.make_users()
    made.make_secrets()
    with left_out_when_unavailable(), watched_processes(made.finds):
        made.apply(operator_image, spark_image)
        for name in (made.marked, "fails"):
            here.running(name, 1, SECONDS)
        wait_until(made.has_logged_in, "they have logged in", SECONDS)
        made.look_everywhere()

        def spark_has_ended() -> bool:
            made.look_at_runs()
            return bool({"DONE", "FAILED"} & set(here.database.states("jdbc")))

        wait_until(spark_has_ended, "the Spark job has ended", SECONDS, every=3)
        made.psql("UPDATE public.gate SET open = true")
        for name in (made.marked, "fails", "locked", "chatty", "hushed"):
            here.until_ended(name, 1, SECONDS)
        here.is_released(SECONDS)
        made.look_everywhere()
    return made


# What runs do with them ----------------------------------------------------------------------------------------


def test_runs_log_in_with_passwords_of_both_kinds(planted: Planted) -> None:
    found = planted.here.database.rows("SELECT job, username FROM public.login ORDER BY job, username")
    assert {(row["job"], row["username"]) for row in found} == {
        (name, user) for name in (planted.marked, "fails") for user in ("reader", "writer")
    }
    assert planted.here.database.states(planted.marked) == {"DONE": 1}


def test_executors_log_in_with_passwords_of_both_kinds(planted: Planted) -> None:
    assert planted.here.database.states("jdbc") == {"DONE": 1}, planted.here.runs("jdbc")[-1]
    found = planted.here.database.rows("SELECT count(*) AS rows, sum(id) AS sum FROM public.clean")
    assert found == [{"rows": 1000, "sum": 1001000}]


def test_a_run_that_fails_has_the_end_of_its_log_kept(planted: Planted) -> None:
    (run,) = planted.here.runs("fails")
    assert (run["exit_code"], run["log_tail"]) == (3, "fails has logged in\n")


def test_another_passkey_is_reported_in_a_sentence(planted: Planted) -> None:
    (run,) = planted.here.runs("locked")
    assert "locked_password can't be opened" in run["message"]


# Where they are ------------------------------------------------------------------------------------------------


def test_the_scan_sees_a_mark_at_every_place(planted: Planted) -> None:
    kinds = {"pods", "events", "dataflowjobs", "log", "arguments", "memory", "kubelet", "containerd", "postgres"}
    assert kinds - planted.finds.kinds("mark") == set()


@pytest.mark.parametrize("name", ["reader", "passkey"])
def test_what_is_in_the_secret_of_a_user_occurs_nowhere_else(planted: Planted, name: str) -> None:
    assert planted.places(name) == {f"secrets {planted.here.namespace}/{name}"}


@pytest.mark.parametrize("name", ["writer", "other"])
def test_what_is_in_no_secret_occurs_nowhere(planted: Planted, name: str) -> None:
    assert planted.places(name) == set()


def test_the_password_of_the_operator_is_with_the_operator_and_with_helm(planted: Planted) -> None:
    home = planted.installation.home
    releases = {place for place in planted.places("operator") if place.startswith(f"helm {home}/")}
    assert releases
    assert planted.places("operator") - releases == {
        f"secrets {home}/{RELEASE}-postgres",
        "memory of the operator",
    }


def test_what_a_failed_program_prints_is_kept_as_it_is(planted: Planted) -> None:
    (run,) = planted.here.runs("chatty")
    assert {f"log {pod_of(run)}/main", "postgres opendataflow.run"} <= planted.places("chatty")


def test_what_a_failed_program_prints_stays_in_its_log_where_the_job_says_so(planted: Planted) -> None:
    (run,) = planted.here.runs("hushed")
    assert (run["message"], run["log_tail"] or "") == ("exit code 1", "")
    log = f"log {pod_of(run)}/main"
    assert planted.places("hushed") == {f"secrets {planted.here.namespace}/hushed", log}


# That it would be found ----------------------------------------------------------------------------------------


def test_the_scan_finds_what_is_planted_in_another_form(installation: Installation) -> None:
    texts = {name: secrets.token_hex(12) for name in ("url", "json", "base64", "row", "argument", "memory", "field")}
    finds, here = Finds(texts), installation.here
    data = {
        "url": quote(f"ü/{texts['url']}?"),
        "json": json.dumps({"dsn": f'"{texts["json"]}\\ü'}),
        "base64": base64.b64encode(f"a{texts['base64']}b".encode()).decode(),
    }
    body = {"metadata": {"name": "planted", "annotations": {f"odf/{texts['field']}": ""}}, "data": data}
    installation.api.create(f"/api/v1/namespaces/{here.namespace}/configmaps", body)
    look_at_api(finds, installation.api)
    for name in ("field", *data):
        assert finds.places[name] == {f"configmaps {here.namespace}/planted"}

    inside = ("exec", "--stdin", POSTGRES, "--", "psql", "--host=/var/run/postgresql", "--username=dataflow")
    planting = f"CREATE TABLE public.planted AS SELECT '{texts['row']}' AS it;"
    installation.api.kubectl(f"--namespace={installation.home}", *inside, stdin=planting)
    look_at_postgres(finds, installation.api, installation.home, POSTGRES)
    assert finds.places["row"] == {"postgres public.planted"}

    waits = "import sys; kept = sys.stdin.readline(); print('ready', flush=True); sys.stdin.readline()"
    command = [sys.executable, "-c", waits, texts["argument"]]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        left_out_when_unavailable(),
        watched_processes(finds),
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{texts['memory']}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        look_into_process(finds, Path(f"/proc/{process.pid}"), "it")
        wait_until(lambda: "arguments of a process" in finds.places["argument"], "its argument is seen", SECONDS)
        process.stdin.close()
    assert finds.places["argument"] == {"arguments of a process", "memory of it"}
    assert finds.places["memory"] == {"memory of it"}


# Rights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("account", [RELEASE, "opendataflow-spark"])
def test_an_account_of_the_chart_has_no_verb_on_secrets(installation: Installation, account: str) -> None:
    home, here = installation.home, installation.here.namespace
    of = home if account == RELEASE else here

    def rights(namespace: str, who: str) -> set[str]:
        asked = (f"--namespace={namespace}", "auth", "can-i", "--list", "--no-headers")
        lines = installation.api.kubectl(*asked, f"--as=system:serviceaccount:{of}:{who}").splitlines()
        return {line.split()[0] for line in lines if not line.startswith(" ")}

    assert "pods" in rights(here, account)
    for namespace in (home, here, "kube-system"):
        assert not {right for right in rights(namespace, account) if right.startswith(("secrets", "*"))}
