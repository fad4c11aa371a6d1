"""The operator is killed at every place at which it waits for Postgres or the cluster, before and after the effect.

Whatever the place, the next one goes on: every chunk is published once each time that it was asked for, never are
two pods of a chunk alive, and nothing is left behind. Seen at others: a controller that restarts between creating the
child and recording it; a result that is lost because the pod vanished before it was seen.
"""

import signal
import time
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.jobs import Database, action, dataset, job, path_of
from tests.kube.operators import Operator, Operators
from tests.kube.points import Point, points
from tests.kube.recorder import Recorder, with_finalizer
from tests.share import share_of
from tests.waiting import wait_until

ONLY_SOMETIMES = {
    "engine/declaring.plan.plan": "asked by the command line only",
    "engine/declaring.batches.next_declaring": "a batch that can't be written: tests/sql/test_declaring; it only asks",
    "launch/cluster/launcher.ClusterLauncher._node_gone.get": "a node that is gone: test_nodes",
    "engine/engine.Engine._finish_if_done.progress": "engines that end when they have caught up",
    "engine/engine.Engine._listen.listen.listening": "asks nothing: it listens",
    "engine/claim_authority.Leadership.end.resign": "at the end of a process",
    "control/orphans.Orphans.find.stored_runs": "after a death between a commit and a release; it only asks",
    "control/orphans.Orphans.settle.forget_orphans": "after a loss of history: test_lost_history",
    "control/status/events.EventWriter._update_count.patch_merge": "repeats; nothing depends on events",
    "launch/cluster/creating.create_or_find.get": "a create whose answer was lost: test_cluster_faults",
    "launch/cluster/applications._change.get": "runs as SparkApplications: test_application_launcher",
    "launch/cluster/applications._change.patch_merge": "runs as SparkApplications: test_application_launcher",
    "launch/cluster/releases.keep_pod.patch_strategic": "a finalizer that somebody has removed: tenants/test_pods",
    "launch/cluster/releases.Releases._delete.delete": "a minute after a release, and no run depends on it",
    "launch/cluster/executors.Executors._delete_collection.delete_collection": "drivers with executors: test_spark",
    "control/startup.Database._write_status.patch_merge": "Postgres is unreachable at the start: test_start",
    "control/startup.Database._write_statuses.pages": "Postgres is unreachable at the start: test_start",
}
"""Points that this test does not come to, or where nothing is at stake, and why."""

SECONDS = 240
"""How long a point may take to be reached."""
STIR_SECONDS = 20
"""How long after a stir the next one begins: what an operator was not ready for, it may be then."""


@dataclass
class World:
    """Jobs that keep an operator busy with everything that it can do."""

    operators: Operators
    api: Api
    namespace: str
    database: Database
    round: int = 0

    def begin(self) -> None:
        self.operators.often = True
        self.apply(*self.resources(), *self.extra("b"))
        first = self.operators.start()
        wait_until(lambda: len(self.database.rows("SELECT FROM opendataflow.job")) == 4, "all is taken over", SECONDS)
        first.kill()

    def apply(self, *resources: Object) -> None:
        for each in resources:
            self.api.apply(path_of(self.namespace, each), each)

    def delete(self, *resources: Object) -> None:
        """Delete what is there, and wait for nothing."""
        for each in resources:
            try:
                self.api.delete(path_of(self.namespace, each))
            except Refused as refused:
                if refused.status != 404:
                    raise

    def resources(self) -> list[Object]:
        return [
            dataset("raw"),
            dataset("clean"),
            dataset("report"),
            dataset("broken"),
            job("wash", ["raw"], ["clean"], parallelism=4 + self.round % 3),
            job("sum", ["clean"], ["report"], {"run-seconds": "0.3"}),
            job("fail", ["raw"], ["broken"], {"exit-code": "3"}, retry={"limit": 1, "backoff": {"initial": "0s"}}),
        ]

    def extra(self, name: str) -> list[Object]:
        """A job whose run goes on for ever, and is ended when the job is deleted."""
        forever = {"run-seconds": "forever"}
        made = job(f"extra-{name}", [f"in-{name}"], [f"out-{name}"], forever, onDelete="Cancel")
        return [dataset(f"in-{name}", 2), dataset(f"out-{name}"), made]

    def has(self, name: str) -> bool:
        """Whether Postgres has an extra job and its data sets from their resources."""
        query = "SELECT FROM opendataflow.declared_by_resources() WHERE opendataflow.bare_id(id) = ANY (%s)"
        return len(self.database.rows(query, [f"extra-{name}", f"in-{name}", f"out-{name}"])) == 3

    def is_quiet(self) -> bool:
        """Whether everything is done that can be done, and nothing runs."""
        left = self.database.rows(
            "SELECT FROM opendataflow.task WHERE opendataflow.bare_id(job) IN ('wash', 'sum') "
            "AND state NOT IN ('DONE', 'FAILED')"
        )
        return not left and not self.database.rows("SELECT FROM opendataflow.run WHERE state = 'RUNNING'")

    def stir(self, operator: Operator) -> None:
        """Give a new operator a reason to come to each of its points."""
        self.round += 1
        number = self.round
        query = "SELECT * FROM opendataflow.publish(%s, %s, 'test')"
        self.database.rows(query, f"{self.namespace}/raw", [f"{number}.{i}" for i in range(2)])
        new, old = ("a", "b") if number % 2 else ("b", "a")
        self.apply(*self.extra(new))
        # What is not taken over can't be forgotten.
        wait_until(lambda: self.has(old) or not operator.alive, f"extra-{old} is taken over", SECONDS)
        self.delete(*self.extra(old), action(f"again-{number - 1}"))
        self.apply(*self.resources())
        resubmit = {"spec": {"resubmit": {"id": f"round-{number}", "failed": True}}}
        with suppress(Refused):  # the one before is not taken over yet
            self.api.patch(path_of(self.namespace, job("fail", [], [])), resubmit)
        requests = [
            action(f"again-{number}", job="wash", action="resubmit", chunks=[f"{number - 1}.0"]),
            action(f"more-{number}", job=f"extra-{new}", action="resubmit", status="FAILED", ttl="1s"),
            action(f"cancel-{number}", job=f"extra-{new}", action="cancel", status="RUNNING", ttl="1s"),
        ]
        self.apply(*requests)


PARTS = 3
"""The moments are shared out, so that several processes can go through them."""
SHARES = 4
"""How many runs go through all moments; `make soak` does in one."""


def moments() -> list[tuple[Point, str]]:
    """Before and after each point that this test comes to."""
    return [(point, when) for point in points() if point.name not in ONLY_SOMETIMES for when in ("before", "after")]


def test_points_that_are_passed_by_are_there() -> None:
    assert ONLY_SOMETIMES.keys() <= {point.name for point in points()}


@pytest.mark.timeout(6000)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_the_moment_at_which_the_operator_dies_nothing_is_lost_and_nothing_is_done_twice(
    operators: Operators, cluster: Api, namespace: str, database: Database, part: int
) -> None:
    world = World(operators, cluster, namespace, database)
    world.begin()
    never: list[str] = []
    with Recorder(cluster, namespace) as recorder:
        for point, when in share_of(moments(), SHARES)[part::PARTS]:
            began = time.monotonic()
            operator = operators.restart(die=(point.name, when, 1))
            while operator.alive and time.monotonic() < began + SECONDS:
                world.stir(operator)
                operator.process.join(STIR_SECONDS)
            print(f"{time.monotonic() - began:.1f} s", when, point, "alive" if operator.alive else "")
            if operator.alive:
                never.append(f"{when} {point}")
                operator.kill()
            elif operator.exit_code != -signal.SIGKILL:
                raise AssertionError(f"{when} {point}: it ended by itself: {operator.output()[-4000:]}")
        last = operators.restart()
        gone = [job(name, [], []) for name in ("fail", "extra-a", "extra-b")]
        world.delete(*gone)
        for each in gone:
            cluster.wait_gone(path_of(namespace, each))
        wait_until(world.is_quiet, "all tasks are done")
        wait_until(lambda: not with_finalizer(cluster, namespace), "all pods are released")
        assert last.stop() == 0, last.output()[-4000:]
    assert recorder.together == []
    assert recorder.of_one_name() == []
    assert world.database.problems() == []
    assert world.database.published_more_than_once() == []
    assert never == []
    assert "Traceback" not in "".join(operator.output() for operator in operators.made)
