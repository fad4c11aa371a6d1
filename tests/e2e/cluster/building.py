"""What the clusters with real nodes are made of, beside what `tests.kube.cluster` builds: pinned, built once, kept."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.kube.cluster.building import KUBERNETES, VERSION, Pins
from tests.kube.cluster.providers import Unavailable, built

PINS = Path(__file__).parent / "programs"

_PROGRAMS = (
    KUBERNETES,
    Pins(
        f"node-{VERSION}",
        PINS / "node",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy", "kubeadm")},
    ),
    Pins("coredns", PINS / "coredns", {"coredns": "opendataflow/coredns"}, ("main.go",)),
    Pins("pause", PINS / "pause", {"pause": "opendataflow/pause"}, ("main.go",)),
    Pins("helm", PINS / "helm", {"helm": "helm.sh/helm/v3/cmd/helm"}),
    Pins("kind", PINS / "kind", {"kind": "sigs.k8s.io/kind"}),
    Pins("crictl", PINS / "crictl", {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}),
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


def programs(names: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Find programs by name; build what is not there. Raises Unavailable."""
    wanted = set(names)
    found: dict[str, Path] = {}
    for pins in _PROGRAMS:
        ours = sorted(wanted & pins.packages.keys())
        if ours:
            found |= built(ours, say, pins)
    assert found.keys() == wanted, f"nothing is known of {wanted - found.keys()}"
    return found


def installed(names: Iterable[str], what_for: str) -> Mapping[str, Path]:
    """Find commands that come with the system. Raises Unavailable, which names the packages that are missing."""
    found = {name: shutil.which(name, path=_SEARCHED) for name in names}
    missing = sorted({_PACKAGES[name] for name, path in found.items() if path is None})
    if missing:
        raise Unavailable(f"{what_for} needs {', '.join(missing)}: apt-get install {' '.join(missing)}")
    return {name: Path(path) for name, path in found.items() if path}


_SEARCHED = ":".join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
