"""The statuses that the fake kubelet writes: Go templates over the pod, as kwok merges them into `status`.

`stages` defines which of them is written when. Everything a template emits is YAML.
"""

from tests.kube.cluster.annotations import PREFIX

_HEAD = """
{{ $now := Now }}
{{ $root := . }}
{{ $notes := or .metadata.annotations dict }}
{{ $main := (index .spec.containers 0).name }}
{{ range .spec.containers }}
{{ if has .name (list "main" "spark-kubernetes-driver") }}{{ $main = .name }}{{ end }}
{{ end }}
{{ $late := hasKey $notes "PREFIXready-seconds" }}
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
    "conditions:{{ if $late }}"
    + _conditions("True", "False")
    + "{{ else }}"
    + _conditions("True", "True")
    + "{{ end }}"
    + "\nphase: Running\ncontainerStatuses:\n{{ range .spec.containers }}"
    + _RUNNING.replace("READY", "{{ not $late }}")
    + "{{ end }}\n"
)

STARTED = (
    _HEAD
    + """
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
{{ $meta := .metadata }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) $meta.uid $meta.name $meta.namespace | Quote }}
{{ if eq (or (index $notes "PREFIXimage-pull") "") "fail" }}
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

INITIALIZED = (
    _HEAD
    + """
{{ $code := int (or (index $notes "PREFIXinit-exit-code") "0") }}
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

READY_NOW = (
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


def ended(head: str, code: int, reason: str) -> str:
    """The end of all containers: the main one's as `head` says it, by setting $code, $reason, $message, $phase.

    The others end with `code` and `reason`, or go on where `head` sets $stays.
    """
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
      exitCode: OTHER_CODE
      reason: OTHER_REASON
{{ end }}
{{ end }}
{{ end }}
""".replace("OTHER_CODE", str(code)).replace("OTHER_REASON", reason)
    )


BY_ITSELF = """
{{ $reason := or (index $notes "PREFIXreason") "" }}
{{ $code := int (or (index $notes "PREFIXexit-code") (ternary "137" "0" (eq $reason "OOMKilled"))) }}
{{ $reason = or $reason (ternary "Completed" "Error" (eq $code 0)) }}
{{ $message := or (index $notes "PREFIXmessage") "" }}
{{ $phase := ternary "Succeeded" "Failed" (eq $code 0) }}
{{ $stays := and (eq (or (index $notes "PREFIXsidecar") "") "keeps-running") (gt (len .spec.containers) 1) }}
{{ with index $notes "PREFIXpod-reason" }}
reason: {{ . | Quote }}
{{ $phase = "Failed" }}
{{ $stays = false }}
{{ end }}
{{ with index $notes "PREFIXpod-message" }}
message: {{ . | Quote }}
{{ end }}
"""

BY_DEADLINE = """
{{ $code := 137 }}
{{ $reason := "Error" }}
{{ $message := "" }}
{{ $phase := "Failed" }}
{{ $stays := false }}
reason: DeadlineExceeded
message: Pod was active on the node longer than the specified deadline
"""

BY_DELETION = """
{{ $stop := float64 (or (index $notes "PREFIXstop-seconds") "0") }}
{{ $in_time := lt $stop (float64 .metadata.deletionGracePeriodSeconds) }}
{{ $code := int (or (and $in_time (index $notes "PREFIXstop-exit-code")) (ternary "143" "137" $in_time)) }}
{{ $reason := ternary "Completed" "Error" (eq $code 0) }}
{{ $message := "" }}
{{ if ne (or .status.phase "") "Running" }}
{{ $code = 137 }}
{{ $reason = "ContainerStatusUnknown" }}
{{ $message = "The container could not be located when the pod was terminated" }}
{{ end }}
{{ range .status.containerStatuses }}
{{ if and (eq .name $main) .state.terminated }}{{ $code = int .state.terminated.exitCode }}{{ end }}
{{ end }}
{{ $phase := ternary "Succeeded" "Failed" (eq $code 0) }}
{{ $stays := false }}
"""


NODE = """
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
