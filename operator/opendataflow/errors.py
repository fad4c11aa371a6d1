"""The exception tree. The text of each error is one sentence: what is wrong, where, and what to do.

    DataflowError
    ├── InvalidInput          the user's file or arguments are wrong           retry: no
    │   ├── PolicyViolated    a pod may not have what a job asks for           retry: no
    │   ├── LocationNotAccepted  a password would go to a new location         retry: no
    │   └── UnknownThing      a job, data set, chunk or run does not exist     retry: no
    ├── Refused               the state does not allow it                      retry: no
    │   ├── IdTaken           an id belongs to another resource                retry: no
    │   ├── PlanRefused       a change affects finished tasks                  retry: no
    │   ├── NotShared         a data set is not shared with this namespace     retry: no
    │   └── LimitReached      a namespace would have more than its limit       retry: no
    ├── SchemaMismatch        the database needs `dataflow db migrate`         retry: no
    ├── Unreachable           Postgres does not answer                         retry: yes
    │   └── NoAccess          Postgres refuses the user, password or database  retry: for a while
    ├── NotStarted            a run could not be started
    │   ├── CreateUncertain   it is unknown whether the pod was created        retry: yes
    │   ├── Backpressure      the cluster accepts no more pods for now         retry: yes
    │   ├── NoRights          this program lacks rights in the namespace       retry: no
    │   ├── NotCreatable      the cluster does not accept the pod              retry: no
    │   └── NamespaceGone     the namespace is terminating or does not exist   retry: no
    ├── ClusterUnreachable    the Kubernetes API does not answer               retry: yes
    ├── ClusterRefused        the Kubernetes API refuses the request           retry: no
    ├── LeaseLost             this process may not claim any more              retry: after renewal
    ├── LeadershipLost        another operator has taken over                  retry: no
    ├── HistoryLost           Postgres lacks what this process has seen in it  retry: no
    ├── CutOff                a leader does not reach the Kubernetes API       retry: no
    ├── StepFailed            a step of a pipeline has failed                  retry: no
    ├── Unanswered            the git server of a project does not answer      retry: yes
    ├── NotInstalled          an extra of this package is needed               retry: no
    ├── NotDelivered          a target does not accept a notification          retry: yes
    └── EmbeddedPostgresError the embedded server can't be created or started  retry: no

`retryable`: the same call may succeed later, although no person changes anything. This module never raises an error.
"""

from typing import ClassVar

from opendataflow.names import ExitCode


class DataflowError(Exception):
    """Base class. The text is one sentence for a person; the command line prints it without a traceback."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class InvalidInput(DataflowError):
    """User input is invalid. The text names the place and the remedy."""

    exit_code = ExitCode.USAGE


class PolicyViolated(InvalidInput):
    """A job asks for pods that the operator's `podPolicy` does not permit. The text names the fields."""


class UnknownThing(InvalidInput):
    """A job, data set, chunk or run that does not exist."""


class Refused(DataflowError):
    """The state of a job, chunk or task does not allow the request."""


class IdTaken(Refused):
    """The id of a job or data set belongs to another custom resource."""


class PlanRefused(Refused):
    """A change of a declaration affects finished tasks, and no consent was given. `plan`: the plan, as JSON."""

    def __init__(self, sentence: str, plan: str) -> None:
        super().__init__(sentence)
        self.plan = plan


class LocationNotAccepted(InvalidInput):
    """A job has a password for a data set of another namespace, and has not accepted where its runs would send it."""


class NotShared(Refused):
    """The namespace of a job may not use a data set of another namespace."""


class LimitReached(Refused):
    """A namespace would have more chunks, jobs or data sets than the chart's values allow."""


class SchemaMismatch(DataflowError):
    """This program does not work with the schema of the database."""

    exit_code = ExitCode.SCHEMA


class Unreachable(DataflowError):
    """Postgres does not answer."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


class NoAccess(Unreachable):
    """Postgres answers and refuses the connection. A person has to fix that; see `engine.database_retries`."""


class NotStarted(DataflowError):
    """A run could not be started. The subclass decides what the engine does next."""


class CreateUncertain(NotStarted):
    """The API server did not answer, or failed: the pod may exist. The caller creates the same name again."""

    retryable = True


class Backpressure(NotStarted):
    """A quota is used up or the API server is overloaded. `retry_after`: seconds to wait, as the API server asks."""

    retryable = True

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class NoRights(NotStarted):
    """This program lacks rights in the namespace. No request was sent to the cluster."""


class NotCreatable(NotStarted):
    """The API server refuses the pod. The text is the message of the API server."""


class NamespaceGone(NotStarted):
    """The namespace is being deleted or does not exist."""


class ClusterUnreachable(DataflowError):
    """The Kubernetes API does not answer, is overloaded, or does not accept the credentials at the moment.

    `retry_after`: seconds to wait, as the API server asks; None if it does not ask.
    """

    retryable = True
    exit_code = ExitCode.UNREACHABLE

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ClusterRefused(DataflowError):
    """The Kubernetes API refuses a request. `code`: the HTTP status. `reason`: such as NotFound or Conflict."""

    def __init__(self, message: str, code: int, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class LeaseLost(DataflowError):
    """The lease of this process has ended. The process must not claim before it holds a new one."""

    retryable = True


class LeadershipLost(DataflowError):
    """Another operator leads now. This process has to end."""


class HistoryLost(DataflowError):
    """Postgres has gone back in time: it was restored, or a failover has lost commits. This process has to end."""

    exit_code = ExitCode.HISTORY_LOST


class NotDelivered(DataflowError):
    """A target does not accept a notification. The text gives the reason, without the address of the target."""

    retryable = True


class CutOff(DataflowError):
    """The leading operator does not reach the Kubernetes API. It ends, and another one leads."""

    exit_code = ExitCode.UNREACHABLE


class StepFailed(DataflowError):
    """A step of a pipeline, or its unit test, has failed. The text is one sentence with file and line."""


class Unanswered(DataflowError):
    """The git server of a pipeline project does not answer."""

    retryable = True


class NotInstalled(DataflowError):
    """A command needs an extra of this package, or another program. The text says how to install it."""


class EmbeddedPostgresError(DataflowError):
    """The embedded Postgres can't be created or started."""

    exit_code = ExitCode.UNREACHABLE
