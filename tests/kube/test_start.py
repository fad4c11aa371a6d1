"""What an operator says when it can't begin, and that it begins once it can: the wrong address, another schema, kinds
that the cluster does not know.

Seen at others: a pod that crashes again and again and whose log is a traceback; a password in it.
"""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from opendataflow.names import ExitCode
from opendataflow.store.connections.connection import connect
from opendataflow.store.migrations.schema import migrate
from tests.kube.conftest import OwnCluster, apply_resources, new_namespace
from tests.kube.recorder import with_finalizer
from tests.kube.scene import SECONDS, Running, Scene, new_scene
from tests.sql.newer import ADDITION, WORKS_FROM, newer_program
from tests.waiting import wait_until

MIGRATE = [sys.executable, "-c", "from opendataflow.control.main import main; main()", "migrate"]


def says(operator: Running, words: str) -> None:
    """Wait until it is not ready and says why."""

    def reported() -> bool:
        status, text = operator.probe("/readyz")
        return status == 503 and words in text

    wait_until(reported, f"/readyz says {words}: {operator.operator.output()[-2000:]}", SECONDS)


def migrated(dsn: str) -> None:
    """Bring a database to the schema of the program that this process carries."""

    async def bring() -> None:
        async with await connect(dsn) as connection:
            await migrate(connection)

    asyncio.run(bring())


@pytest.fixture
def user(dsn: str) -> Iterator[str]:
    """The address for a role of the test's own, which may do everything."""
    name = f"operator_{secrets.token_hex(4)}"  # others may use the same server
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD 'before'").format(Identifier(name)))
        yield make_conninfo(dsn, user=name, password="sesame")
        admin.execute(SQL("DROP ROLE {}").format(Identifier(name)))


def test_a_wrong_password_is_reported_without_an_end_and_is_used_once_it_is_right(
    scene: Scene, user: str, dsn: str
) -> None:
    name = conninfo_to_dict(user)["user"]
    failed = f'password authentication failed for user "{name}"'
    scene.flow("load", 2)
    operator = scene.start(DATAFLOW_DSN=user)
    says(operator, failed)
    message = scene.sees("load", "DatabaseReachable", "False", "DatabaseUnreachable")
    assert failed in message
    assert operator.healthy
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(SQL("ALTER ROLE {} PASSWORD 'sesame'").format(Identifier(str(name))))
    scene.until_done("load", 2)
    scene.sees("load", "DatabaseReachable", "True", "DatabaseAnswers")
    operator.until_ready()
    log = operator.operator.output()
    assert log.count("password authentication failed") == 1
    assert "sesame" not in log
    assert "Traceback" not in log
    assert operator.operator.stop() == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "postgres.nowhere.invalid"}, "postgres.nowhere.invalid"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
    ],
)
def test_a_database_that_is_not_there_is_waited_for_and_a_signal_ends_that(
    scene: Scene, change: dict[str, str], words: str
) -> None:
    operator = scene.start(DATAFLOW_DSN=make_conninfo(scene.operators.dsn, **change))
    says(operator, words)
    assert operator.healthy
    assert operator.operator.stop() == 0
    assert operator.operator.output().count(words) <= 2
    assert "Traceback" not in operator.operator.output()


def test_no_address_at_all_ends_it_with_what_it_needs(scene: Scene) -> None:
    operator = scene.start(DATAFLOW_DSN="")
    assert operator.until_ended() == ExitCode.USAGE
    assert "DATAFLOW_DSN is not set" in operator.operator.output()
    assert "Traceback" not in operator.operator.output()


def test_a_database_of_an_unreleased_version_ends_it_with_the_remedy(scene: Scene) -> None:
    with psycopg.connect(scene.operators.dsn, autocommit=True) as admin:
        admin.execute("ALTER TABLE opendataflow.migration DROP digest")
    operator = scene.start()
    assert operator.until_ended() == ExitCode.SCHEMA
    assert "an unreleased version" in operator.operator.output()
    assert "`opendataflow migrate`" in operator.operator.output()
    assert "Traceback" not in operator.operator.output()


def test_a_schema_that_is_too_new_ends_it_with_the_way_out(scene: Scene) -> None:
    with newer_program(ADDITION):
        migrated(scene.operators.dsn)
    operator = scene.start()
    assert operator.until_ended() == ExitCode.SCHEMA
    assert "the database has schema 9999" in operator.operator.output()


def test_runs_live_through_an_upgrade_and_the_way_back(scene: Scene) -> None:
    before = scene.start()
    scene.flow("load", 4, {"run-seconds": "forever"}, parallelism=2)
    pods = scene.running("load", 2)
    assert before.operator.stop() == 0
    with newer_program(ADDITION, WORKS_FROM):
        migrated(scene.operators.dsn)
    refused = scene.start()
    assert refused.until_ended() == ExitCode.SCHEMA
    assert "functions of another version" in refused.operator.output()
    environ = {**os.environ, "DATAFLOW_DSN": scene.operators.dsn}
    done = subprocess.run(MIGRATE, env=environ, capture_output=True, text=True, check=True, timeout=300)
    assert "the tables of schema 9999" in done.stderr
    assert set(scene.running("load", 2)) == set(pods)
    after = scene.start()
    for pod in pods:
        scene.annotate(pod, run_seconds=0)
    scene.until_done("load", 2)
    for pod in scene.running("load", 2):
        scene.annotate(pod, run_seconds=0)
    scene.until_done("load", 4)
    assert len(scene.runs("load")) == 4
    scene.is_right()
    assert after.healthy


# Kinds that the cluster does not know ------------------------------------------------------------------------

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture
def own(dsn: str, own_cluster: OwnCluster, tmp_path: Path) -> Iterator[Scene]:
    """In a cluster whose definitions may be changed; it has them again afterwards."""
    namespace = new_namespace(own_cluster.api)
    with new_scene(dsn, own_cluster.api, namespace, tmp_path) as made:
        yield made
    apply_resources(own_cluster.api)


@pytest.mark.parametrize("namespaces", ["", None], ids=["everywhere", "in one namespace"])
def test_kinds_that_are_missing_are_named_with_the_command_and_waited_for(own: Scene, namespaces: str | None) -> None:
    own.api.kubectl("delete", "crd", "datasets.opendataflow.io", "--wait=true")
    operator = own.start(DATAFLOW_NAMESPACES=own.namespace if namespaces is None else namespaces)
    says(
        operator, "the cluster does not know datasets.opendataflow.io v1alpha1: `kubectl apply --server-side -f crds/`"
    )
    assert operator.healthy
    apply_resources(own.api)
    own.flow("load", 2)
    own.until_done("load", 2)
    operator.until_ready()
    assert operator.operator.output().count("does not know datasets") == 1
    assert "Traceback" not in operator.operator.output()
    assert operator.operator.stop() == 0


def test_definitions_that_are_deleted_while_runs_are_alive_take_their_resources_and_hold_nothing_up(own: Scene) -> None:
    operator = own.start()
    own.flow("load", 3, {"run-seconds": "forever"}, parallelism=2)
    pods = own.running("load", 2)
    own.api.kubectl("delete", "--wait", f"--filename={CRDS}")
    says(operator, "the cluster does not know datasets.opendataflow.io v1alpha1")
    for pod in pods:
        own.annotate(pod, run_seconds=0)
    wait_until(lambda: own.database.running("load") == 0, "their ends are committed", SECONDS)
    wait_until(lambda: with_finalizer(own.api, own.namespace) == [], "their pods are free", SECONDS)
    assert len(own.runs("load")) == 2
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()
    assert operator.operator.stop() == 0


def test_definitions_that_are_older_are_named_with_what_they_lack_and_the_rest_works(own: Scene) -> None:
    older = yaml.safe_load((CRDS / "opendataflow.io_dataflowjobs.yaml").read_text())
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["priority"]
    own.api.kubectl("apply", "--server-side", "--force-conflicts", "-f-", stdin=yaml.safe_dump(older))
    lacks = "it lacks spec.priority"

    def published() -> bool:
        shown = own.api.get("/openapi/v3/apis/opendataflow.io/v1alpha1")["components"]["schemas"]
        return "priority" not in shown["io.opendataflow.v1alpha1.DataFlowJob"]["properties"]["spec"]["properties"]

    wait_until(published, "the API server publishes the older one", SECONDS)
    operator = own.start()
    wait_until(lambda: lacks in operator.probe("/readyz")[1], "it says so", SECONDS)
    operator.until_ready()
    wait_until(lambda: lacks in operator.operator.output(), "its log says so", SECONDS)
    own.flow("load", 2)
    own.until_done("load", 2)
    assert operator.operator.stop() == 0
