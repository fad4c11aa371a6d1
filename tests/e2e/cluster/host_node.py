"""The files that containerd, the kubelet, kube-proxy and CoreDNS of the node on this host are started with.

Pure: folders and addresses in, text out. What has a reason of ours has it beside; the rest is as kubeadm has it.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster.leftovers import BRIDGE, CGROUP, NETWORK
from tests.e2e.cluster.small_images import PAUSE

NODE = "node-1"
ADDRESS = "10.208.0.1"
"""Of the bridge: the node, its API server and its names are there, for pods and for the host alike."""
PODS = "10.208.0.0/16"
KUBELET_PORT = 10250
LEASE_SECONDS = 20
"""So that a node that is silent is NotReady after as many seconds, and no earlier on a busy machine."""


def network() -> str:
    """The configuration of CNI. Addresses outside are masqueraded by a rule of our own, which is easy to take away."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "DATA",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [bridge]}, indent=1)


def rules() -> list[list[str]]:
    """Arguments of iptables: pods reach each other and the world also where Docker has closed the way."""
    comment = ["-m", "comment", "--comment", NETWORK]
    return [
        ["-I", "FORWARD", "-i", BRIDGE, *comment, "-j", "ACCEPT"],
        ["-I", "FORWARD", "-o", BRIDGE, *comment, "-j", "ACCEPT"],
        ["-t", "nat", "-A", "POSTROUTING", "-s", PODS, "!", "-d", PODS, *comment, "-j", "MASQUERADE"],
    ]


def containerd(folder: Path, socket: Path) -> str:
    """containerd's configuration; all it keeps is in `folder`."""
    return f"""\
version = 2
root = "{folder}/root"
state = "{folder}/state"
# CRI is all that is needed; the second would make /opt/containerd
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # a machine may lack CAP_SYS_RESOURCE, which it takes to be killed later than others
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{folder}/runc"
"""


def kubelet(folder: Path, pki: Path, socket: Path) -> str:
    """The kubelet's configuration."""
    settings: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{socket}",
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(folder / "logs"),
        "volumePluginDir": str(folder / "plugins"),
        "cgroupDriver": "cgroupfs",
        # a cgroup of its own separates our pods from those of anybody else
        "cgroupRoot": f"/{CGROUP}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # only kube-proxy writes rules
        "makeIPTablesUtilChains": False,
        # of the disk, which is the host's, nothing is measured and no image is removed
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "200Mi"},
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "maxPods": 250,
        "registryPullQPS": 0,
        "serializeImagePulls": False,
    }
    return yaml.safe_dump(settings)


def proxy(kubeconfig: Path) -> str:
    """kube-proxy's configuration: the host's own limits and its loopback stay as they are."""
    settings: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "iptables",
        "iptables": {"localhostNodePorts": False},
        "clusterCIDR": PODS,
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "hostnameOverride": NODE,
        "metricsBindAddress": f"{ADDRESS}:10249",
        "healthzBindAddress": f"{ADDRESS}:10256",
    }
    return yaml.safe_dump(settings)


def names(kubeconfig: Path, outside: bool) -> str:
    """CoreDNS's configuration. `outside`: other names are asked for where the host asks."""
    cluster = f"""\
cluster.local:53 {{
    bind {ADDRESS}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig} test
        pods insecure
        ttl 5
    }}
}}
"""
    world = f"""\
.:53 {{
    bind {ADDRESS}
    errors
    forward . /etc/resolv.conf
}}
"""
    return cluster + (world if outside else "")
