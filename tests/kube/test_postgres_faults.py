"""Postgres is stopped, killed, paused, or its answers are lost, while the operator works. Pods go on, nothing new
starts, and when it answers again everything is as if nothing had happened: the process lives, each chunk is published
once, and no retry is consumed.

Seen at others: a controller that restarts between creating the child and recording it; partitions run twice; cancelled
task that keeps its slot.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.kube.cluster.api import Api
from tests.kube.postgres import PostgresProxy, Server, postgres_proxy
from tests.kube.recorder import with_finalizer
from tests.kube.scene import SECONDS, Scene, new_scene
from tests.waiting import wait_until

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def lasting_server(lasting_open_folder: Path) -> Iterator[Server]:
    server = Server(lasting_open_folder)
    yield server
    server.leave()


@pytest.fixture
def server(lasting_server: Server) -> Iterator[Server]:
    """A Postgres for this module, which answers again after the test."""
    yield lasting_server
    lasting_server.resume()
    lasting_server.start()


@pytest.fixture
def scene(server: Server, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    with new_scene(server.database(f"faults_{next(_numbers)}"), cluster, namespace, tmp_path) as made:
        yield made


def test_while_postgres_is_stopped_pods_go_on_and_their_ends_wait(scene: Scene, server: Server) -> None:
    operator = scene.start()
    scene.flow("load", 6, {"run-seconds": "forever"}, parallelism=3)
    first = scene.running("load", 3)
    at_once = {"metadata": {"annotations": {"test.opendataflow.io/run-seconds": "0"}}}
    scene.patch("load", podTemplate=at_once)  # those that start afterwards
    wait_until(lambda: scene.status("load").get("observedGeneration") == 2, "it is taken over", SECONDS)
    scene.sees("load", "Progressing", "True", "Running")
    server.stop()
    for pod in first:
        scene.annotate(pod, run_seconds=0)
    seen = scene.sees("load", "DatabaseReachable", "False", "DatabaseUnreachable")
    assert "does not answer" in seen
    assert scene.condition("load", "Ready")[:2] == ("False", "DatabaseUnreachable")
    assert scene.status("load")["progress"].endswith("/6")
    wait_until(lambda: all(p["status"]["phase"] == "Succeeded" for p in scene.pods("load")), "all pods end", SECONDS)
    assert len(with_finalizer(scene.api, scene.namespace)) == 3
    assert operator.healthy
    server.start()
    scene.database.reopen()
    scene.done_at_once("load", 6)
    scene.sees("load", "DatabaseReachable", "True", "DatabaseAnswers")
    scene.sees("load", "Succeeded", "True", "Done")
    scene.is_released()
    scene.is_right()
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()


def test_a_postgres_that_crashes_again_and_again_costs_time_only(scene: Scene, server: Server) -> None:
    operator = scene.start()
    scene.flow("load", 40, {"run-seconds": "0.5"}, parallelism=6)
    for number in (4, 12, 20):
        scene.until_done("load", number, at_least=True)
        server.crash()
        server.start()
        scene.database.reopen()
    scene.done_at_once("load", 40)
    scene.is_released()
    scene.is_right()
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()


def test_a_postgres_that_hangs_longer_than_the_lease_is_waited_for(scene: Scene, server: Server) -> None:
    operator = scene.start()
    scene.flow("load", 6, {"run-seconds": "1"}, parallelism=2)
    scene.begun("load")
    server.pause()
    scene.sees("load", "DatabaseReachable", "False", "DatabaseUnreachable")
    operator.operator.process.join(15)
    assert operator.healthy
    server.resume()
    scene.until_done("load", 6)
    assert scene.consumed("load") == [(0, 0)] * 6
    scene.sees("load", "DatabaseReachable", "True", "DatabaseAnswers")
    scene.is_right()
    assert operator.healthy


def test_an_operator_that_finds_no_postgres_says_so_and_begins_when_it_is_there(scene: Scene, server: Server) -> None:
    server.stop()
    operator = scene.start()
    wait_until(lambda: "does not answer" in operator.probe("/readyz")[1], "it says so", SECONDS)
    assert operator.probe("/readyz")[0] == 503
    assert operator.healthy
    server.start()
    operator.until_ready()
    assert "does not answer" in operator.operator.output()
    assert "Traceback" not in operator.operator.output()


def test_an_operator_that_is_stopped_while_postgres_is_unreachable_ends_and_loses_nothing(
    scene: Scene, server: Server
) -> None:
    operator = scene.start()
    scene.flow("load", 4, {"run-seconds": "2"}, parallelism=2)
    scene.begun("load", 2)
    server.stop()
    scene.sees("load", "DatabaseReachable", "False", "DatabaseUnreachable")
    assert operator.operator.stop() == 0
    server.start()
    scene.database.reopen()
    scene.operators.expire_lease()
    scene.start()
    scene.done_at_once("load", 4)
    scene.is_right()


# Lost requests and replies ------------------------------------------------------------------------------------


@pytest.fixture
def proxy(dsn: str) -> Iterator[PostgresProxy]:
    with postgres_proxy(dsn) as made:
        yield made


@pytest.fixture
def behind(proxy: PostgresProxy, dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """An operator that comes to Postgres through the proxy only."""
    with new_scene(dsn, cluster, namespace, tmp_path, through=proxy.through) as made:
        yield made


STATEMENTS = {
    "claims": r"opendataflow\.claim\(",
    "commits of outcomes": r"opendataflow\.complete\(",
    "renewals of the leadership": r"opendataflow\.acquire_leadership\(",
    "transactions, such as an apply": r"^COMMIT",
    "retries that are due": r"opendataflow\.retry_due\(",
    "looks at the jobs": r"opendataflow\.job_facts\(|declared",
}
"""What the operator asks of Postgres while runs live and die."""


def test_whatever_is_lost_between_the_operator_and_postgres_nothing_is_done_twice(
    behind: Scene, proxy: PostgresProxy
) -> None:
    operator = behind.start()
    lost = []
    for reply in (True, False):
        for number, pattern in enumerate(STATEMENTS.values()):
            name = f"load-{number}-{'reply' if reply else 'request'}"
            loss = proxy.lose(pattern, reply=reply, times=2)
            behind.flow(name, 4, {"exit-code": "1"} if "retry" in pattern else None, parallelism=2)
            lost.append((name, loss))
            if "retry" not in pattern:
                behind.done_at_once(name, 4)
    wait_until(lambda: all(loss.met == 2 for _, loss in lost), f"all is lost: {lost}", SECONDS)
    for name in ("load-4-reply", "load-4-request"):
        behind.until_failed(name, 4)
        assert behind.consumed(name) == [(3, 0)] * 4
        assert len(behind.runs(name)) == 12
    behind.is_released()
    behind.is_right()
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()


def test_a_leadership_whose_commit_was_not_answered_is_had_all_the_same(behind: Scene, proxy: PostgresProxy) -> None:
    loss = proxy.lose(r"opendataflow\.acquire_leadership\(")
    operator = behind.start()
    behind.flow("load", 2)
    behind.until_done("load", 2)
    assert loss.met == 1
    (leader,) = behind.database.rows("SELECT epoch FROM opendataflow.leader")
    assert leader["epoch"] == 1
    assert operator.healthy


def test_the_answer_to_a_resubmit_may_be_lost_and_it_is_done_once(behind: Scene, proxy: PostgresProxy) -> None:
    behind.start()
    behind.flow("load", 3)
    behind.until_done("load", 3)
    behind.sees("load", "Succeeded", "True", "Done")
    loss = proxy.lose("^COMMIT", times=1)
    behind.patch("load", resubmit={"id": "again", "chunks": ["0-0", "1-1"]})
    wait_until(lambda: len(behind.runs("load")) == 5, "both run again", SECONDS)
    behind.until_done("load", 3)
    wait_until(lambda: behind.status("load").get("resubmit", {}).get("id") == "again", "it is reported", SECONDS)
    assert behind.status("load")["resubmit"]["chunks"] == 2
    assert loss.met == 1
    assert len(behind.runs("load")) == 5
    behind.is_right()


def test_an_operator_is_cut_at_every_statement_from_its_start_to_its_end_and_goes_on(
    behind: Scene, proxy: PostgresProxy
) -> None:
    behind.operators.often = behind.operators.hasty = True
    cuts = proxy.cut_all()
    operator = behind.start()
    behind.flow("load", 4, parallelism=2)
    wait_until(
        lambda: not operator.operator.alive or behind.database.done("load") == 4,
        "all is done, or the operator has ended",
        SECONDS,
    )
    assert operator.operator.alive, operator.operator.output()[-3000:]
    behind.done_at_once("load", 4)
    behind.sees("load", "Succeeded", "True", "Done")
    behind.patch("load", resubmit={"id": "again", "chunks": ["0-0"]})
    wait_until(lambda: behind.status("load").get("resubmit", {}).get("id") == "again", "it is reported", SECONDS)
    wait_until(lambda: len(behind.runs("load")) == 5, "it runs again", SECONDS)
    behind.until_done("load", 4)
    behind.is_released()
    behind.is_right()
    assert operator.healthy
    assert operator.operator.stop() == 0
    assert "Traceback" not in operator.operator.output()
    cut = "\n".join(statement for statement in cuts.met if statement not in cuts.left)
    for name in STARTS:
        assert name in cut


STARTS = (
    "migration",
    "leader_identity",
    "acquire_leadership",
    "declared_by_resources",
    "unmanaged_namespaces",
    "job_facts",
    "publish_today",
)
"""What the operator asks of Postgres before it claims, each by the name of a table or a function."""


def test_connections_that_are_cut_once_a_second_cost_time_only(behind: Scene, dsn: str) -> None:
    operator = behind.start()
    behind.flow("load", 30, {"run-seconds": "0.3"}, parallelism=5)
    with psycopg.connect(dsn, autocommit=True) as administrator:
        for _ in range(15):
            administrator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'opendataflow'"
            )
            operator.operator.process.join(1)
            assert operator.operator.alive
    behind.done_at_once("load", 30)
    behind.is_right()
    assert "Traceback" not in operator.operator.output()
