"""An operator that the chart has installed for two namespaces, with the built-in Postgres, for many tests together.
In the first of them only restricted pods may run.

What it does is seen through the API server, and in Postgres through a forwarded port.
"""

import base64
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import make_conninfo

from tests.e2e.cluster.installing import RELEASE, STRICT, install, uninstall
from tests.e2e.cluster.real_cluster import RealCluster
from tests.kube.cluster.api import Api, Object
from tests.kube.conftest import fresh_namespace
from tests.kube.jobs import Database
from tests.kube.recorder import Recorder
from tests.kube.scene import Flows
from tests.waiting import wait_until

SECONDS = 300
"""How long anything may take on a machine that is busy with something else."""
_VALUES = ("--set=database.builtIn.persistence.enabled=false",)


@dataclass
class Installation:
    """`home`: the namespace of the operator and of Postgres. `here`, `there`: those whose jobs it runs."""

    cluster: RealCluster
    home: str
    here: Flows
    there: Flows

    @property
    def api(self) -> Api:
        """An administrator's."""
        return self.cluster.api

    @property
    def namespaces(self) -> list[str]:
        """All three."""
        return [self.home, self.here.namespace, self.there.namespace]

    @property
    def account(self) -> str:
        """Who the operator is for the API server."""
        return f"system:serviceaccount:{self.home}:{RELEASE}"

    def operator(self) -> Object:
        """The operator's pod."""
        selector = "app.kubernetes.io/component=operator"
        (pod,) = self.api.items(f"/api/v1/namespaces/{self.home}/pods?labelSelector={selector}")
        return pod

    def output(self) -> str:
        """What the operator has logged in its container and in the one before."""
        pod = self.operator()
        asked = (f"--namespace={self.home}", "logs", pod["metadata"]["name"], "--container=operator")
        before = self.api.kubectl(*asked, "--previous") if _container(pod)["restartCount"] else ""
        return before + self.api.kubectl(*asked)

    def kill_operator(self) -> None:
        """End the operator's processes by SIGKILL; return when its container was started again."""
        pod = self.operator()
        container = _container(pod)
        cgroup = container["containerID"].rpartition("/")[2]
        find = f"grep --files-with-matches {cgroup} /proc/[0-9]*/cgroup | cut --delimiter=/ --fields=3"
        self.cluster.nodes.run(pod["spec"]["nodeName"], "sh", "-c", f"kill -9 $({find})")

        def again(found: Object) -> bool:
            now = _container(found)
            return bool(now["restartCount"] > container["restartCount"] and "running" in now["state"])

        path = f"/api/v1/namespaces/{self.home}/pods/{pod['metadata']['name']}"
        after = _container(self.api.wait(path, again, "the operator's container was started again", SECONDS))
        assert after["lastState"]["terminated"]["exitCode"] == 137

    def give_rights_again(self) -> None:
        """After a namespace was made anew: the chart makes what has gone with it."""
        install(self.cluster, self.home, *_VALUES, watched=self.namespaces[1:])


def _container(pod: Object) -> Object:
    found: Object = next(one for one in pod["status"]["containerStatuses"] if one["name"] == "operator")
    return found


@contextmanager
def installed(cluster: RealCluster) -> Iterator[Installation]:
    """Install it into fresh namespaces; uninstall it afterwards, and see that it has not been surprised by anything."""
    with ExitStack() as opened:
        home, here, there = (opened.enter_context(_namespace(cluster.api)) for _ in range(3))
        cluster.namespaces = [home, here, there]
        cluster.api.patch(f"/api/v1/namespaces/{here}", STRICT)
        install(cluster, home, *_VALUES, watched=(here, there))
        opened.callback(uninstall, cluster, home)
        database = opened.enter_context(_database(cluster, home))
        flows = [
            Flows(cluster.api, name, database, opened.enter_context(Recorder(cluster.api, name)))
            for name in (here, there)
        ]
        made = Installation(cluster, home, *flows)
        yield made
        assert "Traceback" not in made.output()


_namespace = contextmanager(fresh_namespace)


@contextmanager
def _database(cluster: RealCluster, home: str) -> Iterator[Database]:
    """The built-in Postgres."""
    secret = cluster.api.get(f"/api/v1/namespaces/{home}/secrets/{RELEASE}-postgres")
    with cluster.forwarded(home, f"service/{RELEASE}-postgres", 5432) as port:
        dsn = make_conninfo(base64.b64decode(secret["data"]["dsn"]).decode(), host="127.0.0.1", port=port)

        def answers() -> bool:
            try:
                psycopg.connect(dsn, connect_timeout=5).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(answers, "Postgres answers through a forwarded port", SECONDS)
        with closing(Database(dsn)) as database:
            yield database
