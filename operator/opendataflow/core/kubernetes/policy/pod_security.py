"""Judge a pod by the Pod Security Standards of Kubernetes, and by rules for nodes, priorities and accounts. Pure.

The controls of the standards, and their allowed values, are those of Kubernetes 1.34. A test compares the verdicts with
those of a real API server. A value is a violation unless it is known to be allowed.

Three rules are added, because the standards do not have them: a pod may not choose its node, use a priority class of
the system, or run with a service account that is not in the allow list.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opendataflow.errors import PolicyViolated
from opendataflow.names import PodProfile

DEFAULT_ACCOUNT = "default"
"""The service account of a pod that names none."""

_MOST_SENTENCES = 3
_HOST_NAMESPACES = {
    "hostNetwork": "the pod would use the network of its node",
    "hostPID": "the pod would see the processes of its node",
    "hostIPC": "the pod would share memory with the processes of its node",
}
_PROFILES = (None, "RuntimeDefault", "Localhost")
_CONTEXT_BASELINE: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("windowsOptions.hostProcess", (None, False), "the container would be a process of its node"),
    ("privileged", (None, False), "the container would have all rights on its node"),
    ("procMount", (None, "Default"), "only Default is allowed"),
    ("appArmorProfile.type", _PROFILES, "only RuntimeDefault and Localhost are allowed"),
    (
        "seLinuxOptions.type",
        (None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
        "only the types container_t, container_init_t, container_kvm_t and container_engine_t are allowed",
    ),
    ("seLinuxOptions.user", (None, ""), "it can't be set"),
    ("seLinuxOptions.role", (None, ""), "it can't be set"),
    ("seccompProfile.type", _PROFILES, "only RuntimeDefault and Localhost are allowed"),
)
"""Fields of security contexts, their allowed values, and the sentence about any other value."""

_HOOKS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_APP_ARMOR_PROFILES = ("runtime/default", "localhost/")
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_RESTRICTED_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
_RESTRICTED_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_SYSTEM_PRIORITY = "system-"


@dataclass(frozen=True)
class PodPolicy:
    """What pods may ask for. `accounts`: the service accounts that they may run with, besides DEFAULT_ACCOUNT.

    `closed_namespace`: the namespace in which no job runs; empty if there is none.
    """

    profile: PodProfile = PodProfile.RESTRICTED
    accounts: tuple[str, ...] = ()
    closed_namespace: str = ""

    @property
    def is_restricted(self) -> bool:
        """Whether the profile is the strictest one."""
        return self.profile is PodProfile.RESTRICTED

    @property
    def allowed_accounts(self) -> list[str]:
        """The names of all allowed service accounts."""
        return sorted({DEFAULT_ACCOUNT, *self.accounts})


@dataclass(frozen=True)
class Violation:
    """A field that violates the policy, and why. The sentence never contains a value, which may be a secret."""

    field: str
    sentence: str


def check_violations(found: Iterable[Violation], policy: PodPolicy) -> None:
    """Raise PolicyViolated if there are violations. Each field is named once."""
    sentences = list(dict.fromkeys(f"{each.field}: {each.sentence}" for each in found))
    if sentences:
        more = [f"and {len(sentences) - _MOST_SENTENCES} more"] if len(sentences) > _MOST_SENTENCES else []
        text = "; ".join([*sentences[:_MOST_SENTENCES], *more])
        raise PolicyViolated(f"{text} (the operator's podPolicy is {policy.profile})")


def judge_pod_security(pod: Mapping[str, Any], policy: PodPolicy) -> list[Violation]:
    """Return the violations of a pod: its `metadata` and `spec`, in the form in which they are sent."""
    if policy.profile is PodProfile.ANY:
        return []
    spec = _object(pod, "spec")
    annotations = _object(_object(pod, "metadata"), "annotations")
    found = [*_baseline(spec), *_app_armor(annotations), *_own_rules(spec, policy)]
    return [*found, *(_restricted(spec) if policy.is_restricted else _capabilities(spec, _BASELINE_CAPABILITIES))]


def judge_namespace(namespace: str, policy: PodPolicy) -> Iterator[Violation]:
    """Yield a violation if no job may run in a namespace."""
    if policy.profile is not PodProfile.ANY and namespace and namespace == policy.closed_namespace:
        yield Violation(
            "metadata.namespace",
            "pods in the namespace of the operator could read its Secrets; create the job in another namespace, or "
            "list this one in the chart's value `namespaces`",
        )


def judge_volume(field: str, kinds: Iterable[str], policy: PodPolicy) -> Iterator[Violation]:
    """Yield the violations of one volume. `kinds`: the names of its sources, such as hostPath."""
    for kind in kinds:
        if kind == "hostPath":
            yield Violation(f"{field}.{kind}", "the pod would read and write files of its node")
        elif policy.is_restricted and kind not in _RESTRICTED_VOLUMES:
            yield Violation(f"{field}.{kind}", "this kind of volume is not allowed; use a persistentVolumeClaim")


def judge_account(field: str, account: object, policy: PodPolicy) -> Iterator[Violation]:
    """Yield a violation if a pod may not run with this service account."""
    if account not in (None, "", *policy.allowed_accounts):
        allowed = ", ".join(policy.allowed_accounts)
        yield Violation(field, f"only these service accounts are allowed: {allowed} (allowedServiceAccounts)")


def judge_priority(field: str, name: object) -> Iterator[Violation]:
    """Yield a violation if a pod may not have this priority class."""
    if name is not None and (not isinstance(name, str) or name.startswith(_SYSTEM_PRIORITY)):
        yield Violation(field, f"priority classes that begin with {_SYSTEM_PRIORITY} are for the cluster itself")


def _baseline(spec: Mapping[str, Any]) -> Iterator[Violation]:
    for field, sentence in _HOST_NAMESPACES.items():
        if spec.get(field) not in (None, False):
            yield Violation(f"spec.{field}", sentence)
    for place, context in _contexts(spec):
        for field, allowed, sentence in _CONTEXT_BASELINE:
            if _at(context, field) not in allowed:
                yield Violation(f"{place}.{field}", sentence)
    for place, container in _containers(spec):
        yield from _of_container(place, container)
    sysctls = [str(item.get("name")) for item in _items(_object(spec, "securityContext"), "sysctls")]
    if not _SYSCTLS.issuperset(sysctls):
        yield Violation("spec.securityContext.sysctls", "only the safe ones of the Pod Security Standards are allowed")


def _app_armor(annotations: Mapping[str, Any]) -> Iterator[Violation]:
    for name, profile in annotations.items():
        if name.startswith(_APP_ARMOR) and not (profile == "" or str(profile).startswith(_APP_ARMOR_PROFILES)):
            yield Violation(f"metadata.annotations[{name}]", "only runtime/default and localhost/ are allowed")


def _of_container(place: str, container: Mapping[str, Any]) -> Iterator[Violation]:
    if any(port.get("hostPort") not in (None, 0) for port in _items(container, "ports")):
        yield Violation(f"{place}.ports.hostPort", "the container would listen on a port of its node")
    for hook in _HOOKS:
        for action in ("httpGet", "tcpSocket"):
            if _at(container, f"{hook}.{action}.host") not in (None, ""):
                yield Violation(f"{place}.{hook}.{action}.host", "the node would send requests to this host")


def _restricted(spec: Mapping[str, Any]) -> Iterator[Violation]:
    pod = _object(spec, "securityContext")
    for place, context in _contexts(spec):
        if context.get("runAsNonRoot") not in (None, True):
            yield Violation(f"{place}.runAsNonRoot", "it has to be true")
        if context.get("runAsUser") == 0:
            yield Violation(f"{place}.runAsUser", "the user 0 is root")
    for place, container in _containers(spec):
        if _object(container, "securityContext").get("runAsNonRoot") is None and pod.get("runAsNonRoot") is None:
            yield Violation(f"{place}.securityContext.runAsNonRoot", "it has to be true, here or for the pod")
    if _at(spec, "os.name") != "windows":  # Kubernetes refuses these fields there
        yield from _restricted_on_linux(spec)


def _restricted_on_linux(spec: Mapping[str, Any]) -> Iterator[Violation]:
    has_seccomp = _at(spec, "securityContext.seccompProfile.type") is not None
    for place, container in _containers(spec):
        context, place = _object(container, "securityContext"), f"{place}.securityContext"
        if _at(context, "seccompProfile.type") is None and not has_seccomp:
            yield Violation(f"{place}.seccompProfile", "RuntimeDefault or Localhost is needed, here or for the pod")
        if context.get("allowPrivilegeEscalation") is not False:
            yield Violation(f"{place}.allowPrivilegeEscalation", "it has to be false")
        if "ALL" not in _texts(_object(context, "capabilities"), "drop"):
            yield Violation(f"{place}.capabilities.drop", "it has to contain ALL")
    yield from _capabilities(spec, _RESTRICTED_CAPABILITIES)


def _capabilities(spec: Mapping[str, Any], allowed: frozenset[str]) -> Iterator[Violation]:
    for place, container in _containers(spec):
        added = _texts(_object(_object(container, "securityContext"), "capabilities"), "add")
        if not allowed.issuperset(added):
            field = f"{place}.securityContext.capabilities.add"
            yield Violation(field, f"only these can be added: {', '.join(sorted(allowed))}")


def _own_rules(spec: Mapping[str, Any], policy: PodPolicy) -> Iterator[Violation]:
    for volume in _items(spec, "volumes"):
        kinds = [name for name, source in volume.items() if name != "name" and source is not None]
        yield from judge_volume(f"spec.volumes[{volume.get('name')}]", kinds, policy)
    if spec.get("nodeName") not in (None, ""):
        yield Violation("spec.nodeName", "the scheduler chooses the node; write nodeSelector or affinity")
    yield from judge_priority("spec.priorityClassName", spec.get("priorityClassName"))
    for field in ("serviceAccountName", "serviceAccount"):
        yield from judge_account(f"spec.{field}", spec.get(field), policy)


def _contexts(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "spec.securityContext", _object(spec, "securityContext")
    for place, container in _containers(spec):
        yield f"{place}.securityContext", _object(container, "securityContext")


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in _items(spec, field):
            yield f"spec.{field}[{container.get('name')}]", container


def _at(of: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field below others; None if one of them is missing."""
    *parents, last = path.split(".")
    for field in parents:
        of = _object(of, field)
    return of.get(last)


def _object(of: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return an object; an empty one if it is missing or no object, which the API server refuses."""
    value = of.get(field)
    return value if isinstance(value, Mapping) else {}


def _items(of: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    value = of.get(field)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


def _texts(of: Mapping[str, Any], field: str) -> list[str]:
    value = of.get(field)
    return [str(item) for item in value] if isinstance(value, list) else []
