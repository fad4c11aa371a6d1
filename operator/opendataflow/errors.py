"""The one tree of exceptions; each says what is wrong, where, and what to do, in one sentence.

    DataflowError
    ├── InvalidInput          the user's file or arguments are wrong           retry: no
    │   └── UnknownThing      a job, data set, chunk or run that is not there   retry: no
    ├── Refused               the state does not allow it                      retry: no
    │   ├── IdTaken           an id belongs to another resource                retry: no
    │   └── NotShared         a data set is not shared with this namespace     retry: no
    ├── SchemaMismatch        the database needs `dataflow db migrate`         retry: no
    ├── Unreachable           Postgres does not answer                         retry: yes
    │   └── NoAccess          it refuses the user, password or database        retry: for a while
    ├── NotStarted            a run could not be started
    │   ├── CreateUncertain   nobody knows whether its pod was created         retry: yes
    │   ├── Backpressure      the cluster takes no more at this moment         retry: yes
    │   ├── NoRights          this program may not work in the namespace       retry: no
    │   ├── NotCreatable      the cluster does not accept the pod              retry: no
    │   └── NamespaceGone     the namespace is being deleted, or is not there  retry: no
    ├── ClusterUnreachable    the Kubernetes API does not answer               retry: yes
    ├── ClusterRefused        the Kubernetes API says no                       retry: no
    ├── LeaseLost             this process may not claim any more              retry: after renewal
    ├── Deposed               another operator has taken over                  retry: no
    ├── StepFailed            a step of a pipeline has failed                  retry: no
    ├── Unanswered            the server of a project does not answer          retry: yes
    ├── NotInstalled          an extra of this package is needed               retry: no
    ├── NotDelivered          a target does not take a notification            retry: yes
    └── EmbeddedPostgresError the embedded server can't be made or started     retry: no

`retryable` says whether the same call may succeed later without anybody's help. Nothing here is raised by this
module itself.
"""

from typing import ClassVar

from opendataflow.names import ExitCode


class DataflowError(Exception):
    """An error whose text is one sentence for a person; the command line prints it without a traceback."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class InvalidInput(DataflowError):
    """What the user wrote can't be honoured; the text names the place and the remedy."""

    exit_code = ExitCode.USAGE


class UnknownThing(InvalidInput):
    """A job, data set, chunk or run that does not exist."""


class Refused(DataflowError):
    """The state of the thing does not allow the request."""


class IdTaken(Refused):
    """The id of a job or data set belongs to another custom resource."""


class NotShared(Refused):
    """A job's namespace may not use a data set of another one."""


class SchemaMismatch(DataflowError):
    """The database's schema is not the one that this program works with."""

    exit_code = ExitCode.SCHEMA


class Unreachable(DataflowError):
    """Postgres does not answer."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


class NoAccess(Unreachable):
    """Postgres answers, and refuses the connection: somebody has to mend that, see `engine.patience`."""


class NotStarted(DataflowError):
    """A run could not be started; its subclasses say what follows."""


class CreateUncertain(NotStarted):
    """The API server did not answer, or failed: the pod may be there or not. The same name is created again."""

    retryable = True


class Backpressure(NotStarted):
    """A quota is used up or the API server is overloaded. `retry_after`: seconds that it asks for."""

    retryable = True

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class NoRights(NotStarted):
    """This program lacks rights in the namespace; nothing was asked of the cluster."""


class NotCreatable(NotStarted):
    """The API server refuses the pod; the text is its sentence."""


class NamespaceGone(NotStarted):
    """The namespace is being deleted or is not there."""


class ClusterUnreachable(DataflowError):
    """The Kubernetes API does not answer, or answers that it can't now, or does not accept our credentials now.

    `retry_after`: seconds that it asks to wait, None where it does not say.
    """

    retryable = True
    exit_code = ExitCode.UNREACHABLE

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ClusterRefused(DataflowError):
    """The Kubernetes API refuses a request. `code`: of HTTP. `reason`: the API's word, such as NotFound or Conflict."""

    def __init__(self, message: str, code: int, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class LeaseLost(DataflowError):
    """The lease of this process has ended: it must not claim until it holds a new one."""

    retryable = True


class Deposed(DataflowError):
    """Another operator leads now: this process has to end."""


class NotDelivered(DataflowError):
    """A target does not take a notification; the text says why, without the target's address."""

    retryable = True


class StepFailed(DataflowError):
    """A step of a pipeline, or its unit test, has failed; the text is one sentence with file and line."""


class Unanswered(DataflowError):
    """The server that a project is fetched from does not answer."""

    retryable = True


class NotInstalled(DataflowError):
    """What a command needs is an extra of this package, or a program; the text says how it is installed."""


class EmbeddedPostgresError(DataflowError):
    """The embedded Postgres can't be created or started."""

    exit_code = ExitCode.UNREACHABLE
