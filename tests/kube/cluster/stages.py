"""What happens to the pods of the fake nodes: kwok's Stages, driven by annotations of the pod.

All annotations are optional and start with `test.opendataflow.io/`. With none, a pod starts at once and succeeds at once.

    start-seconds      before the pod is started                                    "0"
    image-pull         "fail": it stays Pending, its containers Waiting with ImagePullBackOff
    init-seconds       how long the init containers run                             "0"
    init-exit-code     not 0: the pod has failed, and its containers never run      "0"
    ready-seconds      from the start of the containers until the pod is Ready      at once
    run-seconds        how long the main container runs, or "forever"               "0"
    exit-code          of the main container                                        "0" (137 where a reason says OOMKilled)
    message            its termination message
    reason             its reason                                                   Completed, Error
    pod-reason         status.reason of the pod at the end: Evicted ...
    pod-message        status.message of the pod at the end
    sidecar            "keeps-running": the other containers go on, and the pod stays Running
    stop-seconds       after a deletion, until the main container has ended         "0"
    stop-exit-code     its exit code then                                           "143", "137" after the grace period

The main container is the one called `main` or `spark-kubernetes-driver`, or the first. Times above a second are kept to
a whole second (the API server cuts fractions off); times below start anew whenever the pod is changed. An annotation
that is changed while a pod runs counts: "forever" until a test writes "0".

`activeDeadlineSeconds` is watched over, and a deletion gets its grace period, as a kubelet does it: the pod is removed
with grace period 0 when its containers have ended, and stays as long as it has finalizers.
"""

from typing import Any

PREFIX = "test.opendataflow.io/"
FAKE_NODE = f"{PREFIX}fake-node"
"""The label of nodes that kwok plays; a node without it has stopped: no heartbeat, nothing happens to its pods."""

_NOT_DELETED = ".metadata.deletionTimestamp == null"
_MAIN = """
(([.spec.containers[].name | select(. == "main" or . == "spark-kubernetes-driver")] + [.spec.containers[0].name])[0])
"""


def _said(name: str, otherwise: str) -> str:
    return f'(.metadata.annotations["{PREFIX}{name}"] // "{otherwise}")'


_RUNS = f"(. as $pod | {_MAIN} as $main | any(.status.containerStatuses[]?; .name == $main and .state.running != null))"
_RUNS_SINCE = "(first(.status.containerStatuses[]?.state.running.startedAt // empty) | fromdateiso8601)"
_END = f'(if {_said("run-seconds", "0")} == "forever" then 1e12 else {_RUNS_SINCE} + ({_said("run-seconds", "0")} | tonumber) end)'
_DEADLINE = "(if .spec.activeDeadlineSeconds == null then 1e12 else (.status.startTime | fromdateiso8601) + .spec.activeDeadlineSeconds end)"
_IS_READY = 'any(.status.conditions[]?; .type == "Ready" and .status == "True")'
_HELD_BACK = f'({_said("ready-seconds", "at once")} != "at once" and ({_IS_READY} | not))'
_STOP = f"({_said('stop-seconds', '0')} | tonumber)"
_DELETED = "((.metadata.deletionTimestamp | fromdateiso8601) - .metadata.deletionGracePeriodSeconds)"


def _seconds(name: str) -> str:
    """A delay from an annotation, from now on."""
    return f'{_said(name, "0")} + "s"'


_HEAD = """
{{ $now := Now }}
{{ $root := . }}
{{ $said := or .metadata.annotations dict }}
{{ $main := (index .spec.containers 0).name }}
{{ range .spec.containers }}{{ if has .name (list "main" "spark-kubernetes-driver") }}{{ $main = .name }}{{ end }}{{ end }}
{{ $late := hasKey $said "PREFIXready-seconds" }}
""".replace("PREFIX", PREFIX)

_CONDITIONS = """
- {type: Initialized, status: INITIALIZED, lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: READY, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: READY, lastTransitionTime: {{ $now | Quote }}}
"""

_WAITING = """
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state: {waiting: {reason: REASON, message: MESSAGE}}
"""

_RUNNING = """
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ printf "fake://%s" .image | Quote }}
  ready: READY
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
"""


def _conditions(initialized: str, ready: str) -> str:
    return _CONDITIONS.replace("INITIALIZED", f'"{initialized}"').replace("READY", f'"{ready}"')


def _waiting(reason: str, message: str = '""') -> str:
    return _WAITING.replace("REASON", reason).replace("MESSAGE", message)


_CONTAINERS_RUN = (
    "conditions:"
    + "{{ if $late }}"
    + _conditions("True", "False")
    + "{{ else }}"
    + _conditions("True", "True")
    + "{{ end }}"
    + "\nphase: Running\ncontainerStatuses:\n{{ range .spec.containers }}"
    + _RUNNING.replace("READY", "{{ not $late }}")
    + "{{ end }}\n"
)

_START = (
    _HEAD
    + """
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") | Quote }}
{{ if eq (or (index $said "PREFIXimage-pull") "") "fail" }}
phase: Pending
conditions:
""".replace("PREFIX", PREFIX)
    + _conditions("True", "False")
    + "\ncontainerStatuses:\n{{ range .spec.containers }}"
    + _waiting("ImagePullBackOff", '{{ printf "Back-off pulling image %q" .image | Quote }}')
    + "{{ end }}\n{{ else if .spec.initContainers }}\nphase: Pending\nconditions:"
    + _conditions("False", "False")
    + "\ninitContainerStatuses:\n{{ range .spec.initContainers }}"
    + _RUNNING.replace("READY", "false")
    + "{{ end }}\ncontainerStatuses:\n{{ range .spec.containers }}"
    + _waiting("PodInitializing")
    + "{{ end }}\n{{ else }}\n"
    + _CONTAINERS_RUN
    + "{{ end }}\n"
)

_INITIALIZED = (
    _HEAD
    + """
{{ $code := int (or (index $said "PREFIXinit-exit-code") "0") }}
{{ $started := dict }}
initContainerStatuses:
{{ range $index, $container := .spec.initContainers }}
{{ $was := index $root.status.initContainerStatuses $index }}
{{ if and (eq (or $container.restartPolicy "") "Always") (eq $code 0) }}
- {{ toJson $was }}
{{ else }}
- name: {{ $container.name | Quote }}
  image: {{ $container.image | Quote }}
  imageID: {{ printf "fake://%s" $container.image | Quote }}
  ready: {{ eq $code 0 }}
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{ $code }}
      reason: {{ if eq $code 0 }}Completed{{ else }}Error{{ end }}
      startedAt: {{ $was.state.running.startedAt | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
{{ end }}
{{ if eq $code 0 }}
""".replace("PREFIX", PREFIX)
    + _CONTAINERS_RUN
    + "{{ else }}\nphase: Failed\n{{ end }}\n"
)

_READY = (
    _HEAD
    + "conditions:"
    + _conditions("True", "True")
    + """
containerStatuses:
{{ range .status.containerStatuses }}
- {{ toJson (merge (dict "ready" true) .) }}
{{ end }}
"""
)


def _ended(head: str, others: str) -> str:
    """The end of the main container, as `head` says it: sets $code, $reason, $message, $phase and $stays."""
    return (
        _HEAD
        + head.replace("PREFIX", PREFIX)
        + "\nconditions:"
        + _CONDITIONS.replace("INITIALIZED", '"True"').replace("READY", '"False"')
        + """
{{ if not $stays }}
phase: {{ $phase }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
{{ $name := .name }}
{{ $was := dict "state" dict }}
{{ range $root.status.containerStatuses }}{{ if eq .name $name }}{{ $was = . }}{{ end }}{{ end }}
{{ if or $was.state.terminated (and $stays (ne $name $main)) }}
- {{ toJson $was }}
{{ else }}
- name: {{ $name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ or $was.imageID "" | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      {{ with $was.state.running }}startedAt: {{ .startedAt | Quote }}{{ end }}
      finishedAt: {{ $now | Quote }}
{{ if eq $name $main }}
      exitCode: {{ $code }}
      reason: {{ $reason | Quote }}
      {{ with $message }}message: {{ . | Quote }}{{ end }}
{{ else }}
OTHERS
{{ end }}
{{ end }}
{{ end }}
""".replace("OTHERS", others)
    )


_BY_ITSELF = """
{{ $reason := or (index $said "PREFIXreason") "" }}
{{ $code := int (or (index $said "PREFIXexit-code") (ternary "137" "0" (eq $reason "OOMKilled"))) }}
{{ $reason = or $reason (ternary "Completed" "Error" (eq $code 0)) }}
{{ $message := or (index $said "PREFIXmessage") "" }}
{{ $phase := ternary "Succeeded" "Failed" (eq $code 0) }}
{{ $stays := and (eq (or (index $said "PREFIXsidecar") "") "keeps-running") (gt (len .spec.containers) 1) }}
{{ with index $said "PREFIXpod-reason" }}
reason: {{ . | Quote }}
{{ $phase = "Failed" }}
{{ $stays = false }}
{{ end }}
{{ with index $said "PREFIXpod-message" }}
message: {{ . | Quote }}
{{ end }}
"""

_BY_DEADLINE = """
{{ $code := 137 }}
{{ $reason := "Error" }}
{{ $message := "" }}
{{ $phase := "Failed" }}
{{ $stays := false }}
reason: DeadlineExceeded
message: Pod was active on the node longer than the specified deadline
"""

_BY_DELETION = """
{{ $stop := float64 (or (index $said "PREFIXstop-seconds") "0") }}
{{ $in_time := lt $stop (float64 .metadata.deletionGracePeriodSeconds) }}
{{ $code := int (or (and $in_time (index $said "PREFIXstop-exit-code")) (ternary "143" "137" $in_time)) }}
{{ $reason := ternary "Completed" "Error" (eq $code 0) }}
{{ $message := "" }}
{{ if ne (or .status.phase "") "Running" }}
{{ $code = 137 }}
{{ $reason = "ContainerStatusUnknown" }}
{{ $message = "The container could not be located when the pod was terminated" }}
{{ end }}
{{ range .status.containerStatuses }}{{ if and (eq .name $main) .state.terminated }}{{ $code = int .state.terminated.exitCode }}{{ end }}{{ end }}
{{ $phase := ternary "Succeeded" "Failed" (eq $code 0) }}
{{ $stays := false }}
"""


def _stage(
    kind: str,
    name: str,
    when: str,
    *,
    status: str | None = None,
    delay: str | None = None,
    event: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One Stage. `when`, `delay`: jq; `status`: a template of the status to merge, None: the object is removed."""
    steps: list[dict[str, Any]] = [{"event": event}] if event else []
    steps.append(
        {"delete": True}
        if status is None
        else {"patch": {"subresource": "status", "root": "status", "template": status}}
    )
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": [{"jq": {"key": when, "operator": "In", "values": ["true"]}}]},
        "steps": steps,
    }
    if delay is not None:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": delay}}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


_NODE = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
- {type: Hostname, address: {{ .metadata.name | Quote }}}
daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
capacity: {cpu: 1k, memory: 4Ti, ephemeral-storage: 100Ti, pods: 10k}
allocatable: {cpu: 1k, memory: 4Ti, ephemeral-storage: 100Ti, pods: 10k}
nodeInfo:
  architecture: amd64
  bootID: ""
  containerRuntimeVersion: fake
  kernelVersion: fake
  kubeProxyVersion: fake
  kubeletVersion: v1.34.4
  machineID: ""
  operatingSystem: linux
  osImage: fake
  systemUUID: ""
phase: Running
"""


def stages() -> list[dict[str, Any]]:
    """All Stages, as documents of kwok's configuration file. At most one matches a pod at any time."""
    run = f'if {_said("run-seconds", "0")} != "forever" and ({_said("run-seconds", "0")} | tonumber) < 1 then {_seconds("run-seconds")} else ({_END} | floor | todate) end'
    stop = f"({_DELETED} + ([{_STOP}, .metadata.deletionGracePeriodSeconds] | min)) | floor | todate"
    return [
        _stage(
            "Node", "node", f'any(.status.conditions[]?; .type == "Ready" and .status == "True") | not', status=_NODE
        ),
        _stage(
            "Pod",
            "pod-starts",
            f'{_NOT_DELETED} and .status.phase == "Pending" and .status.startTime == null',
            status=_START,
            delay=_seconds("start-seconds"),
        ),
        _stage(
            "Pod",
            "pod-is-initialized",
            f'{_NOT_DELETED} and .status.phase == "Pending" and any(.status.initContainerStatuses[]?; .state.running != null)',
            status=_INITIALIZED,
            delay=_seconds("init-seconds"),
        ),
        _stage(
            "Pod",
            "pod-is-ready",
            f'{_NOT_DELETED} and .status.phase == "Running" and {_RUNS} and {_HELD_BACK}',
            status=_READY,
            delay=_seconds("ready-seconds"),
        ),
        _stage(
            "Pod",
            "pod-ends",
            f'{_NOT_DELETED} and .status.phase == "Running" and {_RUNS} and ({_HELD_BACK} | not) and {_END} < 1e12 and {_END} <= {_DEADLINE}',
            status=_ended(_BY_ITSELF, "      exitCode: 0\n      reason: Completed"),
            delay=run,
        ),
        _stage(
            "Pod",
            "pod-passes-its-deadline",
            f'{_NOT_DELETED} and .status.phase == "Running" and {_RUNS} and ({_HELD_BACK} | not) and {_DEADLINE} < {_END}',
            status=_ended(_BY_DEADLINE, "      exitCode: 137\n      reason: Error"),
            delay=f"{_DEADLINE} | todate",
        ),
        _stage(
            "Pod",
            "pod-is-stopped",
            f'({_NOT_DELETED} | not) and (.status.phase == "Running" or .status.phase == "Pending")',
            status=_ended(_BY_DELETION, "      exitCode: 143\n      reason: Error"),
            delay=stop,
        ),
        _stage(
            "Pod",
            "pod-is-removed",
            f'({_NOT_DELETED} | not) and (.status.phase == "Succeeded" or .status.phase == "Failed")'
            " and .metadata.deletionGracePeriodSeconds > 0",
        ),
    ]
