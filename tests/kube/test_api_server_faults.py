"""The API server is stopped, paused, answers 410 and 5xx, or its answers are lost, while the operator works. Pods go
on; when it answers again everything is as if nothing had happened.

Seen at others: a controller that restarts between creating the child and recording it: duplicate or lost runs; results
lost because the pod vanished before it was seen.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.proxy import Fault, Proxy, refusal, watch_error
from tests.kube.conftest import OwnCluster
from tests.kube.postgres import Server
from tests.kube.scene import SECONDS, Scene, new_scene
from tests.waiting import wait_until

# An API server that is unreachable -----------------------------------------------------------------------------------


@pytest.fixture
def cut_off(own_scene: Scene) -> Scene:
    return own_scene


def test_while_the_api_server_is_unreachable_pods_go_on_and_their_ends_are_seen_afterwards(
    cut_off: Scene, own_cluster: OwnCluster
) -> None:
    operator = cut_off.start()
    cut_off.flow("load", 8, {"run-seconds": "4"}, parallelism=4)
    cut_off.begun("load", 4)
    own_cluster.plane.api_server.kill()
    operator.operator.process.join(8)
    assert operator.healthy
    before = len(cut_off.runs("load"))
    own_cluster.plane.restart_api_server()
    cut_off.done_at_once("load", 8)
    assert before <= 8
    cut_off.sees("load", "Succeeded", "True", "Done")
    cut_off.is_released()
    cut_off.is_right()
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()


def test_an_api_server_that_hangs_is_waited_for(cut_off: Scene, own_cluster: OwnCluster) -> None:
    operator = cut_off.start()
    cut_off.flow("load", 6, {"run-seconds": "1"}, parallelism=2)
    cut_off.begun("load")
    own_cluster.plane.api_server.pause()
    operator.operator.process.join(25)  # longer than the lease, than every time limit, and than three creates
    assert operator.healthy
    own_cluster.plane.api_server.resume()
    cut_off.done_at_once("load", 6)
    cut_off.is_right()


def test_an_operator_that_starts_while_the_api_server_is_unreachable_begins_when_it_is_back(
    cut_off: Scene, own_cluster: OwnCluster
) -> None:
    first = cut_off.start()
    cut_off.flow("load", 4, {"run-seconds": "2"}, parallelism=2)
    cut_off.begun("load", 2)
    first.operator.kill()
    own_cluster.plane.api_server.kill()
    cut_off.operators.expire_lease()
    second = cut_off.start()
    wait_until(lambda: second.healthy, "it is alive", SECONDS)
    second.operator.process.join(5)
    assert second.healthy
    assert not second.ready
    own_cluster.plane.restart_api_server()
    cut_off.done_at_once("load", 4)
    second.until_ready()
    cut_off.is_right()


def test_both_may_be_unreachable_and_come_back_in_any_order(
    own_cluster: OwnCluster, own_namespace: str, lasting_open_folder: Path, tmp_path: Path
) -> None:
    server = Server(lasting_open_folder)
    try:
        with new_scene(server.database("both_away"), own_cluster.api, own_namespace, tmp_path) as scene:
            operator = scene.start()
            scene.flow("load", 18, {"run-seconds": "2"}, parallelism=3)
            for postgres_first in (True, False):
                wait_until(
                    lambda: scene.database.running("load") > 0 or scene.database.done("load") == 18, "it works", SECONDS
                )
                server.crash()
                own_cluster.plane.api_server.kill()
                operator.operator.process.join(5)
                assert operator.healthy
                if postgres_first:
                    server.start()
                own_cluster.plane.restart_api_server()
                if not postgres_first:
                    time.sleep(3)
                    server.start()
                scene.database.reopen()
            scene.done_at_once("load", 18)
            scene.sees("load", "Succeeded", "True", "Done")
            scene.is_released()
            scene.is_right()
            assert operator.healthy
            assert "Traceback" not in operator.operator.output()
    finally:
        server.leave()


# Answers that are lost, refused, or cut ------------------------------------------------------------------------


@pytest.fixture
def behind(proxy: Proxy, dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """An operator that comes to the API server through the proxy only."""
    with new_scene(dsn, cluster, namespace, tmp_path, kubeconfig=proxy.kubeconfig) as made:
        yield made


def test_lost_requests_and_replies_to_create_start_each_run_once(behind: Scene, proxy: Proxy) -> None:
    operator = behind.start()
    faults = [
        proxy.fail(Fault("POST", "/pods", times=4, drop="reply")),
        proxy.fail(Fault("POST", "/pods", times=4, drop="request")),
        proxy.fail(Fault("POST", "/pods", times=2, delay=7)),
        proxy.fail(Fault("POST", "/pods", times=2, answer=refusal(500, "InternalError"))),
        proxy.fail(Fault("POST", "/pods", times=2, answer=refusal(503, "ServiceUnavailable"))),
        proxy.fail(Fault("POST", "/pods", times=2, answer=refusal(429, "TooManyRequests", Retry_After="1"))),
    ]
    behind.flow("load", 16, {"run-seconds": "0.5"}, parallelism=8)
    behind.done_at_once("load", 16)
    assert [fault.met for fault in faults] == [4, 4, 2, 2, 2, 2]
    wait_until(lambda: len(behind.recorder.created) >= 16, "all are seen", SECONDS)
    assert len(behind.recorder.created) == 16
    behind.is_released()
    behind.is_right()
    assert operator.healthy


def test_an_api_server_that_fails_every_create_is_reported(behind: Scene, proxy: Proxy) -> None:
    behind.start()
    fault = proxy.fail(Fault("POST", "/pods", times=10**6, answer=refusal(500, "InternalError", "etcd has no leader")))
    behind.flow("load", 2)
    seen = behind.sees("load", "Progressing", "True", "ApiUnreachable")
    assert "etcd has no leader" in seen
    fault.times = 0
    behind.until_done("load", 2)
    behind.sees("load", "Progressing", "False", "Done")
    assert behind.consumed("load") == [(0, 0)] * 2


def test_lost_replies_to_patches_deletes_and_lists_cost_time_only(behind: Scene, proxy: Proxy) -> None:
    operator = behind.start()
    faults = [
        proxy.fail(Fault("PATCH", "/pods/", times=3, drop="reply")),
        proxy.fail(Fault("PATCH", "/pods/", times=3, drop="request")),
        proxy.fail(Fault("PATCH", "/status", times=3, drop="reply")),
        proxy.fail(Fault("PATCH", "/status", times=2, answer=refusal(500, "InternalError"))),
    ]
    behind.flow("load", 8, {"run-seconds": "0.3"}, parallelism=4)
    behind.until_done("load", 8)
    behind.sees("load", "Succeeded", "True", "Done")
    behind.is_released()
    parallelism = itertools.count(5)

    def all_met() -> bool:
        """A status is written whenever the job is changed; until then perhaps too seldom."""
        behind.patch("load", parallelism=next(parallelism))
        return all(fault.met == fault.times for fault in faults)

    wait_until(all_met, "everything was lost or refused as often as it should", SECONDS, every=1)
    behind.is_right()
    assert operator.healthy


ENDS = {
    "an event of 410": watch_error(410, "Expired"),
    "an event of 500": watch_error(500, "InternalError"),
    "an answer of 410": refusal(410, "Expired"),
    "an answer of 500": refusal(500, "InternalError"),
    "an answer of 503": refusal(503, "ServiceUnavailable"),
    "an answer of 429": refusal(429, "TooManyRequests", Retry_After="1"),
}


@pytest.mark.parametrize("how", ENDS)
def test_watches_that_end_badly_are_begun_anew_and_miss_nothing(behind: Scene, proxy: Proxy, how: str) -> None:
    operator = behind.start()
    behind.flow("load", 2, {"run-seconds": "forever"}, parallelism=2)
    pods = behind.running("load", 2)
    behind.sees("load", "Progressing", "True", "Running")
    faults = [
        proxy.fail(Fault("GET", r"/pods\?.*watch=true", answer=ENDS[how])),
        proxy.fail(Fault("GET", r"/dataflowjobs\?.*watch=true", answer=ENDS[how])),
        proxy.fail(Fault("GET", r"/datasets\?.*watch=true", answer=ENDS[how])),
    ]
    proxy.cut()
    for pod in pods:
        behind.annotate(pod, run_seconds=0)
    wait_until(lambda: all(fault.met for fault in faults), "every watch was ended", SECONDS)
    behind.until_done("load", 2)
    behind.flow("next", 1)
    behind.until_done("next", 1)  # long before the list of every few minutes
    assert len(behind.runs("load")) == 2
    assert operator.healthy, operator.operator.output()[-3000:]
    behind.is_right()


def test_a_job_deleted_while_the_watch_is_begun_anew_is_missed(behind: Scene, proxy: Proxy) -> None:
    operator = behind.start()
    behind.flow("load", 30, {"run-seconds": "1"}, parallelism=1)
    behind.begun("load")
    proxy.fail(Fault("GET", r"/dataflowjobs\?.*watch=true", answer=ENDS["an event of 500"], delay=1))
    proxy.cut()
    wait_until(lambda: "watch of resources starts again" in operator.operator.output(), "the watch has failed", SECONDS)
    behind.api.kubectl(f"--namespace={behind.namespace}", "delete", "dfj/load")
    wait_until(lambda: "is gone: nothing new of it starts" in operator.operator.output(), "it is missed", SECONDS)
    behind.is_right()


def test_a_job_deleted_while_the_operator_starts_is_missed(behind: Scene, proxy: Proxy) -> None:
    first = behind.start()
    behind.flow("load", 3, {"run-seconds": "forever"}, parallelism=1)
    behind.running("load")
    first.operator.stop()
    lists = r"/dataflowjobs\?.*limit"
    ours, theirs = proxy.fail(Fault("GET", lists)), proxy.fail(Fault("GET", lists, delay=4))
    second = behind.start()
    wait_until(lambda: ours.met == 1 and theirs.met == 1, "it has looked, and does not watch yet", SECONDS)
    behind.api.kubectl(f"--namespace={behind.namespace}", "delete", "dfj/load")
    wait_until(lambda: "is gone: nothing new of it starts" in second.operator.output(), "it is missed", SECONDS)


@pytest.mark.parametrize("status", [410, 500, 403])
def test_a_list_that_is_refused_at_the_beginning_is_asked_for_again(behind: Scene, proxy: Proxy, status: int) -> None:
    behind.flow("load", 2)
    reason = {410: "Expired", 500: "InternalError", 403: "Forbidden"}[status]
    faults = [
        proxy.fail(Fault("GET", r"/dataflowjobs\?limit", answer=refusal(status, reason))),
        proxy.fail(Fault("GET", r"/pods\?limit", answer=refusal(status, reason))),
    ]
    operator = behind.start()
    behind.until_done("load", 2)
    assert [fault.met for fault in faults] == [1, 1]
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()
