"""Judges how a run's pod ended, or that it has to be ended. Pure: facts and the time in, a verdict out; it never fails.

Three questions, in this order.

1. Has `main` ended?  The container counts, never the pod's phase: a sidecar keeps it Running, and a pod may be Failed
   without an end of `main`. It ended *by itself* if it did before anything else began to end it: a deletion, the
   kubelet's disruption, the deadline. Times of pods are whole seconds: an earlier state of the pod may prove it where
   the times do not. The first line that applies counts:

    exit code 0, by itself                                Success
    a valid report, not by itself                         Success: it had told so before it was stopped
    we stopped it: cancelled, or gave it up               Cancelled, or what it was given up for
    by itself: OOMKilled                                  OOMKilled, with the limit
    by itself: its state is not known (the node lost it)  Infrastructure
    by itself: its report says that tests fail            NotStarted
    by itself: another exit code                          Application
    stopped at its deadline                               DeadlineExceeded
    evicted, disrupted, deleted by somebody               Infrastructure

2. Can it never end any more, because nothing of it runs and nothing will?  That is: the object is gone, its node is
   gone, its phase is terminal, or it was deleted before it had a node. Then what kept it from starting, or ended it,
   counts by the same order, and what nobody saw is Infrastructure. A failed init container is the user's: Application.

3. Else it is alive, and no other attempt may start. Past its start deadline it is to be stopped. On a node that does
   not answer it waits, unless the user has set a time after which he takes the risk.

A time that is not known counts against success: a chunk done twice is done once, one that is believed done is lost.
"""

import signal
from collections.abc import Iterable
from dataclasses import replace

from opendataflow import names
from opendataflow.core.pipelines.report import read_report
from opendataflow.core.runs.outcome import failure_line, last_line
from opendataflow.core.text.explain import duration
from opendataflow.model.records.pod import Ending, PodSeen, Stop, Waiting
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
_LONGEST_LINE = 300
PATIENCE = 30.0
"""Seconds after which a pod that nothing is said of should run."""


def judge_pod(
    pod: PodSeen, now: float, *, stopped: Outcome | None = None, node_gone: bool = False
) -> Outcome | Stop | None:
    """Return the outcome of the run, or that its pod has to be deleted and why, or None while it goes on.

    `stopped`: why we have deleted it ourselves: CANCELLED, or the outcome of a `Stop`. `node_gone`: the node that it
    was bound to is no node of the cluster any more. `now`: seconds since the epoch.
    """
    if pod.ended is not None:
        return _of_end(pod, pod.ended, stopped)
    if pod.gone or node_gone or pod.terminal or (pod.deleted_at is not None and pod.node is None):
        return stopped or _without_end(pod, node_gone=node_gone)
    return _alive(pod, now)


def ended_by_itself(pod: PodSeen) -> bool:
    """Return whether `main` ended before anything else began to end the pod. No later state can refute it."""
    return pod.ended is not None and (pod.by_itself or _by_itself(pod, pod.ended))


def with_last_line(outcome: Outcome, pod: PodSeen, log: str) -> Outcome:
    """Return the outcome with the last line of the log behind an exit code that nothing else explains."""
    end = pod.ended or (pod.failed_init[1] if pod.failed_init is not None else None)
    line = last_line(log)
    if end is None or not line or not outcome.message.endswith(_exit_code(end)):
        return outcome
    return replace(outcome, message=f"{outcome.message}: {line}")


def what_hinders(pod: PodSeen, now: float) -> tuple[Reason, str] | None:
    """Why a pod does not run although it should by now, in a word and in a line that stays the same from one moment to
    the next; None where nothing is known to be wrong."""
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
    if waits := _waits(pod):
        prefix, waiting = waits[0]
        pulls = waiting.reason in _IMAGE_PULL
        what = prefix + ("image pull" if pulls else "it can't start")
        return (Reason.IMAGE_PULL if pulls else Reason.POD_PENDING), one_line(what, waiting.message, waiting.reason)
    if now - pod.created_at < PATIENCE:
        return None
    where = f"it has not started on node {pod.node}" if pod.node is not None else "no node was chosen"
    return Reason.POD_PENDING, f"{where}; the pod's events say why"


def hindrances(found: Iterable[tuple[Reason, str]]) -> dict[str, tuple[int, str]]:
    """Count what hinders some pods: reason -> (how many, the sentence of one)."""
    counted: dict[str, tuple[int, str]] = {}
    for reason, sentence in found:
        number, first = counted.get(reason, (0, sentence))
        counted[reason] = number + 1, min(first, sentence)
    return counted


def _of_end(pod: PodSeen, end: Ending, stopped: Outcome | None) -> Outcome:
    by_itself = ended_by_itself(pod)
    if end.exit_code == 0 and by_itself:
        return Outcome(OutcomeClass.SUCCESS, "exit code 0", 0)
    report = read_report(end.message)
    if not by_itself and report is not None and report.says_done:
        return Outcome(OutcomeClass.SUCCESS, "its report says that it was done before it was stopped", end.exit_code)
    if stopped is not None and (stopped.kind is OutcomeClass.CANCELLED or not by_itself):
        return Outcome(stopped.kind, stopped.message, end.exit_code)
    kind, message = _own_failure(end, pod.memory_limit) if by_itself else _stopped_by_others(pod)
    return Outcome(kind, message, end.exit_code)


def _by_itself(pod: PodSeen, end: Ending) -> bool:
    """Whether a container ended before anything else began to end it."""
    began = _stop_began(pod)
    return began is None or (end.finished_at is not None and end.finished_at < began)


def _stop_began(pod: PodSeen) -> float | None:
    """Return when something else than the program began to end the pod; the beginning of time if that is not known."""
    moments = [] if pod.deleted_at is None else [pod.deleted_at]
    disrupted = pod.disrupted if pod.disrupted is not None and pod.disrupted.reason == _BY_KUBELET else None
    if disrupted is not None:  # the other disruptions are deletions, or came to nothing
        moments.append(disrupted.since or 0.0)
    if pod.reason == _DEADLINE_EXCEEDED:
        known = pod.begun_at is not None and pod.deadline is not None
        moments.append((pod.begun_at or 0.0) + (pod.deadline or 0.0) if known else 0.0)
    elif pod.reason is not None and disrupted is None:
        moments.append(0.0)
    return min(moments, default=None)


def _own_failure(end: Ending, memory_limit: str | None) -> tuple[OutcomeClass, str]:
    if end.reason == "OOMKilled":
        limit = "" if memory_limit is None else f": its limit is {memory_limit}"
        return OutcomeClass.OUT_OF_MEMORY, f"out of memory{limit}"
    if end.reason == "ContainerStatusUnknown" or end.exit_code < 0:
        return OutcomeClass.INFRASTRUCTURE, "lost: its node can't tell how it ended"
    if end.reason in _NOT_STARTABLE:
        return OutcomeClass.APPLICATION, one_line("the command can't be started", end.message, None)
    if (end.message or "").startswith((names.NO_EXECUTOR, names.NO_ANSWER)):
        return OutcomeClass.INFRASTRUCTURE, one_line(end.message or "", None, None)
    report = read_report(end.message)
    if report is not None and report.untested is not None:
        return OutcomeClass.NOT_STARTED, report.untested
    told = last_line(end.message or "") if report is None else failure_line(report.failure or "")
    return OutcomeClass.APPLICATION, _exit_code(end) + (f": {told}" if told else "")


def _exit_code(end: Ending) -> str:
    number = end.signal or end.exit_code - 128  # as shells and container runtimes tell a signal
    known = number in set(signal.Signals)
    return f"exit code {end.exit_code}" + (f" ({signal.Signals(number).name})" if known else "")


def _stopped_by_others(pod: PodSeen) -> tuple[OutcomeClass, str]:
    if pod.reason == _DEADLINE_EXCEEDED:
        return OutcomeClass.DEADLINE, "stopped at its deadline"
    if pod.reason is not None:
        what = "evicted" if pod.reason == "Evicted" else "its node ended it"
        return OutcomeClass.INFRASTRUCTURE, one_line(what, pod.message, None if pod.reason == "Evicted" else pod.reason)
    if pod.disrupted is not None:
        return OutcomeClass.INFRASTRUCTURE, one_line("disrupted", pod.disrupted.message, pod.disrupted.reason)
    before = "" if _has_started(pod) or pod.ended is not None else " before it started"
    return OutcomeClass.INFRASTRUCTURE, f"its pod was deleted by somebody{before}"


def _without_end(pod: PodSeen, *, node_gone: bool) -> Outcome:
    if pod.failed_init is not None and _by_itself(pod, pod.failed_init[1]):
        return _of_init(*pod.failed_init)
    if pod.reason is not None or pod.disrupted is not None:
        return Outcome(*_stopped_by_others(pod))
    if pod.deleted_at is not None and pod.created_at is not None and not _has_started(pod):
        waited = pod.deleted_at - pod.created_at
        if waited >= pod.start_deadline:  # it was given up, and who did it can't tell any more
            return Outcome(OutcomeClass.INFRASTRUCTURE, _not_started(pod, waited))
    if pod.deleted_at is not None or pod.gone:
        return Outcome(*_stopped_by_others(pod))
    if node_gone:
        return Outcome(OutcomeClass.INFRASTRUCTURE, f"lost: its node {pod.node} is gone")
    return Outcome(OutcomeClass.INFRASTRUCTURE, f"lost: its pod is {pod.phase}, and how its program ended is not known")


def _of_init(name: str, end: Ending) -> Outcome:
    """The init containers are the user's, or open his passwords: what fails there fails again."""
    kind, message = _own_failure(end, None)
    return Outcome(kind, f"init container {name}: {message}", end.exit_code)


def _alive(pod: PodSeen, now: float) -> Outcome | Stop | None:
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
    return Stop(Outcome(OutcomeClass.INFRASTRUCTURE, _not_started(pod, waited)))


def _has_started(pod: PodSeen) -> bool:
    return pod.started or (pod.phase == "Running" and pod.waiting is None)


def _not_started(pod: PodSeen, waited: float) -> str:
    if pod.node is None and pod.unscheduled is not None:
        return one_line(
            f"unschedulable for {duration(waited)}", pod.unscheduled.message or pod.unscheduled.reason, None
        )
    if pod.node is None:
        return f"no node was chosen for {duration(waited)}: does the cluster have a scheduler?"
    for prefix, waiting in _waits(pod):
        what = "image pull" if waiting.reason in _IMAGE_PULL else "it can't start"
        return one_line(prefix + what, waiting.message, waiting.reason)
    return f"it has not started for {duration(waited)} on node {pod.node}; the pod's events say why"


def _waits(pod: PodSeen) -> list[tuple[str, Waiting]]:
    inits = [] if pod.waiting_init is None else [(f"init container {pod.waiting_init[0]}: ", pod.waiting_init[1])]
    mains = [] if pod.waiting is None else [("", pod.waiting)]
    return [(prefix, waiting) for prefix, waiting in (*inits, *mains) if waiting.reason not in _EVERYDAY]


def one_line(what: str, message: str | None, reason: str | None) -> str:
    """Join what happened, the cluster's words for it, and its reason in brackets, in one line."""
    said = "".join(letter if letter.isprintable() else " " for letter in message or "")
    said = " ".join(said.split())[:_LONGEST_LINE]
    if reason is not None:
        return f"{what}: {said} ({reason})" if said else f"{what} ({reason})"
    return f"{what}: {said}" if said else what
