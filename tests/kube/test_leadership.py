"""Two operators over one database: the old leader is paused and wakes late, and creates of its own arrive late.

Seen at others: a limit ignored with two schedulers; a partition run twice; a controller that adopts an earlier attempt.
"""

import os
import signal
import time
from pathlib import Path

import psycopg

from opendataflow.names import ExitCode
from tests.kube.cluster.api import Api
from tests.kube.cluster.proxy import Fault, Proxy
from tests.kube.postgres import postgres_proxy
from tests.kube.scene import SECONDS, Scene, new_scene
from tests.waiting import wait_until


def epoch(scene: Scene) -> int:
    return int(scene.database.rows("SELECT epoch FROM opendataflow.leader")[0]["epoch"])


def test_an_old_leader_that_wakes_late_ends_and_has_disturbed_nothing(scene: Scene) -> None:
    old = scene.start()
    scene.flow("load", 12, {"run-seconds": "8"}, parallelism=4)
    scene.running("load", 4)
    old.operator.send(signal.SIGSTOP)
    (lease,) = scene.database.rows("SELECT expires_at FROM opendataflow.lease WHERE kind = 'operator'")
    standby = scene.start()
    standby.until_ready()
    wait_until(lambda: epoch(scene) == 2, "the standby has taken over", SECONDS)
    (leader,) = scene.database.rows("SELECT since FROM opendataflow.leader")
    assert leader["since"] >= lease["expires_at"], "the lease was still fresh"
    wait_until(lambda: scene.database.done("load") >= 6, "it goes on with the runs and with new ones", SECONDS)
    old.operator.send(signal.SIGCONT)
    assert old.until_ended() == 1
    assert "another operator has taken over" in old.operator.output()
    assert "Traceback" not in old.operator.output()
    scene.done_at_once("load", 12)
    assert scene.recorder.most["load"] <= 4
    assert epoch(scene) == 2
    assert standby.healthy
    scene.is_released()
    scene.is_right()


def test_a_leader_that_fails_gives_its_lease_up(scene: Scene) -> None:
    operator = scene.start()
    wait_until(lambda: leads(operator.operator.output()), "it leads", SECONDS)
    with psycopg.connect(scene.operators.dsn, autocommit=True) as admin:
        admin.execute("DROP FUNCTION opendataflow.running_runs")
    assert operator.until_ended() == 1
    assert scene.database.rows("SELECT FROM opendataflow.lease WHERE kind = 'operator'") == []
    assert "Traceback" not in operator.operator.output()


def test_a_leader_that_pauses_for_less_than_its_lease_goes_on(scene: Scene) -> None:
    operator = scene.start()
    standby = scene.start()
    scene.flow("load", 8, {"run-seconds": "1"}, parallelism=2)
    scene.begun("load")
    leader, other = (operator, standby) if leads(operator.operator.output()) else (standby, operator)
    for _ in range(2):
        until_renewed(scene)
        leader.operator.send(signal.SIGSTOP)
        time.sleep(6)
        leader.operator.send(signal.SIGCONT)
    scene.until_done("load", 8)
    assert epoch(scene) == 1
    assert leader.healthy
    assert other.healthy
    scene.is_right()


def until_renewed(scene: Scene) -> None:
    """Wait until the lease of the leader has most of its time before it."""

    def ends() -> object:
        return scene.database.rows("SELECT expires_at FROM opendataflow.lease WHERE kind = 'operator'")

    before = ends()
    wait_until(lambda: ends() != before, "the lease is renewed", SECONDS)


def leads(log: str) -> bool:
    return "this operator leads" in log


def test_a_leader_that_is_stopped_hands_over_at_once_and_its_runs_go_on(scene: Scene) -> None:
    first = scene.start()
    scene.flow("load", 6, {"run-seconds": "6"}, parallelism=3)
    scene.begun("load", 3)
    assert first.operator.stop() == 0
    assert scene.database.rows("SELECT FROM opendataflow.lease WHERE kind = 'operator'") == [], "it is given back"
    scene.start()
    wait_until(lambda: epoch(scene) == 2, "the next one leads", SECONDS)
    scene.until_done("load", 6)
    assert len(scene.runs("load")) == 6
    scene.is_right()


def test_idle_operators_stay_ready_the_leader_and_the_standby(scene: Scene) -> None:
    leader, standby = scene.start(), scene.start()
    leader.until_ready()
    standby.until_ready()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for one in (leader, standby):
            assert one.probe("/readyz") == (200, "ok\n")
            assert one.probe("/healthz") == (200, "ok\n")
        time.sleep(2)


DELAY = 20
"""How late creates arrive, in seconds: when everything that they would have begun is over."""


def test_creates_that_arrive_when_another_leader_has_finished_the_runs_start_nothing(
    proxy: Proxy, dsn: str, cluster: Api, namespace: str, tmp_path: Path
) -> None:
    with new_scene(dsn, cluster, namespace, tmp_path) as scene:
        late = proxy.fail(Fault("POST", "/pods", times=3, delay=DELAY))
        old = scene.start(KUBECONFIG=str(proxy.kubeconfig))
        scene.flow("load", 3, parallelism=3)
        wait_until(lambda: late.met == 3, "three creates are on their way", SECONDS)
        os.kill(old.operator.process.pid, signal.SIGKILL)
        old.operator.process.join()
        scene.operators.expire_lease()
        scene.start()
        scene.until_done("load", 3)
        posts = len([one for one in proxy.seen if one[0] == "POST" and one[1].split("?")[0].endswith("/pods")])
        assert posts >= 3
        time.sleep(DELAY + 5)  # they arrive
        assert len(scene.recorder.created) == 3
        assert len(scene.runs("load")) == 3
        scene.is_right()


def test_a_create_that_arrives_when_its_job_is_deleted_and_another_leads_is_no_stray_pod(
    proxy: Proxy, dsn: str, cluster: Api, namespace: str, tmp_path: Path
) -> None:
    """Nobody knows what to run any more, so that the new leader can't create the same pod itself."""
    with new_scene(dsn, cluster, namespace, tmp_path) as scene:
        late = proxy.fail(Fault("POST", "/pods", delay=10))  # less than what a leader waits for: TOMBSTONE_SECONDS
        old = scene.start(KUBECONFIG=str(proxy.kubeconfig))
        scene.flow("load", 1)
        wait_until(lambda: late.met == 1, "a create is on its way", SECONDS)
        old.operator.kill()
        scene.api.kubectl(f"--namespace={namespace}", "delete", "dfj/load")
        scene.operators.expire_lease()
        scene.start()
        scene.until_ended("load")
        assert [run["state"] for run in scene.runs("load")] == ["SUCCEEDED"]
        scene.is_released()
        scene.is_right()


# A leader that reaches one side only ------------------------------------------------------------------------------


def cut(proxy: Proxy) -> None:
    """From now on nothing that goes through the proxy reaches the API server."""
    for method in ("GET", "POST", "PATCH", "DELETE"):
        proxy.fail(Fault(method, "/", times=10**9, drop="request"))
    proxy.cut()


def test_a_leader_that_only_postgres_answers_gives_up_and_the_standby_goes_on(
    proxy: Proxy, dsn: str, cluster: Api, namespace: str, tmp_path: Path
) -> None:
    """Seen at others: a leader that renews its lease on one side, and sees none of its work on the other."""
    with new_scene(dsn, cluster, namespace, tmp_path) as scene:
        old = scene.start(KUBECONFIG=str(proxy.kubeconfig))
        wait_until(lambda: leads(old.operator.output()), "it leads", SECONDS)
        standby = scene.start()
        standby.until_ready()
        scene.flow("load", 12, {"run-seconds": "2"}, parallelism=4)
        scene.begun("load", 4)
        cut(proxy)
        assert old.until_ended() == ExitCode.UNREACHABLE
        assert "this operator gives up the leadership" in old.operator.output()
        assert "Traceback" not in old.operator.output()
        wait_until(lambda: epoch(scene) == 2, "the standby leads", SECONDS)
        scene.done_at_once("load", 12)
        assert standby.healthy
        scene.is_released()
        scene.is_right()


def test_a_leader_that_only_the_api_server_answers_is_replaced_and_ends_when_it_learns_of_it(
    dsn: str, cluster: Api, namespace: str, tmp_path: Path
) -> None:
    with postgres_proxy(dsn) as between, new_scene(dsn, cluster, namespace, tmp_path) as scene:
        old = scene.start(DATAFLOW_DSN=between.through)
        wait_until(lambda: leads(old.operator.output()), "it leads", SECONDS)
        scene.flow("load", 12, {"run-seconds": "2"}, parallelism=4)
        scene.begun("load", 4)
        loss = between.lose("", reply=False, times=10**9)
        standby = scene.start()
        wait_until(lambda: epoch(scene) == 2, "the standby leads", SECONDS)
        wait_until(lambda: "Postgres has not answered" in old.probe("/healthz")[1], "it names the side", SECONDS)
        assert old.healthy, "a restart would not help"
        assert not old.ready
        scene.done_at_once("load", 12)
        loss.times = 0
        assert old.until_ended() == 1
        assert "another operator has taken over" in old.operator.output()
        assert standby.healthy
        scene.is_released()
        scene.is_right()
