"""Names that several modules share: states, outcome classes, labels, variables, and the names of runs.

This module contains constants and the functions that build names. It never decides anything and imports nothing of the
project.
"""

import re
from enum import IntEnum, StrEnum

GROUP = "opendataflow.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "dataflow"
"""The category of all resources of the group: `kubectl get dataflow` lists them."""

QUEUED_CHANNEL = "opendataflow_queued"
"""The NOTIFY channel. The payload is a job whose tasks may have become claimable."""

TODAY = "today"
"""The built-in data set. Its chunks are days, like 2026-11-28."""

SECRET_VARIABLES = frozenset(
    {
        "DATAFLOW_DSN",
        "DATAFLOW_DSN_FILE",
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
"""Variables that may hold a password or a token. Child processes never get them."""

SHELL_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
"""Matches the name of a shell variable."""

CONTROLS = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters for a class of a regular expression: control characters, and those that change the order of a text."""

_SLUG_LENGTH = 40 - len(f"-r{2**63 - 1}")
"""How many characters of a job's name fit in front of the longest run id."""
_NONCE_LENGTH = 6
"""How many characters of a run's nonce are in the name of its pod. They are hexadecimal digits."""


LABEL_RUN = f"{GROUP}/run"
"""On the pod of a run: the id of the run."""

LABEL_JOB = f"{GROUP}/job"
"""The job of a run, shortened to a valid label value."""

LABEL_ENGINE = f"{GROUP}/engine"
"""The identity of the database that the run belongs to."""

LABEL_DONE = f"{GROUP}/done"
"""The minute since the epoch in which the outcome of the run was committed. The pod is deleted some time later."""

LABEL_APPLICATION = f"{GROUP}/application"
"""On a SparkApplication: the identity of its database.

Spark copies the labels of an application to its driver and executors. So an application has no label that marks the pod
of a run; only the driver gets those labels, in its template."""
LABEL_SUBMISSION = "sparkoperator.k8s.io/submission-id"
"""On the driver of a SparkApplication, set by the Spark operator: the id of the submission."""
LABEL_EXECUTOR_OF = f"{GROUP}/executor-of"
"""On the pod of an executor: the name of the driver's pod."""

ANNOTATION_CONTEXT = f"{GROUP}/context"
ANNOTATION_SPARK = f"{GROUP}/spark"
"""The order for a Spark driver, see core/kubernetes/spark_pods.py."""
ANNOTATION_PIPELINE = f"{GROUP}/pipeline"
"""The order for a pipeline run, see core/pipelines/pipeline_order.py."""
ANNOTATION_EXECUTORS = f"{GROUP}/executors"
"""On the pod of a driver: the driver starts executors, which are deleted when its outcome is committed."""
ANNOTATION_JOB = f"{GROUP}/job-id"
ANNOTATION_DATA_ID = f"{GROUP}/data-id"
ANNOTATION_FENCE = f"{GROUP}/fence"
ANNOTATION_NONCE = f"{GROUP}/nonce"
"""On the pod or SparkApplication of a run: the random value of the run, which nobody knows before its creation."""
ANNOTATION_REQUESTED_BY = f"{GROUP}/requested-by"
"""On a DataFlowAction: the person who asked, as the client of that person reports."""
ANNOTATION_START_DEADLINE = f"{GROUP}/start-deadline"
"""Seconds between the creation of the pod and the start of its main container."""
ANNOTATION_RETRY_AFTER = f"{GROUP}/retry-after"
"""Seconds after which a run on an unreachable node is lost, without proof that it has ended."""
ANNOTATION_KEEP_LOG = f"{GROUP}/keep-log"
"""`false`: the log of the run is not read."""
ANNOTATION_RUN = f"{GROUP}/run"
"""On a SparkApplication: the id of the run."""
ANNOTATION_RUN_DEADLINE = f"{GROUP}/run-deadline"
"""Seconds that the driver of a SparkApplication may run. A SparkApplication has no field for it."""

FINALIZER = f"{GROUP}/outcome"
"""Keeps the pod of a run until its outcome is committed."""

NO_ANSWER = "the git server does not answer"
"""Prefix of the termination message of the fetch container after a network error."""
NO_EXECUTOR = "no executor has come up"
"""Prefix of the termination message of a Spark driver that ended because it got no executors."""

SPARK_ARCHIVE = "DATAFLOW_SPARK_ARCHIVE"
"""The variable in images that names the class data archive of Spark."""

MAIN_CONTAINER = "main"
DRIVER_CONTAINER = "spark-kubernetes-driver"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"
"""The names that Spark gives its containers in the pods of a SparkApplication."""
OPENER_CONTAINER = "open-passwords"
FETCH_CONTAINER = "fetch-project"
RESERVED_PREFIX = "DATAFLOW_"
"""Prefix of the variables that are reserved for the framework."""
DATA_VOLUME = "dataflow"
CONTEXT_VOLUME = "dataflow-context"
SCRATCH_VOLUME = "dataflow-scratch"
PROJECT_VOLUME = "dataflow-project"
DATA_FOLDER = "/dataflow"
"""The mount path of the memory volume in pods with encrypted passwords: decrypted values, and a static busybox."""
CONTEXT_FOLDER = "/etc/opendataflow"
"""The folder of the context file in a pod. Not in the memory volume: the main container can't write there."""
PROJECT_FOLDER = "/opt/dataflow-project"
"""The folder of the pipeline project in a pod, if the image does not contain the project."""
PIPELINE_FILE = "pipeline.json"
"""The file name of the order for a pipeline run, beside the context."""
REPORT_FILE = "report.json"
"""The file name of the report that a local run writes beside its context."""
HOLDER_VARIABLE = "DATAFLOW_HOLDER"
"""The variable with the folder of the holder whose JVM a run uses."""
HOLDER_CONNECTION = "connection"
"""The file in which the JVM of a holder writes its port and its secret, when it is ready."""
HOLDER_START = "start.json"
"""The file that describes how the JVM of a holder was started."""
HOLDER_EXIT = "exit"
"""The file with the exit code of a holder's JVM, or with the negative number of the signal that ended it."""
REUSABLE_FILE = "reusable"
"""The file that a run writes at its end if the next run can use the JVM of its holder."""
OWN_JVM_FILE = "own-jvm"
"""The file with the reason why a run that may share a JVM has one of its own."""
OWN_JVM_METRIC = "own_jvm"
"""The metric of a run with the same reason."""
UNUSED_FILE = "unused"
"""The file that a run writes at its end if it has not used the JVM of its holder."""
SPARK_FILE = "spark.json"
"""The file name of the order for a Spark driver, beside the context."""


class Answer(StrEnum):
    """An answer to a question. UNKNOWN: nobody has looked, or nobody could look."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class ChunkStatus(StrEnum):
    """The state of one chunk of a data set (docs/reference/states.md)."""

    DECLARED = "DECLARED"
    READY = "READY"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    RESUBMIT = "RESUBMIT"
    HOLD = "HOLD"
    PENDING = "PENDING"
    RETIRED = "RETIRED"
    """The id was withdrawn. The chunk stays in the history, and is not counted."""


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
    RETIRED = "RETIRED"
    """The id was withdrawn after the task was done. The task stays in the history, and is not counted."""


COUNTED_CHUNKS = tuple(status for status in ChunkStatus if status is not ChunkStatus.RETIRED)
"""The states of chunks that are counted, and that a request can select."""
COUNTED_TASKS = tuple(state for state in TaskState if state is not TaskState.RETIRED)
"""The states of tasks that are counted, and that a request can select."""


class RunState(StrEnum):
    """The state of a run: one attempt at one task."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    CANCELLED = "CANCELLED"
    GIVEN_BACK = "GIVEN_BACK"
    """Shown to people instead of LOST if the class is NotStarted: the run did nothing, and nothing failed."""


class StepStatus(StrEnum):
    """The state of one step of a pipeline."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    """The step did not run, or did not finish, because another step failed."""


class OutcomeClass(StrEnum):
    """Why a run ended. The class decides which retry budget a failure consumes."""

    SUCCESS = "Success"
    APPLICATION = "Application"
    INFRASTRUCTURE = "Infrastructure"
    DEADLINE = "DeadlineExceeded"
    OUT_OF_MEMORY = "OOMKilled"
    EXPECTATION = "ExpectationFailed"
    CANCELLED = "Cancelled"
    NOT_STARTED = "NotStarted"


class Preflight(StrEnum):
    """What the check of locations before a run has found. A run starts only if it has PASSED."""

    PASSED = "passed"
    CHUNK = "chunk"
    """The location of this chunk is missing. Other chunks may run."""
    JOB = "job"
    """A location that all chunks of the job need is missing or can't be reached."""


class Refusal(StrEnum):
    """Why a request was refused, as a word for programs."""

    UNKNOWN = "Unknown"
    INVALID = "InvalidSpec"
    REFUSED = "Refused"


INCOMPLETE = "INCOMPLETE"
"""Selects DONE tasks with an output that was never made. It is no state."""


class PlanNeed(StrEnum):
    """A consent that the plan of an apply may need."""

    RETIRE = "retire"
    OVERLAP = "overlap"
    BACKFILL = "backfill"


class Backfill(StrEnum):
    """What happens to finished tasks whose job has new outputs, or whose chunks have other bounds."""

    ALL = "all"
    NONE = "none"


class AlertKind(StrEnum):
    """The kinds of notifications."""

    FAILED = "failed"
    BREAKER = "breaker"
    TESTS = "tests"
    PREFLIGHT = "preflight"
    TEST = "test"


class ConditionType(StrEnum):
    """The type of a condition in a status (docs/reference/status.md)."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    DATABASE_REACHABLE = "DatabaseReachable"
    BREAKER_OPEN = "BreakerOpen"
    TESTS_PASSED = "TestsPassed"


class Reason(StrEnum):
    """The reason of a condition or an event, as a word for programs."""

    # Why a resource is not accepted.
    INVALID_SPEC = "InvalidSpec"
    POD_POLICY = "PodPolicy"
    ID_TAKEN = "IdTaken"
    NOT_SHARED = "NotShared"
    LOCATION_NOT_ACCEPTED = "LocationNotAccepted"
    LIMIT_REACHED = "LimitReached"
    DATA_SET_MISSING = "DataSetMissing"
    NOT_TAKEN_OVER = "NotTakenOver"
    INTERNAL_ERROR = "InternalError"
    PLAN_REFUSED = "PlanRefused"
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
    # Why existing pods do not run.
    IMAGE_PULL = "ImagePull"
    UNSCHEDULABLE = "Unschedulable"
    NODE_UNREACHABLE = "NodeUnreachable"
    POD_PENDING = "PodPending"
    SUBMISSION_PENDING = "SubmissionPending"
    SUBMISSION_FAILED = "SubmissionFailed"
    # The states of tasks, of a job or of a data set.
    DONE = "Done"
    STALE = "Stale"
    RUNNING = "Running"
    QUEUED = "Queued"
    RETRYING = "Retrying"
    WAITING = "WaitingForInputs"
    CHUNKS_FAILED = "ChunksFailed"
    EXPECTATION_FAILED = "ExpectationFailed"
    OUTPUTS_MISSING = "OutputsMissing"
    CHUNKS_HELD = "ChunksHeld"
    NO_CHUNKS = "NoChunks"
    DECLARING = "Declaring"
    DECLARED = "Declared"
    NO_PARALLELISM = "NoParallelism"
    SUSPENDED = "Suspended"
    DRAINING = "Draining"
    ACTIVE = "Active"
    BREAKER_OPEN = "BreakerOpen"
    BREAKER_CLOSED = "BreakerClosed"
    TESTS_PASS = "TestsPass"
    TESTS_FAIL = "TestsFail"
    NOT_TESTED = "NotTested"
    LOCATION_MISSING = "LocationMissing"
    DATABASE_ANSWERS = "DatabaseAnswers"
    DATABASE_UNREACHABLE = "DatabaseUnreachable"
    # Events.
    ACCEPTED = "Accepted"
    BREAKER_OPENED = "BreakerOpened"
    RUNS_FAILING = "RunsFailing"
    SUCCEEDED = "Succeeded"
    RESUMED = "Resumed"
    SCALED = "Scaled"
    RESUBMITTED = "Resubmitted"
    LEADING = "Leading"


class PodProfile(StrEnum):
    """What the operator permits the pods of jobs. The first two are profiles of the Pod Security Standards."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    ANY = "any"


class JobState(StrEnum):
    """The state of a job in one word, as `dataflow get jobs` shows it. Some states exist on a cluster only."""

    PENDING = "Pending"
    STALLED = "Stalled"
    DELETED = "Deleted"
    SUSPENDED = "Suspended"
    BREAKER_OPEN = "BreakerOpen"
    RUNNING = "Running"
    FAILED = "Failed"
    INCOMPLETE = "Incomplete"
    DONE = "Done"
    STALE = "Stale"
    """All tasks are done, but some outputs were made from an older version of an input or of the job."""
    QUEUED = "Queued"
    WAITING = "Waiting"
    DECLARING = "Declaring"
    """All known tasks are done or wait, and more follow: the chunks are still being declared."""


class ExitCode(IntEnum):
    """Exit codes of the command line (docs/reference/exit-codes.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNFINISHED = 3
    UNREACHABLE = 4
    SCHEMA = 5
    STALE = 6
    HISTORY_LOST = 7
    NOTHING_READY = 75
    INTERRUPTED = 130


def is_shell_name(text: str) -> bool:
    """Return whether a shell variable can have this name."""
    return re.fullmatch(SHELL_NAME, text) is not None


def shell_name(text: str) -> str:
    """Return `text` as the name of a shell variable: every other character becomes `_`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{name}" if name[:1].isdigit() else name


def run_name(job: str, run: int) -> str:
    """Return the name of a run and of its folder: a DNS-1035 label of at most 40 characters.

    The run id alone makes the name unique. The name of the job in front is for people.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"j-{slug}"
    return f"{slug[:_SLUG_LENGTH].rstrip('-')}-r{run}"


def pod_name(job: str, run: int, nonce: str) -> str:
    """Return the name of a run's pod or SparkApplication: a DNS-1035 label of at most 47 characters.

    Run ids are predictable. The first characters of the nonce, a UUID, keep others from taking the name first.
    """
    return f"{run_name(job, run)}-{nonce[:_NONCE_LENGTH]}"


def label_value(text: str) -> str:
    """Return a text as the value of a Kubernetes label, shortened if necessary. The result need not be unique."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:63].rstrip("-._")
