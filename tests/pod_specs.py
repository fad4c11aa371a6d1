"""Pods for each control of the Pod Security Standards: what each profile says, and the field that it refuses."""

from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]
MAIN = "spec.containers[main]"
CONTEXT = f"{MAIN}.securityContext"
RESTRICTED, BASELINE, PRIVILEGED = "restricted", "baseline", "privileged"


@dataclass(frozen=True)
class PodCase:
    """A pod. `level`: the strictest profile that permits it. `refused`: the fields that the profile `restricted` names.

    `pod`, `main`: fields of its spec, and of its container. None removes a field of the permitted pod. `context`:
    fields of the security context of the container.
    """

    name: str
    level: str
    refused: list[str] = field(default_factory=list)
    pod: Fields = field(default_factory=dict)
    main: Fields = field(default_factory=dict)
    context: Fields = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    def manifest(self) -> Fields:
        """Return the pod."""
        context = _with({"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, self.context)
        main = _with({"name": "main", "image": "none/x:1", "securityContext": context}, self.main)
        spec = {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [main],
        }
        return {"metadata": {"name": "case", "annotations": self.annotations}, "spec": _with(spec, self.pod)}


def _with(base: Fields, written: Fields) -> Fields:
    return {name: value for name, value in {**base, **written}.items() if value is not None}


def _pod_context(**fields: Any) -> Fields:
    return {"securityContext": _with({"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, fields)}


def _volume(**source: Any) -> Fields:
    return {"volumes": [{"name": "v", **source}]}


def _init(**context: Any) -> Fields:
    return {"initContainers": [{"name": "before", "image": "none/x:1", "securityContext": context}]}


_HTTP = {"path": "/", "port": 80}

CASES = [
    PodCase("nothing is asked for", RESTRICTED),
    # Host namespaces.
    PodCase("network of the node", PRIVILEGED, ["spec.hostNetwork"], pod={"hostNetwork": True}),
    PodCase("processes of the node", PRIVILEGED, ["spec.hostPID"], pod={"hostPID": True}),
    PodCase("shared memory of the node", PRIVILEGED, ["spec.hostIPC"], pod={"hostIPC": True}),
    PodCase("no namespaces of the node", RESTRICTED, pod={"hostNetwork": False, "hostPID": False, "hostIPC": False}),
    # Privileged containers.
    PodCase(
        "privileged container",
        PRIVILEGED,
        [f"{CONTEXT}.privileged", f"{CONTEXT}.allowPrivilegeEscalation"],
        context={"privileged": True, "allowPrivilegeEscalation": None},
    ),
    PodCase(
        "privileged init container",
        PRIVILEGED,
        [
            f"spec.initContainers[before].securityContext.{each}"
            for each in ("privileged", "allowPrivilegeEscalation", "capabilities.drop")
        ],
        pod=_init(privileged=True),
    ),
    PodCase("container that is not privileged", RESTRICTED, context={"privileged": False}),
    # Capabilities.
    PodCase(
        "all capabilities",
        PRIVILEGED,
        [f"{CONTEXT}.capabilities.add"],
        context={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}},
    ),
    PodCase(
        "capability of every container",
        BASELINE,
        [f"{CONTEXT}.capabilities.add"],
        context={"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
    ),
    PodCase("capabilities are not dropped", BASELINE, [f"{CONTEXT}.capabilities.drop"], context={"capabilities": None}),
    PodCase(
        "one capability is dropped",
        BASELINE,
        [f"{CONTEXT}.capabilities.drop"],
        context={"capabilities": {"drop": ["NET_RAW"]}},
    ),
    PodCase("low ports", RESTRICTED, context={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
    # Volumes.
    PodCase("folder of the node", PRIVILEGED, ["spec.volumes[v].hostPath"], pod=_volume(hostPath={"path": "/"})),
    PodCase(
        "volume of another server",
        BASELINE,
        ["spec.volumes[v].nfs"],
        pod=_volume(nfs={"server": "files", "path": "/"}),
    ),
    PodCase(
        "volumes for everybody",
        RESTRICTED,
        pod={
            "volumes": [
                {"name": "a", "emptyDir": {}},
                {"name": "b", "configMap": {"name": "x", "optional": True}},
                {"name": "c", "secret": {"secretName": "x", "optional": True}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "x"}},
                {"name": "e", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"name": "f", "projected": {"sources": [{"configMap": {"name": "x"}}]}},
                {"name": "g", "csi": {"driver": "x.example.org"}},
                {"name": "h", "image": {"reference": "none/x:1"}},
            ]
        },
    ),
    # Ports, probes and hooks.
    PodCase(
        "port of the node",
        PRIVILEGED,
        [f"{MAIN}.ports.hostPort"],
        main={"ports": [{"containerPort": 80, "hostPort": 80}]},
    ),
    PodCase("port of the pod", RESTRICTED, main={"ports": [{"containerPort": 80}]}),
    PodCase(
        "probe of another host",
        PRIVILEGED,
        [f"{MAIN}.livenessProbe.httpGet.host"],
        main={"livenessProbe": {"httpGet": {**_HTTP, "host": "169.254.169.254"}}},
    ),
    PodCase(
        "hook for another host",
        PRIVILEGED,
        [f"{MAIN}.lifecycle.preStop.tcpSocket.host"],
        main={"lifecycle": {"preStop": {"tcpSocket": {"port": 80, "host": "169.254.169.254"}}}},
    ),
    PodCase("probe of the pod", RESTRICTED, main={"startupProbe": {"httpGet": _HTTP}}),
    # AppArmor, SELinux, /proc, seccomp, sysctls.
    PodCase(
        "no AppArmor",
        PRIVILEGED,
        [f"{CONTEXT}.appArmorProfile.type"],
        context={"appArmorProfile": {"type": "Unconfined"}},
    ),
    PodCase(
        "no AppArmor by annotation",
        PRIVILEGED,
        ["metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]"],
        annotations={"container.apparmor.security.beta.kubernetes.io/main": "unconfined"},
    ),
    PodCase("usual AppArmor", RESTRICTED, pod=_pod_context(appArmorProfile={"type": "RuntimeDefault"})),
    PodCase(
        "SELinux type of the host",
        PRIVILEGED,
        [f"{CONTEXT}.seLinuxOptions.type"],
        context={"seLinuxOptions": {"type": "spc_t"}},
    ),
    PodCase(
        "SELinux user and role",
        PRIVILEGED,
        ["spec.securityContext.seLinuxOptions.user", "spec.securityContext.seLinuxOptions.role"],
        pod=_pod_context(seLinuxOptions={"user": "u", "role": "r"}),
    ),
    PodCase("SELinux level", RESTRICTED, context={"seLinuxOptions": {"type": "container_t", "level": "s0:c1"}}),
    PodCase(
        "whole /proc",
        PRIVILEGED,
        [f"{CONTEXT}.procMount"],
        pod={"hostUsers": False},
        context={"procMount": "Unmasked"},
    ),
    PodCase("usual /proc", RESTRICTED, context={"procMount": "Default"}),
    PodCase(
        "no seccomp",
        PRIVILEGED,
        ["spec.securityContext.seccompProfile.type"],
        pod=_pod_context(seccompProfile={"type": "Unconfined"}),
    ),
    PodCase("seccomp is not set", BASELINE, [f"{CONTEXT}.seccompProfile"], pod=_pod_context(seccompProfile=None)),
    PodCase(
        "seccomp of the container",
        RESTRICTED,
        pod=_pod_context(seccompProfile=None),
        context={"seccompProfile": {"type": "Localhost", "localhostProfile": "x.json"}},
    ),
    PodCase(
        "sysctl of the node",
        PRIVILEGED,
        ["spec.securityContext.sysctls"],
        pod=_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    ),
    PodCase("sysctl of the pod", RESTRICTED, pod=_pod_context(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "1"}])),
    # Users and privileges.
    PodCase(
        "privilege escalation",
        BASELINE,
        [f"{CONTEXT}.allowPrivilegeEscalation"],
        context={"allowPrivilegeEscalation": True},
    ),
    PodCase(
        "privilege escalation is not forbidden",
        BASELINE,
        [f"{CONTEXT}.allowPrivilegeEscalation"],
        context={"allowPrivilegeEscalation": None},
    ),
    PodCase("root is permitted", BASELINE, ["spec.securityContext.runAsNonRoot"], pod=_pod_context(runAsNonRoot=False)),
    PodCase(
        "root is permitted for a container",
        BASELINE,
        [f"{CONTEXT}.runAsNonRoot"],
        context={"runAsNonRoot": False},
    ),
    PodCase("root is not forbidden", BASELINE, [f"{CONTEXT}.runAsNonRoot"], pod=_pod_context(runAsNonRoot=None)),
    PodCase(
        "root is forbidden for the container",
        RESTRICTED,
        pod=_pod_context(runAsNonRoot=None),
        context={"runAsNonRoot": True},
    ),
    PodCase("the user is root", BASELINE, [f"{CONTEXT}.runAsUser"], context={"runAsUser": 0}),
    PodCase("the user has a number", RESTRICTED, pod=_pod_context(runAsUser=185, runAsGroup=0, fsGroup=0)),
    # Windows.
    PodCase(
        "process of a Windows node",
        PRIVILEGED,
        ["spec.hostNetwork", "spec.securityContext.windowsOptions.hostProcess"],
        pod={
            "os": {"name": "windows"},
            "hostNetwork": True,
            "securityContext": {"runAsNonRoot": True, "windowsOptions": {"hostProcess": True}},
        },
        main={"securityContext": None},
    ),
    PodCase(
        "pod on Windows",
        RESTRICTED,
        pod={"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}},
        main={"securityContext": None},
    ),
]
"""One pod or more for each control of the standards."""
