"""A cluster with one node on this host: the real control plane, and containerd, kubelet, kube-proxy and CoreDNS beside.

It needs root, and containers of it run on the host; so it is started only where somebody has asked for it. A
supervisor holds it (`tests.kube.cluster.supervisor`): when a test run is killed, the supervisor clears away, and when
that is killed too, the next `up` or `down` does.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.cluster import host_node
from tests.e2e.cluster.building import CLIENTS, CONTROL_PLANE, installed, programs
from tests.e2e.cluster.commands import run, succeeds
from tests.e2e.cluster.leftovers import BRIDGE, cgroups, clear, programs_of, set_sysctls
from tests.e2e.cluster.machine_lock import only_one
from tests.e2e.cluster.small_images import pause
from tests.e2e.cluster.static_volumes import add_volumes
from tests.kube.cluster.api import Api
from tests.kube.cluster.certificates import Authority
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.cluster.nodes import is_ready
from tests.kube.cluster.processes import Program
from tests.kube.cluster.providers import Unavailable
from tests.kube.cluster.supervisor import end, keep, runs, shared
from tests.waiting import wait_until

FOLDER = Path("/var/lib/opendataflow-e2e")
"""There is one such cluster on a machine; so its place does not depend on who starts it."""
_SYSTEM = ("containerd", "ctr", "runc", "ip", "iptables-save", "conntrack")
NODE_PROGRAMS = ("kubelet", "kube-proxy", "coredns")
_CNI_PLUGINS = Path("/usr/lib/cni")
_END_SECONDS = 120
_CPU_SHARE = {"cpu.shares": "8192", "cpu.weight": "800"}
"""Eight times that of one process: beside other tests, all pods together would have the time of one process."""


class Host:
    """The provider; also its only node's operations."""

    name = "host"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    kubeconfig = FOLDER / "plane" / "kubeconfig"

    @property
    def kept(self) -> bool:
        """Whether `keep` has started it, and `down` has not ended it."""
        return (FOLDER / "kept").exists()

    @property
    def nodes(self) -> "Host":
        """Operations on the node."""
        return self

    def build(self) -> None:
        """See `Provider`."""
        programs((*CONTROL_PLANE, *CLIENTS, *NODE_PROGRAMS, "pause"), self._say)

    @contextmanager
    def use(self) -> Iterator[Path]:
        """See `Provider`."""
        command = self._command()
        with only_one(self._say):
            kept = self.kept and runs(FOLDER)
            try:
                with shared(FOLDER, command) as kubeconfig:
                    self.resume_kubelet(host_node.NODE)  # a session that was killed may have left it paused
                    yield kubeconfig
            finally:
                if not kept:
                    self._end()

    def keep(self) -> Path:
        """See `Provider`."""
        command = self._command()
        with only_one(self._say):
            try:
                kubeconfig = keep(FOLDER, command)
            except BaseException:
                self._end()
                raise
            (FOLDER / "kept").touch()
        return kubeconfig

    def down(self) -> None:
        """See `Provider`."""
        _must_be_root()
        with only_one(self._say):
            self._end()

    def _end(self) -> None:
        end(FOLDER, _END_SECONDS)
        clear(FOLDER)
        shutil.rmtree(FOLDER, ignore_errors=True)

    def _command(self) -> list[str]:
        """What supervises the cluster; whatever it needs is there then."""
        _must_be_root()
        installed(_SYSTEM, "a node on this host")
        if not (_CNI_PLUGINS / "bridge").exists():
            raise Unavailable("a node on this host needs containernetworking-plugins: apt-get install it")
        _refuse_beside_another_kubelet()
        built = programs((*CONTROL_PLANE, "kubectl", *NODE_PROGRAMS), self._say)
        return ["tests.e2e.cluster", "supervise", *(f"{name}={path}" for name, path in built.items())]

    def load(self, archive: Path) -> None:
        """See `Provider`."""
        _ctr("images", "import", "--all-platforms", "--digests", str(archive))

    def pause_kubelet(self, node: str) -> None:
        """See `Nodes`."""
        self.run(node, "kill", "-STOP", _pid("kubelet"))

    def resume_kubelet(self, node: str) -> None:
        """See `Nodes`."""
        self.run(node, "kill", "-CONT", _pid("kubelet"))

    def run(self, node: str, *command: str) -> str:
        """See `Nodes`."""
        assert node == host_node.NODE, f"the only node is {host_node.NODE}"
        return run(command)

    def logs(self, node: str) -> Mapping[str, str]:
        """See `Nodes`."""
        files = {program: FOLDER / "plane" / f"{program}.log" for program in ("kubelet", "containerd")}
        return {program: self.run(node, "cat", str(file)) for program, file in files.items()}


def _must_be_root() -> None:
    if os.geteuid() != 0:
        raise Unavailable("a node on this host needs root: run it by sudo, or start Docker for a cluster of kind")


def _refuse_beside_another_kubelet() -> None:
    ours = {str(pid) for pid in programs_of(FOLDER)}
    network = Path("/proc/self/ns/net").readlink()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            name = (process / "comm").read_text().strip()
            if name == "kubelet" and process.name not in ours and (process / "ns/net").readlink() == network:
                raise Unavailable("a kubelet runs on this host already: two would disturb each other's Services")


def _pid(program: str) -> str:
    return (FOLDER / "node" / f"{program}.pid").read_text()


def _ctr(*arguments: str) -> None:
    run(["ctr", f"--address={_socket(FOLDER)}", "--namespace=k8s.io", *arguments])


def _socket(folder: Path) -> Path:
    return folder / "node" / "containerd" / "containerd.sock"


class OneNode(ControlPlane):
    """The control plane and the node in one: all of it starts, and ends, together."""

    address = host_node.ADDRESS
    server_options = (
        "--endpoint-reconciler-type=lease",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-certificate-authority=PKI/ca.crt",
        "--kubelet-client-certificate=PKI/kubelet-client.crt",
        "--kubelet-client-key=PKI/kubelet-client.key",
    )
    manager_options = ("--use-service-account-credentials=true",)
    manager_group = None
    qps = None

    def __init__(self, folder: Path, built: Mapping[str, Path]) -> None:
        super().__init__(folder / "plane", {**built, "containerd": Path("/usr/bin/containerd")})
        self._node = folder / "node"
        self._socket = _socket(folder)
        self._kubectl = built["kubectl"]

    def issue(self, authority: Authority) -> None:
        """Sign for the node's programs, and for the API server when it calls the kubelet."""
        node = host_node.NODE
        authority.issue("kubelet", f"system:node:{node}", "system:nodes", hosts=[node, host_node.ADDRESS])
        authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
        authority.issue("kube-proxy", "system:kube-proxy")
        authority.issue("coredns", "coredns", "system:masters")

    def start_nodes(self) -> None:
        """Start the node; return when it is Ready."""
        self._start_containerd()
        self._start_kubelet()
        written = self._write("kube-proxy.yaml", host_node.proxy(self.write_kubeconfig("kube-proxy")))
        self.run("kube-proxy", f"--config={written}")
        outside = "nameserver" in Path("/etc/resolv.conf").read_text()
        written = self._write("Corefile", host_node.names(self.write_kubeconfig("coredns"), outside))
        self.run("coredns", f"-conf={written}")
        with Api(self._kubectl, self.kubeconfig) as api:
            api.wait(f"/api/v1/nodes/{host_node.NODE}", is_ready, f"the node is Ready: {self.folder}/kubelet.log", 120)
            for path in add_volumes(api, host_node.NODE, self._node / "volumes"):
                path.mkdir(parents=True)
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            api.wait(account, lambda _: True, "pods can be created")

    def _start_containerd(self) -> None:
        folder = self._node / "containerd"
        (folder / "net.d").mkdir(parents=True)
        data = str(self._node / "addresses")
        (folder / "net.d" / "10-bridge.conflist").write_text(host_node.network().replace("DATA", data))
        written = self._write("containerd.toml", host_node.containerd(folder, self._socket))
        started = self.run("containerd", f"--config={written}")
        wait_until(lambda: _answers(self._socket, started), f"containerd answers: {started.log}")
        archive = pause(self._node, lambda _: None)
        _ctr("images", "import", str(archive))

    def _start_kubelet(self) -> None:
        kubeconfig = self.write_kubeconfig("kubelet")
        written = self._write("kubelet.yaml", host_node.kubelet(self._node, self.pki, self._socket))
        started = self.run(
            "kubelet",
            f"--config={written}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self._node / 'kubelet'}",
            f"--hostname-override={host_node.NODE}",
            f"--node-ip={host_node.ADDRESS}",
        )
        (self._node / "kubelet.pid").write_text(str(started.pid))

    def _write(self, name: str, text: str) -> Path:
        path = self._node / name
        path.write_text(text)
        return path


def _answers(socket: Path, containerd: Program) -> bool:
    if not containerd.running:
        raise RuntimeError(f"containerd has ended at once:\n{containerd.output()}")
    return succeeds("ctr", f"--address={socket}", "version")


@contextmanager
def one_node(folder: Path, built: Mapping[str, Path]) -> Iterator[Path]:
    """The cluster of `folder`; gives its kubeconfig. What an earlier one has left is cleared away first."""
    clear(folder)
    try:
        (folder / "node").mkdir()
        _connect(folder)
        for cgroup in cgroups():
            _make_cgroup(cgroup)
        with OneNode(folder, built) as plane:
            yield plane.kubeconfig
    finally:
        clear(folder)


def _connect(folder: Path) -> None:
    set_sysctls(folder, {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"})
    for command in (
        ["ip", "link", "add", "name", BRIDGE, "type", "bridge"],
        ["ip", "address", "add", f"{host_node.ADDRESS}/16", "dev", BRIDGE],
        ["ip", "link", "set", BRIDGE, "up"],
        *(["iptables", "-w", *rule] for rule in host_node.rules()),
    ):
        run(command)


def _make_cgroup(cgroup: Path) -> None:
    """Make our cgroup; with version 2 the parent has to give it what the kubelet divides."""
    cgroup.mkdir(exist_ok=True)
    has = cgroup.parent / "cgroup.controllers"
    if has.exists():
        for controller in {"cpu", "cpuset", "memory", "pids"} & set(has.read_text().split()):
            (cgroup.parent / "cgroup.subtree_control").write_text(f"+{controller}")
    for name, share in _CPU_SHARE.items():
        if (cgroup / name).exists():
            (cgroup / name).write_text(share)
