"""A cluster of kind: two nodes, each a container of Docker.

The nodes' image is kind's own where a registry answers, else one that is built here (`kind_image`).
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster.building import CLIENTS, programs
from tests.e2e.cluster.commands import run, succeeds
from tests.e2e.cluster.kind_image import build_node_image, built_node_image
from tests.e2e.cluster.machine_lock import only_one
from tests.e2e.cluster.static_volumes import add_volumes, provisioned
from tests.kube.cluster.api import Api
from tests.kube.cluster.building import cache_folder
from tests.kube.cluster.providers import Unavailable

IMAGE_VARIABLE = "DATAFLOW_E2E_KIND_IMAGE"
_OFFICIAL = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""The one that the pinned kind takes when nobody says anything."""
_NAME = "opendataflow-e2e"
_CONFIG = """\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}]
"""
_VOLUMES = Path("/var/opendataflow-volumes")
_ANSWER_SECONDS = 20


def docker_answers() -> bool:
    """Whether there is a Docker that may be used."""
    return shutil.which("docker") is not None and succeeds("docker", "info", seconds=_ANSWER_SECONDS)


class Kind:
    """The provider; also its nodes' operations."""

    name = "kind"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._folder = cache_folder() / "kind"
        self.kubeconfig = self._folder / "kubeconfig"
        self._marker = self._folder / "kept"

    @property
    def kept(self) -> bool:
        """Whether `keep` has started it, and `down` has not ended it."""
        return self._marker.exists()

    @property
    def nodes(self) -> "Kind":
        """Operations on the nodes."""
        return self

    def build(self) -> None:
        """See `Provider`."""
        _must_answer()
        programs((*CLIENTS, "kind"), self._say)
        self._say(f"the nodes' image is {self._image()}")

    @contextmanager
    def use(self) -> Iterator[Path]:
        """See `Provider`."""
        _must_answer()
        with only_one(self._say):
            kept = self.kept and self._runs()
            try:
                if not kept:
                    self._start()
                for node in self._nodes():
                    self.resume_kubelet(node)  # a session that was killed may have left it paused
                yield self.kubeconfig
            finally:
                if not kept:
                    self._end()

    def keep(self) -> Path:
        """See `Provider`."""
        _must_answer()
        with only_one(self._say):
            if not (self.kept and self._runs()):
                self._start()
                self._marker.touch()
        return self.kubeconfig

    def down(self) -> None:
        """See `Provider`."""
        _must_answer()
        with only_one(self._say):
            self._end()

    def load(self, archive: Path) -> None:
        """See `Provider`."""
        command = ("ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-")
        for node in self._workers():
            with archive.open("rb") as content:
                run(["docker", "exec", "--interactive", node, *command], stdin=content)

    def pause_kubelet(self, node: str) -> None:
        """See `Nodes`."""
        self.run(node, "systemctl", "kill", "--signal=STOP", "kubelet")

    def resume_kubelet(self, node: str) -> None:
        """See `Nodes`."""
        self.run(node, "systemctl", "kill", "--signal=CONT", "kubelet")

    def run(self, node: str, *command: str) -> str:
        """See `Nodes`."""
        return run(["docker", "exec", node, *command])

    def logs(self, node: str) -> Mapping[str, str]:
        """See `Nodes`."""
        return {unit: self.run(node, "journalctl", f"--unit={unit}") for unit in ("kubelet", "containerd")}

    def _runs(self) -> bool:
        return _NAME in self._kind("get", "clusters").split()

    def _nodes(self) -> list[str]:
        return self._kind("get", "nodes", f"--name={_NAME}").split()

    def _workers(self) -> list[str]:
        """The nodes that pods of tests run on: the control plane's is tainted."""
        return [node for node in self._nodes() if not node.endswith("control-plane")]

    def _start(self) -> None:
        self._end()
        image = self._image()
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yaml"
        config.write_text(_CONFIG)
        self._say(f"starting a cluster of kind with the image {image}")
        self._kind(
            "create",
            "cluster",
            f"--name={_NAME}",
            f"--config={config}",
            f"--image={image}",
            f"--kubeconfig={self.kubeconfig}",
            "--wait=180s",
        )
        self._add_volumes()

    def _add_volumes(self) -> None:
        """Where the image brings no provisioner of storage: some volumes on the worker."""
        with Api(programs(["kubectl"], self._say)["kubectl"], self.kubeconfig) as api:
            if provisioned(api):
                return
            worker = f"{_NAME}-worker"
            for path in add_volumes(api, worker, _VOLUMES):
                self.run(worker, "mkdir", "--parents", str(path))

    def _end(self) -> None:
        self._kind("delete", "cluster", f"--name={_NAME}", f"--kubeconfig={self.kubeconfig}")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kind(self, *arguments: str) -> str:
        return run([programs(["kind"], self._say)["kind"], *arguments])

    def _image(self) -> str:
        named = os.environ.get(IMAGE_VARIABLE)
        if named:
            return named
        for image in (_OFFICIAL, built_node_image()):
            if succeeds("docker", "image", "inspect", image):
                return image
        if succeeds("docker", "pull", "--quiet", _OFFICIAL):
            return _OFFICIAL
        self._say("no registry has the image of kind's nodes: it is built here")
        return build_node_image(self._say)


def _must_answer() -> None:
    if not docker_answers():
        raise Unavailable("kind needs Docker, which does not answer: is it started, and may you use it?")
