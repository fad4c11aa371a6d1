"""Every name that more than one part of the program must spell alike.

States, outcome classes, environment names and the names of runs. This module holds words and the rules for
making them; it never decides anything and imports nothing of the project.
"""

import re
from enum import IntEnum, StrEnum

GROUP = "opendataflow.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "dataflow"
"""What `kubectl get dataflow` lists: all resources of the group."""

QUEUED_CHANNEL = "opendataflow_queued"
"""The NOTIFY channel that says: tasks of the job in the payload may have become claimable."""

TODAY = "today"
"""The data set that is built in: its chunks are days, like 2026-11-28."""

SECRET_VARIABLES = frozenset(
    {
        "DATAFLOW_DSN",
        "DATAFLOW_KEY_FILE",
        "DATAFLOW_NOTIFY_COMMAND",
        "DATAFLOW_NOTIFY_SMTP",
        "DATAFLOW_NOTIFY_SMTP_PASSWORD",
        "DATAFLOW_NOTIFY_WEBHOOK",
        "DATAFLOW_SOURCE_DSN",
        "DATAFLOW_TARGET_DSN",
        "PASSKEY",
        "PASSKEY_NEW",
    }
)
"""What may hold a password or a token in this program's environment; no process that it starts gets it."""

SHELL_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
"""The names that a variable of a shell can have."""

_SLUG = 40 - len(f"-r{2**63 - 1}")
"""How much of a job's name fits beside the longest number of a run."""


LABEL_RUN = f"{GROUP}/run"
"""The id of a run, on its pod."""

LABEL_JOB = f"{GROUP}/job"
"""The job of a run, as far as a label can spell it."""

LABEL_ENGINE = f"{GROUP}/engine"
"""Which database the run is remembered in."""

LABEL_DONE = f"{GROUP}/done"
"""The minute since the epoch in which the outcome of the run had been committed: the pod may go some time later."""

LABEL_APPLICATION = f"{GROUP}/application"
"""Which database a SparkApplication belongs to. Its labels are on its driver and executors too, so it has none of those
that a run's pod is known by; its driver has them beside it."""
LABEL_EXECUTOR_OF = f"{GROUP}/executor-of"
"""On an executor's pod: the run that it works for, by the name of its driver's pod."""

ANNOTATION_CONTEXT = f"{GROUP}/context"
ANNOTATION_SPARK = f"{GROUP}/spark"
"""What a Spark driver is to do, see core/kubernetes/spark_pods.py."""
ANNOTATION_PIPELINE = f"{GROUP}/pipeline"
"""What a run of a pipeline is to do, see core/pipelines/pipeline_order.py."""
ANNOTATION_EXECUTORS = f"{GROUP}/executors"
"""On a driver's pod: it starts executors, which have to be deleted when its outcome is committed."""
ANNOTATION_JOB = f"{GROUP}/job-id"
ANNOTATION_DATA_ID = f"{GROUP}/data-id"
ANNOTATION_FENCE = f"{GROUP}/fence"
ANNOTATION_REQUESTED_BY = f"{GROUP}/requested-by"
"""Who has asked by a DataFlowAction, as that person's own program says."""
ANNOTATION_START_DEADLINE = f"{GROUP}/start-deadline"
"""Seconds from the pod's creation until its main container has to run."""
ANNOTATION_RETRY_AFTER = f"{GROUP}/retry-after"
"""Seconds after which a run on a node that does not answer is given up without proof of its death."""
ANNOTATION_KEEP_LOG = f"{GROUP}/keep-log"
"""`false`: nobody reads what the run has printed."""
ANNOTATION_RUN = f"{GROUP}/run"
"""The id of a run, on its SparkApplication."""
ANNOTATION_RUN_DEADLINE = f"{GROUP}/run-deadline"
"""Seconds that the driver of a SparkApplication may take: no field of it says so."""

FINALIZER = f"{GROUP}/outcome"
"""Keeps a run's pod until its outcome is committed."""

NO_ANSWER = "the git server does not answer"
"""How the termination message of a pod's fetching begins where the network was to blame."""
NO_EXECUTOR = "no executor has come up"
"""How a Spark driver's termination message begins where it was ended for want of executors."""

SPARK_ARCHIVE = "DATAFLOW_SPARK_ARCHIVE"
"""The variable that names the archive of Spark's classes, as it is in images."""

MAIN_CONTAINER = "main"
DRIVER_CONTAINER = "spark-kubernetes-driver"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"
"""Spark's own names for its containers, in the pods of a SparkApplication."""
OPENER_CONTAINER = "open-passwords"
FETCH_CONTAINER = "fetch-project"
RESERVED_PREFIX = "DATAFLOW_"
"""Variables of this prefix are the framework's."""
DATA_VOLUME = "dataflow"
CONTEXT_VOLUME = "dataflow-context"
SCRATCH_VOLUME = "dataflow-scratch"
PROJECT_VOLUME = "dataflow-project"
DATA_FOLDER = "/dataflow"
"""Where a pod with encrypted passwords has its memory volume: the opened values, and a static busybox."""
CONTEXT_FOLDER = "/etc/opendataflow"
"""Where a pod has its context file. Not inside the memory volume, which the main container can't write."""
PROJECT_FOLDER = "/opt/dataflow-project"
"""Where a pod has the project of its pipeline, if it is not in its image."""
PIPELINE_FILE = "pipeline.json"
"""The name of the order of a pipeline's run, beside the context."""
REPORT_FILE = "report.json"
"""What a run on one machine writes beside its context to report."""
SPARK_FILE = "spark.json"
"""The name of a Spark driver's order, beside the context."""


class ChunkStatus(StrEnum):
    """The state of one chunk of a data set (docs/reference/states.md)."""

    DECLARED = "DECLARED"
    READY = "READY"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    RESUBMIT = "RESUBMIT"
    HOLD = "HOLD"
    PENDING = "PENDING"


class TaskState(StrEnum):
    """The state of a task: one job's processing of one chunk (docs/reference/states.md)."""

    WAITING = "WAITING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    DONE = "DONE"
    FAILED = "FAILED"
    HELD = "HELD"
    SKIPPED = "SKIPPED"


class RunState(StrEnum):
    """The state of one attempt."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    CANCELLED = "CANCELLED"
    GIVEN_BACK = "GIVEN_BACK"
    """As people are shown a LOST one of the class NotStarted: it has done nothing, and failed at nothing."""


class StepStatus(StrEnum):
    """The state of one step of a pipeline."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    """Not run, or not to its end: another step has failed."""


class OutcomeClass(StrEnum):
    """Why a run ended as it did; the class decides which budget a failure burns."""

    SUCCESS = "Success"
    APPLICATION = "Application"
    INFRASTRUCTURE = "Infrastructure"
    DEADLINE = "DeadlineExceeded"
    OUT_OF_MEMORY = "OOMKilled"
    EXPECTATION = "ExpectationFailed"
    CANCELLED = "Cancelled"
    NOT_STARTED = "NotStarted"


class Refusal(StrEnum):
    """Why a request was not done, in one word for programs."""

    UNKNOWN = "Unknown"
    NOT_SHARED = "NotShared"
    INVALID = "InvalidSpec"
    REFUSED = "Refused"


class AlertKind(StrEnum):
    """What people are told about."""

    FAILED = "failed"
    BREAKER = "breaker"
    TESTS = "tests"
    TEST = "test"


class ConditionType(StrEnum):
    """What a status tells as True, False or Unknown (docs/reference/status.md)."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    DATABASE_REACHABLE = "DatabaseReachable"
    BREAKER_OPEN = "BreakerOpen"
    TESTS_PASSED = "TestsPassed"


class Reason(StrEnum):
    """The one word of a condition or an event, for programs."""

    # Why a resource can't be honoured.
    INVALID_SPEC = "InvalidSpec"
    ID_TAKEN = "IdTaken"
    NOT_SHARED = "NotShared"
    DATA_SET_MISSING = "DataSetMissing"
    NOT_TAKEN_OVER = "NotTakenOver"
    TAKEN_OVER = "TakenOver"
    DELETED = "Deleted"
    NOT_STALLED = "NotStalled"
    # Why runs can't be started.
    QUOTA_EXCEEDED = "QuotaExceeded"
    THROTTLED = "Throttled"
    NOT_CREATABLE = "NotCreatable"
    RIGHTS_MISSING = "RightsMissing"
    API_UNREACHABLE = "ApiUnreachable"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    # Why pods that are there do not run.
    IMAGE_PULL = "ImagePull"
    UNSCHEDULABLE = "Unschedulable"
    NODE_UNREACHABLE = "NodeUnreachable"
    POD_PENDING = "PodPending"
    SUBMISSION_PENDING = "SubmissionPending"
    SUBMISSION_FAILED = "SubmissionFailed"
    # How the tasks are.
    DONE = "Done"
    RUNNING = "Running"
    QUEUED = "Queued"
    RETRYING = "Retrying"
    WAITING = "WaitingForInputs"
    CHUNKS_FAILED = "ChunksFailed"
    EXPECTATION_FAILED = "ExpectationFailed"
    CHUNKS_HELD = "ChunksHeld"
    NO_CHUNKS = "NoChunks"
    NO_PARALLELISM = "NoParallelism"
    SUSPENDED = "Suspended"
    DRAINING = "Draining"
    ACTIVE = "Active"
    BREAKER_OPEN = "BreakerOpen"
    BREAKER_CLOSED = "BreakerClosed"
    TESTS_PASS = "TestsPass"
    TESTS_FAIL = "TestsFail"
    NOT_TESTED = "NotTested"
    DATABASE_ANSWERS = "DatabaseAnswers"
    DATABASE_UNREACHABLE = "DatabaseUnreachable"
    # What has happened.
    ACCEPTED = "Accepted"
    BREAKER_OPENED = "BreakerOpened"
    RUNS_FAILING = "RunsFailing"
    SUCCEEDED = "Succeeded"
    RESUMED = "Resumed"
    SCALED = "Scaled"
    RESUBMITTED = "Resubmitted"
    LEADING = "Leading"


class JobState(StrEnum):
    """How a job is, in one word; as `dataflow get jobs` says it, and what only a cluster can add."""

    PENDING = "Pending"
    STALLED = "Stalled"
    DELETED = "Deleted"
    SUSPENDED = "Suspended"
    BREAKER_OPEN = "BreakerOpen"
    RUNNING = "Running"
    FAILED = "Failed"
    DONE = "Done"
    QUEUED = "Queued"
    WAITING = "Waiting"


class ExitCode(IntEnum):
    """What the command line's exit codes mean; documented in docs/reference/exit-codes.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNFINISHED = 3
    UNREACHABLE = 4
    SCHEMA = 5
    NOTHING_READY = 75
    INTERRUPTED = 130


def is_shell_name(text: str) -> bool:
    """Say whether a shell can have a variable of this name."""
    return re.fullmatch(SHELL_NAME, text) is not None


def shell_name(text: str) -> str:
    """Return `text` with each character that a shell variable's name can't have replaced by `_`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{name}" if name[:1].isdigit() else name


def run_name(job: str, run: int) -> str:
    """Return the name of a run's pod or folder: at most 40 characters, a DNS-1035 label.

    The run id alone makes it unique; the job's name in front is for people.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"j-{slug}"
    return f"{slug[:_SLUG].rstrip('-')}-r{run}"


def label_value(text: str) -> str:
    """Return as much of a text as the value of a Kubernetes label can hold: for people and selectors, not unique."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:63].rstrip("-._")
