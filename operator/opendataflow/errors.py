"""The one tree of exceptions; each says what is wrong, where, and what to do, in one sentence.

    DataflowError
    ├── InvalidInput          the user's file or arguments are wrong           retry: no
    │   └── UnknownThing      a job, data set, chunk or run that is not there   retry: no
    ├── Refused               the state does not allow it                      retry: no
    ├── SchemaMismatch        the database needs `dataflow db migrate`         retry: no
    ├── Unreachable           Postgres does not answer                         retry: yes
    ├── LeaseLost             this process may not claim any more              retry: after renewal
    ├── ClusterUnreachable    the Kubernetes API does not answer, or not now       retry: yes
    │   └── CreateUncertain   a create without an answer: it may have happened  retry: yes, the same
    ├── ClusterRefused        the Kubernetes API says no                       retry: no
    ├── Backpressure          no room for another object: quota, rate limit    retry: yes, later
    ├── NotCreatable          the object is not accepted as it is              retry: no
    ├── NamespaceGone         the namespace is missing or being deleted        retry: no
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


class SchemaMismatch(DataflowError):
    """The database's schema is not the one that this program works with."""

    exit_code = ExitCode.SCHEMA


class Unreachable(DataflowError):
    """Postgres does not answer."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


class LeaseLost(DataflowError):
    """The lease of this process has ended: it must not claim until it holds a new one."""

    retryable = True


class ClusterUnreachable(DataflowError):
    """The Kubernetes API does not answer, or answers that it can't now, or does not accept our credentials now."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


class CreateUncertain(ClusterUnreachable):
    """A create was sent and its answer is not known: the object may be there. Sending the same again is safe."""


class ClusterRefused(DataflowError):
    """The Kubernetes API refuses a request. `code`: of HTTP. `reason`: the API's word, such as NotFound or Conflict."""

    def __init__(self, message: str, code: int, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Backpressure(DataflowError):
    """There is no room for another object now: a quota is used up, or requests are limited. Nothing was made.

    `retry_after`: seconds that the API asks to wait, None where it does not say.
    """

    retryable = True

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotCreatable(DataflowError):
    """The API does not accept the object as it is; the text is the API's sentence. Nothing was made."""


class NamespaceGone(DataflowError):
    """The namespace is missing or being deleted: nothing can be made in it."""


class NotDelivered(DataflowError):
    """A target does not take a notification; the text says why, without the target's address."""

    retryable = True


class EmbeddedPostgresError(DataflowError):
    """The embedded Postgres can't be created or started."""

    exit_code = ExitCode.UNREACHABLE
