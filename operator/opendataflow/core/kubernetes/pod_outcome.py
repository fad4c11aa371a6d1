"""Classify the end of a run's pod, or decide that it has to be stopped. Pure; it never raises.

The rules answer three questions, in this order.

1. Has the container `main` ended? The phase of the pod does not count: a sidecar keeps it Running, and a pod may be
   Failed without an end of `main`. The container ended *by itself* if it ended before a deletion, a disruption by the
   kubelet, or the deadline. Times of pods are whole seconds: an earlier state of the pod may prove it if the times do
   not. The first line that applies counts:

    exit code 0, by itself                                Success
    a valid report of success, not by itself              Success: the report is older than the stop
    the operator stopped it                               Cancelled, or the reason of the stop
    by itself: OOMKilled                                  OOMKilled, with the limit
    by itself: unknown state (the node lost it)           Infrastructure
    by itself: its report says that it did nothing        NotStarted
    by itself: another exit code                          Application
    stopped at its deadline                               DeadlineExceeded
    evicted, disrupted, deleted by somebody               Infrastructure

2. Has the pod ended without an end of `main`? It has if the object is gone, its node is gone, its phase is terminal, or
   it was deleted before it had a node. Then the reason why it did not start, or why it was stopped, counts in the same
   order. An unknown reason is Infrastructure. A failed init container belongs to the user: Application.

3. Otherwise the pod is alive, and no other attempt may start. After its start deadline it has to be stopped. If its
   node does not answer, the run waits, unless the user has set `onNodeUnreachable.retryAfter`.

An unknown time counts against success. To process a chunk twice is harmless, but a chunk that is wrongly recorded as
done is lost.
"""

import signal
from collections.abc import Iterable
from dataclasses import replace

from opendataflow import names
from opendataflow.core.pipelines.report import read_report
from opendataflow.core.runs.outcome import failure_line, last_line
from opendataflow.core.text.explain import duration
from opendataflow.model.records.pod import ObservedPod, Stop, Termination, Waiting
from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass, Reason

CANCELLED = Outcome(OutcomeClass.CANCELLED, "cancelled")

_DEADLINE_EXCEEDED = "DeadlineExceeded"
_BY_KUBELET = "TerminationByKubelet"
_IMAGE_PULL = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_EVERYDAY = frozenset({"ContainerCreating", "PodInitializing"})
_NOT_STARTABLE = frozenset({"StartError", "ContainerCannotRun"})
_USERS = {
    "has runAsNonRoot and image will run as root": "runs as root",
    "has runAsNonRoot and image has non-numeric user": "names its user without a number",
}
"""Parts of the kubelet's messages, and what they say about the image. Only the kubelet knows the user of an image."""

_NUMERIC_USER = "set a numeric USER other than 0 in the image, or runAsUser in the securityContext of the pod"
_LONGEST_LINE = 300
REPORT_PENDING_AFTER = 30.0
"""Seconds after which a pod that has not started is reported, even if Kubernetes gives no reason."""


def judge_pod(
    pod: ObservedPod, now: float, *, stopped: Outcome | None = None, node_gone: bool = False
) -> Outcome | Stop | None:
    """Return the outcome of the run, a `Stop` if its pod has to be deleted, or None while it continues.

    `stopped`: why the operator deleted the pod: CANCELLED, or the outcome of a `Stop`. `node_gone`: whether its node is
    no longer a node of the cluster. `now`: seconds since the epoch.
    """
    if pod.ended is not None:
        return _outcome_of_end(pod, pod.ended, stopped)
    if pod.gone or node_gone or pod.terminal or (pod.deleted_at is not None and pod.node is None):
        return stopped or _outcome_without_end(pod, node_gone=node_gone)
    return _judge_alive(pod, now)


def ended_by_itself(pod: ObservedPod) -> bool:
    """Return whether `main` ended before anything else began to end the pod. No later state can refute it."""
    return pod.ended is not None and (pod.by_itself or _ended_by_itself(pod, pod.ended))


def with_last_line(outcome: Outcome, pod: ObservedPod, log: str) -> Outcome:
    """Return the outcome; if its message ends with the exit code, append the last line of the log."""
    end = pod.ended or (pod.failed_init[1] if pod.failed_init is not None else None)
    line = last_line(log)
    if end is None or not line or not outcome.message.endswith(_exit_code(end)):
        return outcome
    return replace(outcome, message=f"{outcome.message}: {line}")


def find_pod_problem(pod: ObservedPod, now: float) -> tuple[Reason, str] | None:
    """Return why a pod has not started although it should have; None if no problem is known.

    The result is a reason for programs and a line for people. The line does not change while time passes.
    """
    if pod.ended is not None or pod.gone or pod.terminal:
        return None
    if pod.deleted_at is not None:
        if pod.node is None or now - pod.deleted_at - pod.grace <= 0:
            return None
        return Reason.NODE_UNREACHABLE, f"node {pod.node} does not answer or is slow"
    if pod.unheard:
        return Reason.NODE_UNREACHABLE, f"nothing is heard from node {pod.node}"
    if _has_started(pod) or pod.created_at is None:
        return None
    if pod.node is None and pod.unscheduled is not None:
        why = pod.unscheduled.message or pod.unscheduled.reason
        return Reason.UNSCHEDULABLE, one_line("unschedulable", why, None)
    if waits := _waiting_containers(pod):
        prefix, waiting = waits[0]
        reason = Reason.IMAGE_PULL if waiting.reason in _IMAGE_PULL else Reason.POD_PENDING
        return reason, prefix + _waiting_line(waiting)
    if now - pod.created_at < REPORT_PENDING_AFTER:
        return None
    where = f"it has not started on node {pod.node}" if pod.node is not None else "no node was chosen"
    return Reason.POD_PENDING, f"{where}; the pod's events say why"


def count_problems(found: Iterable[tuple[Reason, str]]) -> dict[str, tuple[int, str]]:
    """Count the problems of pods by reason: reason -> (number of pods, the sentence of one of them)."""
    counted: dict[str, tuple[int, str]] = {}
    for reason, sentence in found:
        number, first = counted.get(reason, (0, sentence))
        counted[reason] = number + 1, min(first, sentence)
    return counted


def _outcome_of_end(pod: ObservedPod, end: Termination, stopped: Outcome | None) -> Outcome:
    by_itself = ended_by_itself(pod)
    if end.exit_code == 0 and by_itself:
        return Outcome(OutcomeClass.SUCCESS, "exit code 0", 0)
    report = read_report(end.message)
    if not by_itself and report is not None and report.is_complete:
        return Outcome(OutcomeClass.SUCCESS, "its report says that it was done before it was stopped", end.exit_code)
    if stopped is not None and (stopped.kind is OutcomeClass.CANCELLED or not by_itself):
        return Outcome(stopped.kind, stopped.message, end.exit_code)
    kind, message = _program_failure(end, pod.memory_limit) if by_itself else _external_stop(pod)
    return Outcome(kind, message, end.exit_code)


def _ended_by_itself(pod: ObservedPod, end: Termination) -> bool:
    """Return whether a container ended before its pod was stopped."""
    began = _stop_time(pod)
    return began is None or (end.finished_at is not None and end.finished_at < began)


def _stop_time(pod: ObservedPod) -> float | None:
    """Return when the stop of the pod began; None if it was not stopped, 0.0 if the time is unknown."""
    moments = [] if pod.deleted_at is None else [pod.deleted_at]
    disrupted = pod.disrupted if pod.disrupted is not None and pod.disrupted.reason == _BY_KUBELET else None
    if disrupted is not None:  # other disruptions are followed by a deletion, or did not happen
        moments.append(disrupted.since or 0.0)
    if pod.reason == _DEADLINE_EXCEEDED:
        known = pod.begun_at is not None and pod.deadline is not None
        moments.append((pod.begun_at or 0.0) + (pod.deadline or 0.0) if known else 0.0)
    elif pod.reason is not None and disrupted is None:
        moments.append(0.0)
    return min(moments, default=None)


def _program_failure(end: Termination, memory_limit: str | None) -> tuple[OutcomeClass, str]:
    if end.reason == "OOMKilled":
        limit = "" if memory_limit is None else f": its limit is {memory_limit}"
        return OutcomeClass.OUT_OF_MEMORY, f"out of memory{limit}"
    if end.reason == "ContainerStatusUnknown" or end.exit_code < 0:
        return OutcomeClass.INFRASTRUCTURE, "lost: its node does not know how it ended"
    if end.reason in _NOT_STARTABLE:
        return OutcomeClass.APPLICATION, one_line("the command can't be started", end.message, None)
    if (end.message or "").startswith((names.NO_EXECUTOR, names.NO_ANSWER)):
        return OutcomeClass.INFRASTRUCTURE, one_line(end.message or "", None, None)
    report = read_report(end.message)
    if report is not None and report.not_started is not None:
        return OutcomeClass.NOT_STARTED, report.not_started
    cause = last_line(end.message or "") if report is None else failure_line(report.failure or "")
    return OutcomeClass.APPLICATION, _exit_code(end) + (f": {cause}" if cause else "")


def _exit_code(end: Termination) -> str:
    number = end.signal or end.exit_code - 128  # shells and container runtimes report a signal as 128 + its number
    known = number in set(signal.Signals)
    return f"exit code {end.exit_code}" + (f" ({signal.Signals(number).name})" if known else "")


def _external_stop(pod: ObservedPod) -> tuple[OutcomeClass, str]:
    if pod.reason == _DEADLINE_EXCEEDED:
        return OutcomeClass.DEADLINE, "stopped at its deadline"
    if pod.reason is not None:
        if pod.reason == "Evicted":
            return OutcomeClass.INFRASTRUCTURE, one_line("evicted", pod.message, None)
        return OutcomeClass.INFRASTRUCTURE, one_line("its node ended it", pod.message, pod.reason)
    if pod.disrupted is not None:
        return OutcomeClass.INFRASTRUCTURE, one_line("disrupted", pod.disrupted.message, pod.disrupted.reason)
    before = "" if _has_started(pod) or pod.ended is not None else " before it started"
    return OutcomeClass.INFRASTRUCTURE, f"its pod was deleted by somebody{before}"


def _outcome_without_end(pod: ObservedPod, *, node_gone: bool) -> Outcome:
    if pod.failed_init is not None and _ended_by_itself(pod, pod.failed_init[1]):
        return _outcome_of_init(*pod.failed_init)
    if pod.reason is not None or pod.disrupted is not None:
        return Outcome(*_external_stop(pod))
    if pod.deleted_at is not None and pod.created_at is not None and not _has_started(pod):
        waited = pod.deleted_at - pod.created_at
        if waited >= pod.start_deadline:  # an earlier process of the operator stopped it
            return Outcome(OutcomeClass.INFRASTRUCTURE, _not_started_message(pod, waited))
    if pod.deleted_at is not None or pod.gone:
        return Outcome(*_external_stop(pod))
    if node_gone:
        return Outcome(OutcomeClass.INFRASTRUCTURE, f"lost: its node {pod.node} is gone")
    return Outcome(OutcomeClass.INFRASTRUCTURE, f"lost: its pod is {pod.phase}, and how its program ended is not known")


def _outcome_of_init(name: str, end: Termination) -> Outcome:
    """Return the outcome of a failed init container. It belongs to the user or decrypts a password: Application."""
    kind, message = _program_failure(end, None)
    return Outcome(kind, f"init container {name}: {message}", end.exit_code)


def _judge_alive(pod: ObservedPod, now: float) -> Outcome | Stop | None:
    if pod.deleted_at is not None:
        late = now - pod.deleted_at - pod.grace
        if pod.retry_after is not None and late >= pod.retry_after:
            sentence = f"lost: node {pod.node} has not ended its pod for {duration(late)}; given up without proof"
            return Outcome(OutcomeClass.INFRASTRUCTURE, f"{sentence} (onNodeUnreachable.retryAfter)")
        return None
    if _has_started(pod) or pod.created_at is None:
        return None
    waited = now - pod.created_at
    if waited < pod.start_deadline:
        return None
    return Stop(Outcome(OutcomeClass.INFRASTRUCTURE, _not_started_message(pod, waited)))


def _has_started(pod: ObservedPod) -> bool:
    return pod.started or (pod.phase == "Running" and pod.waiting is None)


def _not_started_message(pod: ObservedPod, waited: float) -> str:
    if pod.node is None and pod.unscheduled is not None:
        return one_line(
            f"unschedulable for {duration(waited)}", pod.unscheduled.message or pod.unscheduled.reason, None
        )
    if pod.node is None:
        return f"no node was chosen for {duration(waited)}: does the cluster have a scheduler?"
    for prefix, waiting in _waiting_containers(pod):
        return prefix + _waiting_line(waiting)
    return f"it has not started for {duration(waited)} on node {pod.node}; the pod's events say why"


def _waiting_line(waiting: Waiting) -> str:
    found = next((fault for clue, fault in _USERS.items() if clue in (waiting.message or "")), None)
    if found is not None:
        message = f"image {waiting.image or 'of the container'} {found}: {_NUMERIC_USER}"
        return one_line("it can't start", message, waiting.reason)
    subject = "image pull" if waiting.reason in _IMAGE_PULL else "it can't start"
    return one_line(subject, waiting.message, waiting.reason)


def _waiting_containers(pod: ObservedPod) -> list[tuple[str, Waiting]]:
    inits = [] if pod.waiting_init is None else [(f"init container {pod.waiting_init[0]}: ", pod.waiting_init[1])]
    mains = [] if pod.waiting is None else [("", pod.waiting)]
    return [(prefix, waiting) for prefix, waiting in (*inits, *mains) if waiting.reason not in _EVERYDAY]


def one_line(subject: str, message: str | None, reason: str | None) -> str:
    """Return one line: the subject, the message of the cluster, and its reason in brackets."""
    text = "".join(letter if letter.isprintable() else " " for letter in message or "")
    text = " ".join(text.split())[:_LONGEST_LINE]
    if reason is not None:
        return f"{subject}: {text} ({reason})" if text else f"{subject} ({reason})"
    return f"{subject}: {text}" if text else subject
