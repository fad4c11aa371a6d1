"""One cluster: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok, each on a free port.

Its data are in one folder and worth nothing: etcd does not wait for the disk. Whoever stops the API server of a cluster
that others use disturbs them: such tests start a cluster of their own.
"""

import os
import random
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import yaml

from tests.kube.cluster.annotations import FAKE_NODE
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.certificates import Authority, write_kubeconfig
from tests.kube.cluster.logs import OF_ALL, RESOURCE, write_log
from tests.kube.cluster.processes import Program
from tests.kube.cluster.stages import stages
from tests.waiting import wait_until

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok", "kubectl")

_BELOW_EPHEMERAL = range(20000, 32000)
"""Ports that no outgoing connection takes while a server is down for a moment."""
_SHARES = 16
"""Workers of `pytest -n` have shares of them: what one has found to be free is not taken by another one meanwhile."""
_ATTEMPTS = 3
_GROWTH = 400
"""How much the heap of a program may grow before Go collects garbage, in per cent. With Go's 100 it collects all the
time, as the heaps are small: a tenth of all their work."""
_LEASE_SECONDS = 16
_GRACE_SECONDS = 20
"""Without a heartbeat for so long a node is unreachable. If it were less, on a busy machine all nodes would be."""


def free_port(address: str = "127.0.0.1") -> int:
    """A port where nobody listens now; of the loopback interface, or of that with an address."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _SHARES
    while True:
        port = random.choice(_BELOW_EPHEMERAL[share::_SHARES])
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port


class ControlPlane:
    """Starts in `folder`, which it makes and removes. `kubeconfig` is an administrator's.

    A class that is derived from it has other nodes: it says where its API server listens, and how it reaches them.
    """

    address = "127.0.0.1"
    """Where the API server listens."""
    server_options: tuple[str, ...] = ("--endpoint-reconciler-type=none", "--authorization-mode=RBAC")
    """What else the API server is started with; `PKI` is the folder of the certificates."""
    manager_options: tuple[str, ...] = ()
    """What else the controller manager is started with."""
    manager_group: str | None = "system:masters"
    """As whom the controller manager signs in, beside its own name."""
    qps: int | None = 500
    """Requests a second of the scheduler and the controller manager; None: what they do when nobody says anything."""

    def __init__(self, folder: Path, programs: Mapping[str, Path]) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.pki = folder / "pki"
        self.port = 0
        self._paths = programs
        self._programs: dict[str, Program] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs.values()):
            program.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://{self.address}:{self.port}"

    @property
    def api_server(self) -> Program:
        """To be killed, paused and started again on the same port with the same data."""
        return self._programs["kube-apiserver"]

    @property
    def programs(self) -> Mapping[str, Program]:
        """All programs of the control plane by name."""
        return self._programs

    def restart_api_server(self) -> None:
        """Start the API server again after `api_server.kill()`; return when it answers."""
        self.api_server.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when the API server says that it is ready."""
        wait_until(self._ready, f"the API server is ready: see {self.api_server.log}", seconds=240)

    def _start(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        authority = Authority(self.pki)
        authority.issue(
            "apiserver",
            "kube-apiserver",
            hosts=[
                self.address,
                "10.96.0.1",
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
            ],
        )
        authority.issue("admin", "admin", "system:masters")
        authority.issue("kube-scheduler", "system:kube-scheduler")
        authority.issue("kube-controller-manager", "system:kube-controller-manager", self.manager_group)
        self.issue(authority)
        authority.signing_keys("service-accounts")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_api_server()
            except _PortTaken:
                if attempt == _ATTEMPTS:
                    raise
            else:
                break
        for user in ("kube-scheduler", "kube-controller-manager"):
            self.write_kubeconfig(user)
        write_kubeconfig(self.kubeconfig, self.server, self.pki, "admin")
        self._start_controllers(self.qps)
        self.start_nodes()

    def write_kubeconfig(self, user: str) -> Path:
        """Write USER.kubeconfig, for one who has a certificate of that name."""
        return write_kubeconfig(self.folder / f"{user}.kubeconfig", self.server, self.pki, user)

    def issue(self, authority: Authority) -> None:
        """Sign the certificates of the nodes."""
        authority.issue("kwok", "kwok", "system:masters", hosts=["127.0.0.1"])

    def start_nodes(self) -> None:
        """Start what plays the kubelet."""
        self.write_kubeconfig("kwok")
        self._start_kwok()

    def run(self, name: str, *arguments: str) -> Program:
        """Start a program; it ends with the control plane."""
        log = self.folder / f"{name}.log"
        command = [str(self._paths[name]), *arguments]
        self._programs[name] = Program(name, command, log, {"GOGC": str(_GROWTH)})
        self._programs[name].start()
        return self._programs[name]

    def _start_api_server(self) -> None:
        store, peers, self.port = free_port(), free_port(), free_port(self.address)
        etcd = self.run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{store}",
            f"--advertise-client-urls=http://127.0.0.1:{store}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        )
        server = self.run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{store}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--client-ca-file={self.pki / 'ca.crt'}",
            f"--tls-cert-file={self.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self.pki / 'apiserver.key'}",
            f"--service-account-key-file={self.pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={self.pki / 'service-accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            "-v=1",
            *(option.replace("PKI", str(self.pki)) for option in self.server_options),
        )

        def ready() -> bool:
            for program in (etcd, server):
                if not program.running:
                    raise _PortTaken(f"{program.name} has ended at once:\n{program.output()}")
            return self._ready()

        try:
            wait_until(ready, f"the API server is ready: see {server.log}", seconds=240)
        except _PortTaken:
            etcd.kill()
            server.kill()
            shutil.rmtree(self.folder / "etcd", ignore_errors=True)
            raise

    def _ready(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        trust.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        try:
            with urllib.request.urlopen(f"{self.server}/readyz", context=trust, timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as refused:
            refused.close()
            return False
        except OSError:
            return False

    def restart_controllers(self, qps: int | None) -> None:
        """Start the scheduler and the controller manager again, which may send `qps` requests a second each; None: as
        many as they do when nobody says anything."""
        for name in ("kube-controller-manager", "kube-scheduler"):
            self._programs[name].kill()
        self._start_controllers(qps)

    def _start_controllers(self, qps: int | None) -> None:
        quick: tuple[str, ...] = ("--leader-elect=false", "--secure-port=0", "--profiling=false")
        if qps is not None:
            quick += (f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}")
        self.run("kube-scheduler", f"--kubeconfig={self.folder / 'kube-scheduler.kubeconfig'}", *quick)
        self.run(
            "kube-controller-manager",
            f"--kubeconfig={self.folder / 'kube-controller-manager.kubeconfig'}",
            f"--service-account-private-key-file={self.pki / 'service-accounts.key'}",
            f"--root-ca-file={self.pki / 'ca.crt'}",
            f"--node-monitor-grace-period={_GRACE_SECONDS}s",
            "--node-monitor-period=1s",
            *self.manager_options,
            *quick,
        )

    def _start_kwok(self) -> None:
        kubelet = free_port()
        output = self.folder / "container.log"
        write_log(output, OF_ALL)
        with Api(self._paths["kubectl"], self.kubeconfig) as api:
            resources = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            api.create(resources, RESOURCE)
            api.wait(f"{resources}/{RESOURCE['metadata']['name']}", _established, "kwok's resource is served")
        options = {
            "enableCRDs": ["Logs"],
            "cidr": "10.64.0.0/10",
            "nodeIP": "127.0.0.1",
            "nodePort": kubelet,
            "enableDebuggingHandlers": True,  # container logs
            "serverAddress": f"127.0.0.1:{kubelet}",
            "tlsCertFile": str(self.pki / "kwok.crt"),
            "tlsPrivateKeyFile": str(self.pki / "kwok.key"),
            "manageNodesWithLabelSelector": FAKE_NODE,
            "nodeLeaseDurationSeconds": _LEASE_SECONDS,
            "nodeLeaseParallelism": 4,
            "podPlayStageParallelism": 16,
            "nodePlayStageParallelism": 4,
        }
        kind = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "metadata": {"name": "kwok"},
        }
        logs = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterLogs",
            "metadata": {"name": "all"},
            "spec": {"logs": [{"logsFile": str(output)}]},
        }
        written = self.folder / "kwok.yaml"
        written.write_text(yaml.safe_dump_all([{**kind, "options": options}, logs, *stages()]))
        self.run("kwok", f"--config={written}", f"--kubeconfig={self.folder / 'kwok.kubeconfig'}")


def _established(resource: Object) -> bool:
    conditions = resource.get("status", {}).get("conditions") or []  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


class _PortTaken(Exception):
    """A server has ended at once: most likely somebody has taken its port since it was found to be free."""
