"""Whatever a tenant may create, the operator takes over or says why not, and the jobs of others go on.

The tenant has the right to create the three kinds in its namespace, and no other. Seen at other operators: one resource
with an odd value, and the process ends, or tries it again and again for ever.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from opendataflow.names import API_VERSION, GROUP
from tests import specs
from tests.kube.cluster.api import Api, Refused
from tests.kube.conftest import wait_until_allowed
from tests.kube.jobs import PLURALS
from tests.kube.scene import Running, Scene, new_scene
from tests.share import soaked
from tests.waiting import wait_until

EXAMPLES = int(os.environ.get("DATAFLOW_TEST_OPERATOR_SPECS") or soaked(500, 10000))
TENANT = "mallory"
RIGHTS = {"apiGroups": [GROUP], "resources": list(PLURALS.values()), "verbs": ["create"]}
MOST_MEBIBYTES = 256


@pytest.fixture
def tenant(cluster: Api, other_namespace: str) -> Api:
    """Access of a user who may create the three kinds in one namespace, and nothing else."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other_namespace}"
    cluster.create(f"{roles}/roles", {"metadata": {"name": TENANT}, "rules": [RIGHTS]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}
    cluster.create(f"{roles}/rolebindings", {"metadata": {"name": TENANT}, "roleRef": role, "subjects": [user]})
    for plural in PLURALS.values():
        created = {"group": GROUP, "resource": plural, "verb": "create"}
        wait_until_allowed(cluster, other_namespace, TENANT, what=created)
    return cluster.acting_as(TENANT)


@pytest.fixture
def victim(dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """The namespace of another team."""
    with new_scene(dsn, cluster, namespace, tmp_path) as made:
        yield made


def path(namespace: str, kind: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}"


def generated(owner: str) -> list[specs.Body]:
    """Resources, many of which are wrong in one place. Every seventh names the job or the data of the other team."""
    made: list[specs.Body] = []

    @settings(max_examples=EXAMPLES, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(specs.resources)
    def gather(body: specs.Body) -> None:
        made.append(body)

    gather()
    for number, body in enumerate(made):
        body["metadata"] = {"name": f"{body['kind'].lower()}-{number}"}
        if isinstance(body["spec"], dict):
            body["spec"].pop("chunkSource", None)  # millions of chunks are another test's
            if number % 7 == 0:
                body["spec"].update(theirs(body, owner))
    return made


def theirs(body: specs.Body, owner: str) -> specs.Body:
    """Fields that name what belongs to the other team."""
    if body["kind"] == "DataSet":
        return {"id": "load-in"}
    if body["kind"] == "DataFlowJob":
        return {"id": "load"} if "id" in body["spec"] else {"inputs": [f"{owner}/load-in"], "outputs": ["load-out"]}
    return {"dataset": "load-in"} if "dataset" in body["spec"] else {"job": "load"}


@contextmanager
def always_healthy(running: Running) -> Iterator[list[float]]:
    """Ask /healthz without a pause, and see that each answer is good. Yields the seconds of each answer."""
    answers: list[float] = []
    bad: list[tuple[int, str]] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.05):
            begin = time.monotonic()
            answer = running.probe("/healthz")
            answers.append(time.monotonic() - begin)
            if answer != (200, "ok\n"):
                bad.append(answer)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        ended.set()
        asking.join()
    assert answers
    assert bad == []


def put(tenant: Api, namespace: str, made: list[specs.Body]) -> int:
    """Create resources; return how many the API server has taken."""
    taken = 0
    for body in made:
        try:
            tenant.create(f"{path(namespace, body['kind'])}?fieldValidation=Strict", body)
            taken += 1
        except Refused as refused:
            if refused.status not in (400, 422):
                raise
    return taken


def unreported(cluster: Api, namespace: str) -> list[str]:
    """Resources of which nothing is reported."""
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in PLURALS
        for each in cluster.items(path(namespace, kind))
        if not (each.get("status") or {}).get("phase") and not (each.get("status") or {}).get("conditions")
    ]


def most_memory(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def test_whatever_a_tenant_creates_is_taken_over_or_refused_in_a_sentence_and_the_job_of_another_goes_on(
    victim: Scene, tenant: Api, other_namespace: str
) -> None:
    made = generated(victim.namespace)
    running = victim.start(DATAFLOW_NAMESPACES=f"{victim.namespace},{other_namespace}")
    running.until_ready()
    victim.flow("load", 20, {"run-seconds": "1"}, parallelism=2)
    victim.begun("load")
    epoch = victim.database.rows("SELECT epoch FROM opendataflow.leader")
    with always_healthy(running) as answers:
        taken = put(tenant, other_namespace, made)
        assert taken > EXAMPLES // 10
        victim.until_done(victim.key("load"), 20)
        wait_until(
            lambda: not unreported(victim.api, other_namespace),
            "everything is reported",
            seconds=max(240, EXAMPLES / 5),
            every=0.1 + EXAMPLES / 5000,  # to read ten thousand resources takes a while
        )
        victim.flow("later", 2)
        victim.until_done(victim.key("later"), 2)
    print(f"{taken} of {len(made)} resources taken by the API server")
    print(f"{len(answers)} answers of /healthz, the slowest after {max(answers):.2f} s")
    assert running.healthy
    assert victim.database.rows("SELECT epoch FROM opendataflow.leader") == epoch
    assert most_memory(running.operator.process.pid) < MOST_MEBIBYTES
    assert "Traceback" not in running.operator.output()
    assert '"level": "ERROR"' not in running.operator.output()
    victim.is_right()
