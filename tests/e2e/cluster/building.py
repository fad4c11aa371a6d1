"""What the clusters with real nodes are made of, beside what `tests.kube.cluster` builds: pinned, built once, kept."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.kube.cluster.building import HELM, KUBERNETES, KUBERNETES_VARIABLES, VERSION, Source
from tests.kube.cluster.providers import Unavailable, built

PINS = Path(__file__).parent / "programs"

_SOURCES = (
    KUBERNETES,
    HELM,
    Source(
        "node",
        VERSION,
        PINS / "node",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy", "kubeadm")},
        KUBERNETES_VARIABLES,
    ),
    Source("coredns", "v1.14.7", PINS / "coredns", {"coredns": "opendataflow/coredns"}, {}, ("main.go",)),
    Source("pause", "v1", PINS / "pause", {"pause": "opendataflow/pause"}, {}, ("main.go",)),
    Source("kind", "v0.33.0", PINS / "kind", {"kind": "sigs.k8s.io/kind"}, {}),
    Source("crictl", "v1.34.0", PINS / "crictl", {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}, {}),
)

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
CLIENTS = ("kubectl", "helm")

_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables-save": "iptables",
    "conntrack": "conntrack",
    "busybox": "busybox-static",
    "docker": "docker.io",
    "debootstrap": "debootstrap",
}
"""Command -> the package of Debian that has it."""


def programs(names: Iterable[str], say: Callable[[str], None]) -> Mapping[str, Path]:
    """Find programs by name; build what is not there. Raises Unavailable."""
    return built(names, say, _SOURCES)


def installed(names: Iterable[str], what_for: str) -> Mapping[str, Path]:
    """Find commands that come with the system. Raises Unavailable, which names the packages that are missing."""
    found = {name: shutil.which(name, path=_SEARCHED) for name in names}
    missing = sorted({_PACKAGES[name] for name, path in found.items() if path is None})
    if missing:
        raise Unavailable(f"{what_for} needs {', '.join(missing)}: apt-get install {' '.join(missing)}")
    return {name: Path(path) for name, path in found.items() if path}


_SEARCHED = ":".join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
