"""Postgres goes back in time while pods live: a restore, an old dump, or a replica that lacks the last commits.

Run ids come again, and pods are there whose runs nobody knows. Such a pod is never taken for a run, it is ended before
its chunk is claimed again, and nothing is READY without a run of its own.
"""

import asyncio
import dataclasses
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.pod import StoredRun
from opendataflow.names import (
    ANNOTATION_DATA_ID,
    ANNOTATION_JOB,
    ANNOTATION_NONCE,
    FINALIZER,
    LABEL_JOB,
    LABEL_RUN,
    ExitCode,
    pod_name,
)
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.pods import pod_annotations, state
from tests.kube.jobs import Database, dataset, job, path_of
from tests.kube.launching import SECONDS, end
from tests.kube.postgres import Server, postgres_proxy
from tests.kube.scene import Running, Scene, new_scene
from tests.kube.test_launcher import Place, place, short_pauses  # noqa: F401 # fixtures
from tests.waiting import until, wait_until

LATER = "11111111-2222-4333-8444-555555555555"
"""The nonce of a run that was claimed after the restore."""


# A run id that comes again ----------------------------------------------------------------------------------


class LaterPlace(Place):
    """Orders whose runs have the nonce of the later history."""

    def run(self, number: int) -> ClaimedRun:
        return dataclasses.replace(super().run(number), nonce=LATER)

    def finish(self, number: int) -> None:
        """Let the pod of a run end."""
        self.admin.patch(
            self.path(number), {"metadata": {"annotations": pod_annotations(run_seconds=0, stop_seconds=0)}}
        )


async def test_the_finished_pod_of_a_lost_run_does_not_end_the_later_run_of_its_id(place: Place) -> None:  # noqa: F811
    later = LaterPlace(place.admin, place.namespace)
    async with place.launcher() as first:
        await first.start(place.order(500))
        assert (await end(first)).exit_code == 0
    async with place.launcher() as second:
        await second.start(later.order(500, exit_code=3))
        assert (await end(second)).exit_code == 3
    async with place.launcher() as third:
        assert await third.adopt(later.run(500))
        assert (await end(third)).exit_code == 3
    lost, own = place.pod(500), later.pod(500)
    assert lost is not None
    assert own is not None
    assert lost["metadata"]["labels"][LABEL_RUN] == own["metadata"]["labels"][LABEL_RUN]


async def test_the_living_pod_of_a_lost_run_is_ended_and_released_as_an_orphan(place: Place) -> None:  # noqa: F811
    async with place.launcher() as first:
        await first.start(place.order(500, run_seconds="forever", stop_seconds=1))
        await place.runs(500)
    async with place.launcher() as second:
        (orphan,) = second.orphans(second.unknown_runs(), {})
        assert (orphan.identity, orphan.job) == (place.run(500).identity(place.namespace), f"{place.namespace}/load")
        assert orphan.data_id == place.run(500).data_id
        second.recognize_orphan(orphan)
        await second.end_orphan(orphan)
        await until(lambda: second.ended_orphans() == [orphan], "it has ended", SECONDS)
        (found,) = [place.pod(500)]
        assert found is not None
        assert found["metadata"]["finalizers"] == [FINALIZER]
        assert "terminated" in state(found)
        second.release_orphan(orphan)
        await asyncio.to_thread(place.admin.wait_gone, place.path(500), SECONDS)
        assert second.ended_orphans() == []


async def test_a_released_pod_of_a_lost_run_is_no_orphan_and_is_swept(place: Place) -> None:  # noqa: F811
    later = time.time() + 3600
    async with place.launcher() as first:
        await first.start(place.order(500))
        await end(first)
        await first.release(place.run(500))
        await place.until(lambda pod: "finalizers" not in pod["metadata"], 500)
    async with place.launcher(clock=lambda: later) as second:
        assert second.orphans(second.unknown_runs(), {}) == []
        await second.sweep()
        await asyncio.to_thread(place.admin.wait_gone, place.path(500), SECONDS)


async def test_a_pod_whose_name_does_not_fit_its_annotations_is_no_orphan(place: Place) -> None:  # noqa: F811
    manifest = dict(place.order(500).manifest)
    manifest["metadata"] = {**manifest["metadata"], "name": "load-r500-forged"}
    async with place.launcher() as launcher:
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", manifest)
        await until(lambda: launcher.unknown_runs() == (500,), "it is seen", SECONDS)
        assert launcher.orphans([500], {}) == []


async def test_of_two_orphans_with_one_run_id_each_ends_by_itself(place: Place) -> None:  # noqa: F811
    later = LaterPlace(place.admin, place.namespace)
    async with place.launcher() as first:
        await first.start(place.order(500, run_seconds="forever", stop_seconds=1))
        await place.runs(500)
    async with place.launcher() as second:
        await second.start(later.order(500, run_seconds="forever", stop_seconds=600))
        await later.runs(500)
    async with place.launcher() as third:
        orphans = {orphan.identity.nonce: orphan for orphan in third.orphans(third.unknown_runs(), {})}
        for orphan in orphans.values():
            third.recognize_orphan(orphan)
        assert third.orphans(third.unknown_runs(), {}) == []
        for orphan in orphans.values():
            await third.end_orphan(orphan)
        quick, slow = orphans[place.run(500).nonce], orphans[LATER]
        await until(lambda: third.ended_orphans() == [quick], "one has ended", SECONDS)
        third.release_orphan(quick)
        await asyncio.to_thread(place.admin.wait_gone, place.path(500), SECONDS)
        await later.until(lambda pod: "deletionTimestamp" in pod["metadata"] and "running" in state(pod), 500)
        assert third.ended_orphans() == []
        later.finish(500)
        await until(lambda: third.ended_orphans() == [slow], "the other one has ended", SECONDS)


async def test_an_orphan_with_the_number_of_a_present_run_ends_and_the_run_goes_on(place: Place) -> None:  # noqa: F811
    later = LaterPlace(place.admin, place.namespace)
    async with place.launcher() as first:
        await first.start(place.order(500, run_seconds="forever", stop_seconds=1))
        await place.runs(500)
    async with place.launcher() as second:
        await second.start(later.order(500, run_seconds="forever"))
        await later.runs(500)
        assert second.unknown_runs() == (500,)
        stored = {500: StoredRun(later.run(500).identity(place.namespace), ended=False)}
        (orphan,) = second.orphans([500], stored)
        assert orphan.identity == place.run(500).identity(place.namespace)
        second.recognize_orphan(orphan)
        await second.end_orphan(orphan)
        await until(lambda: second.ended_orphans() == [orphan], "it has ended", SECONDS)
        second.release_orphan(orphan)
        await asyncio.to_thread(place.admin.wait_gone, place.path(500), SECONDS)
        await later.until(lambda pod: "running" in state(pod) and "deletionTimestamp" not in pod["metadata"], 500)
        later.finish(500)
        assert (await end(second)).exit_code == 0


# A restore beside living pods -------------------------------------------------------------------------------


def clone(dsn: str, name: str, template: str) -> None:
    """Replace a database by a copy of another one. Sessions of both are ended."""
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY (%s)"
        connection.execute(ended, ([name, template],))
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")


class Snapshot:
    """A copy of the database of a scene, which can be restored."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._dsn = scene, scene.operators.dsn
        self._database = conninfo_to_dict(self._dsn)["dbname"]
        self._copy = f"{self._database}_copy"
        clone(self._dsn, self._copy, str(self._database))
        scene.database.reopen()

    @property
    def dsn(self) -> str:
        return make_conninfo(self._dsn, dbname=self._copy)

    def restore(self) -> None:
        clone(self._dsn, str(self._database), self._copy)
        self._scene.database.reopen()

    def drop(self) -> None:
        with psycopg.connect(make_conninfo(self._dsn, dbname="postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {self._copy} WITH (FORCE)")


@pytest.fixture
def snapshot(scene: Scene) -> Iterator[Snapshot]:
    """Two jobs that are declared and suspended, and a copy of the database from before their first run."""
    operator = scene.start()
    scene.flow("load", 20, parallelism=5, suspend=True)
    declare_slow(scene)
    wait_until(lambda: len(scene.tasks("load") + scene.tasks("slow")) == 23, "both are declared", SECONDS)
    assert operator.operator.stop() == 0
    scene.operators.expire_lease()  # if Postgres was too slow for a hand-over
    copy = Snapshot(scene)
    yield copy
    copy.drop()


def declare_slow(scene: Scene) -> None:
    """Apply a suspended job with three chunks whose pods run, and stop, for as long as they are let."""
    slow = {
        "metadata": {"annotations": pod_annotations(run_seconds="forever", stop_seconds=600)},
        "spec": {"terminationGracePeriodSeconds": 600},
    }
    made = job("slow", ["slow-in"], ["slow-out"], parallelism=3, suspend=True, podTemplate=slow)
    scene.apply(dataset("slow-in", 3), dataset("slow-out"), made)


def lost_from(pod: Object, job_id: str, data_id: str) -> Object:
    """The pod of a lost run, which has the number of the run of this pod."""
    found, spec = pod["metadata"], {**pod["spec"]}
    del spec["nodeName"]
    metadata = {
        "name": pod_name(job_id, int(found["labels"][LABEL_RUN]), LATER),
        "labels": {**found["labels"], LABEL_JOB: job_id},
        "annotations": {
            **found["annotations"],
            ANNOTATION_JOB: job_id,
            ANNOTATION_DATA_ID: data_id,
            ANNOTATION_NONCE: LATER,
        },
        "finalizers": [FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def metric(operator: Running, name: str) -> int | None:
    lines = operator.probe("/metrics")[1].splitlines()
    return next((int(float(line.split()[1])) for line in lines if line.startswith(f"{name} ")), None)


def finish(scene: Scene, job_id: str) -> None:
    """Let the pods of a job end that run, or that are being deleted; those that start later end at once."""
    scene.patch(job_id, podTemplate={"metadata": {"annotations": pod_annotations(run_seconds=0)}})
    path = path_of(scene.namespace, job(job_id, [], []))
    wait_until(
        lambda: scene.status(job_id).get("observedGeneration") == scene.api.get(path)["metadata"]["generation"],
        "the change is taken over",
        SECONDS,
    )
    for one in scene.pods(job_id):
        scene.annotate(one["metadata"]["name"], run_seconds=0, stop_seconds=0)


def is_its_own(scene: Scene, newest: int) -> None:
    """Nothing is READY without a run that this history has, and that was claimed after the lost ones."""
    made = scene.database.rows(
        "SELECT c.dataset, c.data_id, r.state, r.fence, r.pod_uid FROM opendataflow.chunk c "
        "LEFT JOIN opendataflow.run r ON r.id = c.run AND r.fence = c.fence "
        "WHERE c.status = 'READY' AND c.dataset LIKE '%%-out'"
    )
    assert {row["state"] for row in made} == {"SUCCEEDED"}
    assert all(row["fence"] > newest for row in made)  # 0 where earlier runs are known
    assert all(scene.recorder.created.get(row["pod_uid"], "").startswith(("load-r", "slow-r")) for row in made)


def test_what_ran_before_a_restore_ends_before_its_chunks_are_claimed_again(scene: Scene, snapshot: Snapshot) -> None:
    first = scene.start()
    for name in ("load", "slow"):
        scene.patch(name, suspend=False)
    orphans = scene.running("slow", 3)
    scene.until_done("load", 20)
    lost = {run["pod_uid"] for run in scene.runs("load")}
    newest = max(run["fence"] for run in scene.runs("load") + scene.runs("slow"))
    first.operator.kill()
    snapshot.restore()
    assert scene.runs("load") == []

    second = scene.start()
    scene.until_done("load", 20)
    assert metric(second, "opendataflow_orphaned_pods") == 3
    assert "history was lost" in second.operator.output()
    assert scene.runs("slow") == []
    (why,) = scene.database.rows("SELECT opendataflow.why(%s, '0-0') AS found", scene.key("slow"))
    assert (why["found"]["state"], why["found"]["orphan"]["name"] in orphans) == ("QUEUED", True)
    finish(scene, "slow")
    scene.until_done("slow", 3)
    wait_until(lambda: metric(second, "opendataflow_orphaned_pods") == 0, "no orphan is left", SECONDS)
    assert scene.database.rows("SELECT FROM opendataflow.orphan") == []
    is_its_own(scene, newest)
    assert lost.isdisjoint(run["pod_uid"] for run in scene.runs("load"))
    assert scene.consumed("load") + scene.consumed("slow") == [(0, 0)] * 23
    scene.is_released()
    scene.is_right()
    assert second.healthy
    assert "Traceback" not in second.operator.output()


def test_the_pod_of_a_lost_run_that_is_seen_late_ends_before_its_chunk_is_claimed(scene: Scene) -> None:
    operator = scene.start()
    declare_slow(scene)
    scene.flow("load", 1, {"run-seconds": "forever", "stop-seconds": "600"})
    (name,) = scene.running("load", 1)
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    late = lost_from(scene.api.get(f"{pods}/{name}"), "slow", "0-0")
    scene.api.create(pods, late)
    wait_until(lambda: metric(operator, "opendataflow_orphaned_pods") == 1, "the orphan is found", SECONDS)
    scene.patch("slow", suspend=False)
    wait_until(lambda: len(scene.runs("slow")) == 2, "the other chunks are claimed", SECONDS)
    (why,) = scene.database.rows("SELECT opendataflow.why(%s, '0-0') AS found", scene.key("slow"))
    assert (why["found"]["state"], why["found"]["orphan"]["name"]) == ("QUEUED", late["metadata"]["name"])
    scene.annotate(late["metadata"]["name"], run_seconds=0, stop_seconds=0)
    wait_until(lambda: len(scene.runs("slow")) == 3, "it is claimed", SECONDS)
    assert metric(operator, "opendataflow_orphaned_pods") == 0
    assert scene.database.rows("SELECT FROM opendataflow.orphan") == []
    assert [run["state"] for run in scene.runs("load")] == ["RUNNING"]
    assert "deletionTimestamp" not in scene.api.get(f"{pods}/{name}")["metadata"]


def test_an_operator_that_survives_a_restore_notices_it_and_the_next_one_goes_on(
    scene: Scene, snapshot: Snapshot
) -> None:
    first = scene.start()
    scene.patch("slow", suspend=False)
    scene.running("slow", 3)
    newest = max(run["fence"] for run in scene.runs("slow"))
    snapshot.restore()
    assert first.until_ended() == ExitCode.HISTORY_LOST
    assert "history was lost" in first.operator.output()
    assert "Traceback" not in first.operator.output()

    second = scene.start()
    wait_until(lambda: metric(second, "opendataflow_orphaned_pods") == 3, "the orphans are found", SECONDS)
    finish(scene, "slow")
    scene.until_done("slow", 3)
    is_its_own(scene, newest)
    scene.is_released()
    scene.is_right()


def test_a_run_of_the_restored_state_whose_pod_is_gone_is_tried_again_with_a_newer_token(scene: Scene) -> None:
    first = scene.start()
    declare_slow(scene)
    scene.patch("slow", suspend=False)
    scene.running("slow", 3)
    first.operator.kill()
    scene.operators.expire_lease()
    copy = Snapshot(scene)
    second = scene.start()
    finish(scene, "slow")
    scene.until_done("slow", 3)
    scene.is_released()
    lost = {run["id"]: run["fence"] for run in scene.runs("slow")}
    for pod in scene.pods("slow"):
        scene.api.delete(scene.pod_path(pod["metadata"]["name"]))
    assert second.operator.stop() == 0
    copy.restore()
    copy.drop()
    scene.database.rows("SELECT opendataflow.record_restore()")

    scene.start()
    scene.until_done("slow", 3)
    runs = scene.runs("slow")
    assert [run["state"] for run in runs if run["id"] in lost] == ["LOST"] * 3
    assert all(run["fence"] > max(lost.values()) for run in runs if run["id"] not in lost)
    assert scene.consumed("slow") == [(0, 1)] * 3


# A failover that loses commits ------------------------------------------------------------------------------


@pytest.fixture
def servers(open_folder: Path) -> Iterator[tuple[Server, Server]]:
    """A primary server and its asynchronous replica."""
    primary = Server(open_folder / "primary")
    replica = primary.replica(open_folder / "replica")
    yield primary, replica
    primary.leave()
    replica.leave()


def test_a_replica_that_lacks_the_last_commits_is_promoted_under_load(
    servers: tuple[Server, Server], cluster: Api, namespace: str, tmp_path: Path
) -> None:
    primary, replica = servers
    dsn = primary.database("jobs")
    with postgres_proxy(dsn) as proxy, new_scene(dsn, cluster, namespace, tmp_path, through=proxy.through) as scene:
        first = scene.start()
        scene.flow("load", 60, {"run-seconds": "0.5"}, parallelism=4)
        declare_slow(scene)
        scene.until_done("load", 5, at_least=True)
        after = make_conninfo(replica.dsn, dbname="jobs")
        with closing(Database(after)) as behind:
            wait_until(
                lambda: behind.done("load") >= 5 and behind.states("slow") == {"QUEUED": 3}, "it streams", SECONDS
            )
        replica.cut_off()
        done = scene.database.done("load")
        scene.patch("slow", suspend=False)
        scene.running("slow", 3)
        scene.until_done("load", done + 5, at_least=True)
        lost = {(run["job"], run["data_id"]): run["fence"] for run in scene.runs("load") + scene.runs("slow")}
        primary.crash()
        replica.promote()
        scene.move(after)
        proxy.dsn = after
        assert first.until_ended() == ExitCode.HISTORY_LOST
        assert "history was lost" in first.operator.output()
        assert "Traceback" not in first.operator.output()
        assert scene.runs("slow") == []

        second = scene.start()
        wait_until(lambda: (metric(second, "opendataflow_orphaned_pods") or 0) >= 3, "the orphans are found", SECONDS)
        finish(scene, "slow")
        scene.until_done("load", 60)
        scene.until_done("slow", 3)
        is_its_own(scene, 0)
        fences = {(task["job"], task["data_id"]): task["fence"] for task in scene.tasks("load") + scene.tasks("slow")}
        assert all(fences[chunk] >= fence for chunk, fence in lost.items()), "a destination would refuse a run"
        assert scene.consumed("load") + scene.consumed("slow") == [(0, 0)] * 63
        scene.is_released()
        assert scene.recorder.together == []
        assert scene.database.problems() == []
        assert scene.database.published_more_than_once() == []
        assert second.healthy
        assert "Traceback" not in second.operator.output()
