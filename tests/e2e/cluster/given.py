"""The cluster that a person already has, named by KUBECONFIG: nothing is started or ended, and nodes are left alone.

Its nodes pull images from where the person has put them: DATAFLOW_E2E_IMAGES says under which names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube.cluster.annotations import FAKE_NODE
from tests.kube.cluster.api import Api
from tests.kube.cluster.nodes import NODES
from tests.kube.cluster.providers import Unavailable, kubectl


class Given:
    """The provider."""

    name = "kubeconfig"
    nodes = None

    def __init__(self, kubeconfig: Path, say: Callable[[str], None]) -> None:
        self._kubeconfig = kubeconfig
        self._say = say

    def build(self) -> None:
        """See `Provider`."""
        kubectl(self._say)

    @contextmanager
    def use(self) -> Iterator[Path]:
        """See `Provider`."""
        with Api(kubectl(self._say), self._kubeconfig) as api:
            if api.items(f"{NODES}?labelSelector={FAKE_NODE}"):
                raise Unavailable("KUBECONFIG names a cluster with fake nodes, which run no image: unset it")
        yield self._kubeconfig

    def keep(self) -> Path:
        """See `Provider`."""
        raise Unavailable("KUBECONFIG names a cluster that runs already: unset it to start another one")

    def down(self) -> None:
        """See `Provider`."""
        raise Unavailable("KUBECONFIG names a cluster that is yours: unset it to end the one that `up` has started")

    def load(self, archive: Path) -> None:
        """See `Provider`."""
        raise Unavailable(f"the nodes of your cluster pull images from a registry: push {archive.name} there")
