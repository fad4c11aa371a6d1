"""A running cluster as tests use it: its API, its images, its nodes, and what they wait for."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.cluster.provider import Nodes, Provider
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.control_plane import free_port
from tests.kube.cluster.nodes import NODES, is_ready
from tests.kube.cluster.processes import Program
from tests.kube.cluster.providers import Unavailable
from tests.waiting import wait_until

IMAGES_VARIABLE = "DATAFLOW_E2E_IMAGES"
"""Of a person's own cluster: `busybox=NAME operator=NAME …`, as its nodes can pull them; see docs/tests.md."""


@dataclass(frozen=True)
class Image:
    """An image of the tests: what pods call it, and who makes its archive."""

    name: str
    archive: Callable[[], Path]


@dataclass
class RealCluster:
    """One cluster with real nodes, for all tests of a session; `api` is an administrator's."""

    provider: Provider
    api: Api
    kubectl_program: Path
    helm_program: Path
    images: Mapping[str, Image]
    namespaces: list[str] = field(default_factory=list)
    """Those that are shown beside a failure; a test adds what it makes itself."""
    _loaded: set[str] = field(default_factory=set)

    def image(self, which: str) -> str:
        """What pods call an image, with `imagePullPolicy: IfNotPresent`; the nodes have it then. Raises Unavailable."""
        if self.provider.name == "kubeconfig":
            return _named(which)
        image = self.images[which]
        if which not in self._loaded:
            self.provider.load(image.archive())
            self._loaded.add(which)
        return image.name

    @property
    def nodes(self) -> Nodes:
        """Operations on nodes. Raises Unavailable where the nodes are somebody's own."""
        if self.provider.nodes is None:
            raise Unavailable(f"nodes can't be stopped in a cluster of {self.provider.name}")
        return self.provider.nodes

    def wait_node(self, node: str, ready: bool, seconds: float = 300) -> None:
        """Return when a node is Ready, or is not any more."""
        what = f"{node} is {'Ready' if ready else 'NotReady'}"
        self.api.wait(f"{NODES}/{node}", lambda found: is_ready(found) is ready, what, seconds)

    def wait_pod(self, namespace: str, pod: str, phase: str, seconds: float = 300) -> Object:
        """Return a pod when it is in a phase; one that has ended otherwise will never be there."""
        ended = {"Succeeded", "Failed"}

        def there(found: Object) -> bool:
            now = found["status"].get("phase")
            assert now == phase or now not in ended, f"{pod} is {now}, not {phase}: {json.dumps(found['status'])}"
            return bool(now == phase)

        return self.api.wait(f"/api/v1/namespaces/{namespace}/pods/{pod}", there, f"{pod} is {phase}", seconds)

    @contextmanager
    def forwarded(self, namespace: str, to: str, port: int) -> Iterator[int]:
        """A port of this machine that leads to one of a pod, or of a Service (`service/NAME`); see that it answers."""
        here = free_port()
        command = [str(self.kubectl_program), f"--kubeconfig={self.api.kubeconfig}", f"--namespace={namespace}"]
        with tempfile.TemporaryDirectory(prefix="dataflow-forward-") as folder:
            log = Path(folder, "log")
            forwarding = Program(f"port-forward {to}", [*command, "port-forward", to, f"{here}:{port}"], log)
            forwarding.start()
            try:
                wait_until(lambda: not forwarding.running or log.read_text().startswith("Forwarding"), forwarding.name)
                assert forwarding.running, forwarding.output()
                yield here
            finally:
                forwarding.kill()

    def helm(self, namespace: str, *arguments: str, seconds: float = 300) -> str:
        """Run helm to its end; return what it printed. Raises CalledProcessError, whose `stderr` is the output."""
        done = subprocess.run(
            [self.helm_program, f"--kubeconfig={self.api.kubeconfig}", f"--namespace={namespace}", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr.strip())
        return done.stdout


def _named(which: str) -> str:
    given = dict(word.partition("=")[::2] for word in os.environ.get(IMAGES_VARIABLE, "").split())
    if which not in given:
        raise Unavailable(f"your cluster needs the image {which}: push it, and set {IMAGES_VARIABLE}='{which}=NAME …'")
    return given[which]


def restricted_pod(name: str, image: str, command: list[str], **container: Any) -> Object:
    """A pod that the restricted level of pod security admits; `container`: more fields of its only container."""
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    **container,
                }
            ],
        },
    }
