"""What a provider of a cluster does: the one interface between the tests and the three ways to get a cluster."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class Nodes(Protocol):
    """What can be done to nodes, from outside of Kubernetes."""

    def pause_kubelet(self, node: str) -> None:
        """Let the kubelet hang: the node becomes NotReady, while its containers go on."""

    def resume_kubelet(self, node: str) -> None:
        """Let the kubelet go on."""

    def run(self, node: str, *command: str) -> str:
        """Run a command as root on a node; return what it printed. Raises CalledProcessError."""

    def logs(self, node: str) -> Mapping[str, str]:
        """What the kubelet and containerd of a node have logged, by program."""


class Provider(Protocol):
    """One way to get a cluster. Methods raise `Unavailable`, whose text is one sentence for the person."""

    name: str

    @property
    def nodes(self) -> Nodes | None:
        """Operations on nodes; None where nobody may do that."""

    def build(self) -> None:
        """Build what the cluster is made of, unless it is there."""

    def use(self) -> AbstractContextManager[Path]:
        """The cluster for one session, which has it alone; gives an administrator's kubeconfig.

        It is started unless `keep` has started it, and ended afterwards unless it is kept.
        """

    def keep(self) -> Path:
        """Start the cluster, to stay until `down`."""

    def down(self) -> None:
        """End the cluster, and clear away what an earlier one has left, however it ended."""

    def load(self, archive: Path) -> None:
        """Give the image of an archive (OCI, or of `docker save`) to all nodes."""
