"""A database belongs to the operators of one service account: those over a copy of it do nothing to its pods."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.kube.cluster.api import Api, Object
from tests.kube.jobs import Database, action, path_of
from tests.kube.scene import SECONDS, Scene
from tests.kube.test_chart_rights import account
from tests.kube.test_lost_history import Snapshot, finish
from tests.waiting import wait_until

DATAFLOW = [sys.executable, "-c", "from opendataflow.cli.main import main; main()"]


@dataclass
class Home:
    """A service account that may do everything, and its kubeconfig."""

    kubeconfig: Path
    namespace: str
    uid: str

    @property
    def environ(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}


def new_home(api: Api, namespace: str, folder: Path) -> Home:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    made = api.create(accounts, {"metadata": {"name": "dataflow"}, "kind": "ServiceAccount", "apiVersion": "v1"})
    api.kubectl(
        "create", "clusterrolebinding", f"all-{namespace}", "--clusterrole=cluster-admin",
        f"--serviceaccount={namespace}:dataflow",
    )  # fmt: skip
    folder.mkdir()
    return Home(account(api, namespace, "dataflow", folder), namespace, made["metadata"]["uid"])


@pytest.fixture
def homes(cluster: Api, namespace: str, other_namespace: str, tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """The home of the original, and another one."""
    names = (namespace, other_namespace)
    first, second = (new_home(cluster, name, tmp_path / name) for name in names)
    yield first, second
    cluster.kubectl("delete", "clusterrolebinding", *(f"all-{name}" for name in names))


def dataflow(scene: Scene, *arguments: str, dsn: str | None = None) -> str:
    """Run a command over a database, with the kubeconfig of the test; return what it prints."""
    environ = {**os.environ, "KUBECONFIG": str(scene.api.kubeconfig), "DATAFLOW_DSN": dsn or scene.operators.dsn}
    done = subprocess.run([*DATAFLOW, *arguments], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(pods: list[Object]) -> list[tuple[object, ...]]:
    """What would differ if somebody had touched the pods."""
    facts = ("uid", "labels", "annotations", "finalizers", "deletionTimestamp")
    return [tuple(pod["metadata"].get(fact) for fact in facts) for pod in pods]


@pytest.fixture
def original(scene: Scene, homes: tuple[Home, Home]) -> Iterator[Snapshot]:
    """A database with two runs, whose operator has a home and goes on; and a copy of it, where no lease lives."""
    operator = scene.start(**homes[0].environ)
    scene.flow("load", 4, {"run-seconds": "forever"}, parallelism=2)
    scene.running("load", 2)
    copy = Snapshot(scene)
    with psycopg.connect(copy.dsn, autocommit=True) as connection:
        connection.execute("UPDATE opendataflow.lease SET expires_at = now()")
    yield copy
    assert operator.healthy
    copy.drop()


def test_an_operator_of_another_home_is_refused_over_a_copy_and_touches_nothing(
    scene: Scene, original: Snapshot, homes: tuple[Home, Home], other_namespace: str
) -> None:
    before = shown(scene.pods("load"))
    both = f"{scene.namespace},{other_namespace}"
    stranger = scene.start(DATAFLOW_DSN=original.dsn, DATAFLOW_NAMESPACES=both, **homes[1].environ)
    assert stranger.until_ended() == 1
    for part in (f"{scene.namespace}/dataflow", homes[0].uid, homes[1].uid, "dataflow db restored --copy"):
        assert part in stranger.operator.output()
    assert "Traceback" not in stranger.operator.output()
    assert cleanup(homes[1], original.dsn, scene.namespace) == 1
    assert shown(scene.pods("load")) == before
    finish_all(scene)


def test_a_copy_gets_another_identity_suspended_jobs_and_no_runs(
    scene: Scene, original: Snapshot, homes: tuple[Home, Home], other_namespace: str
) -> None:
    before = shown(scene.pods("load"))
    printed = dataflow(scene, "db", "restored", "--copy", dsn=original.dsn)
    assert "1 job suspended, 2 runs ended as lost" in printed
    second = scene.start(DATAFLOW_DSN=original.dsn, DATAFLOW_NAMESPACES=other_namespace, **homes[1].environ)
    second.until_ready()
    wait_until(lambda: "this operator leads" in second.operator.output(), "it leads", SECONDS)
    with closing(Database(original.dsn)) as copied:
        (leader,) = copied.rows("SELECT identity, home FROM opendataflow.leader")
        (own,) = scene.database.rows("SELECT identity, home FROM opendataflow.leader")
        assert leader["identity"] != own["identity"]
        assert (leader["home"], own["home"]) == (homes[1].uid, homes[0].uid)
        assert copied.rows("SELECT suspended FROM opendataflow.job") == [{"suspended": True}]
        assert copied.states("load") == {"QUEUED": 2, "RETRYING": 2}
        assert copied.problems() == []
    assert shown(scene.pods("load")) == before
    assert second.operator.stop() == 0
    finish_all(scene)


def finish_all(scene: Scene) -> None:
    """See that the original goes on as if there were no copy."""
    finish(scene, "load")
    scene.until_done("load", 4)
    assert scene.consumed("load") == [(0, 0)] * 4
    scene.is_released()
    scene.is_right()


def cleanup(home: Home, dsn: str, namespace: str) -> int:
    """Free the pods of a database with the account of an operator; return the exit code."""
    command = [sys.executable, "-c", "from opendataflow.control.main import main; main()", "cleanup"]
    environ = {**os.environ, **home.environ, "DATAFLOW_DSN": dsn}
    done = subprocess.run([*command, "--namespace", namespace], env=environ, capture_output=True, check=False)
    return done.returncode


def test_a_database_that_was_moved_is_led_by_its_new_home(scene: Scene, homes: tuple[Home, Home]) -> None:
    first = scene.start(**homes[0].environ)
    scene.flow("load", 1)
    scene.until_done("load", 1)
    assert first.operator.stop() == 0
    scene.operators.expire_lease()  # if Postgres was too slow for a hand-over
    assert scene.start(**homes[1].environ).until_ended() == 1
    dataflow(scene, "db", "restored", "--move")
    second = scene.start(**homes[1].environ)
    scene.patch("load", resubmit={"id": "again", "chunks": ["0-0"]})
    wait_until(lambda: len(scene.runs("load")) == 2, "it runs again", SECONDS)
    scene.until_done("load", 1)
    (leader,) = scene.database.rows("SELECT home, home_name FROM opendataflow.leader")
    assert leader == {"home": homes[1].uid, "home_name": f"{homes[1].namespace}/dataflow"}
    assert second.healthy
    scene.is_right()


def test_finished_actions_that_a_restored_database_does_not_know_are_listed_and_can_be_repeated(scene: Scene) -> None:
    first = scene.start()
    scene.flow("load", 1, suspend=True)
    wait_until(lambda: len(scene.tasks("load")) == 1, "it is declared", SECONDS)
    assert first.operator.stop() == 0
    snapshot = Snapshot(scene)
    second = scene.start()
    hold = action("stop-it", job="load", action="hold", chunks=["0-0"])
    scene.apply(hold)
    wait_until(lambda: scene.database.states("load") == {"HELD": 1}, "it is held", SECONDS)
    path = path_of(scene.namespace, hold)
    scene.api.wait(path, lambda found: (found.get("status") or {}).get("phase") == "Done", "it is done", SECONDS)
    assert second.operator.stop() == 0
    scene.operators.expire_lease()  # if Postgres was too slow for a hand-over
    assert "stop-it" not in dataflow(scene, "db", "restored")
    snapshot.restore()
    snapshot.drop()
    scene.operators.expire_lease()
    printed = dataflow(scene, "db", "restored")
    assert f"{scene.namespace}/stop-it  hold job load" in printed
    (command,) = [line.strip() for line in printed.splitlines() if f"-n {scene.namespace} get" in line]

    scene.start()
    wait_until(lambda: scene.database.states("load") == {"QUEUED": 1}, "it is declared again", SECONDS)
    read, written = (part.split()[1:] for part in command.split("|"))
    scene.api.kubectl(*written, stdin=scene.api.kubectl(*read))
    wait_until(lambda: scene.database.states("load") == {"HELD": 1}, "it is held again", SECONDS)


def test_a_database_that_an_operator_works_with_is_not_prepared(scene: Scene) -> None:
    operator = scene.start()
    wait_until(lambda: "this operator leads" in operator.operator.output(), "it leads", SECONDS)
    for option in ("--move", "--copy"):
        with pytest.raises(AssertionError, match="works with this database: stop it"):
            dataflow(scene, "db", "restored", option)
    assert operator.healthy
