"""The one tree of exceptions; each says what is wrong, where, and what to do, in one sentence.

    DataflowError
    ├── InvalidInput          the user's file or arguments are wrong           retry: no
    │   └── UnknownThing      a job, data set, chunk or run that is not there   retry: no
    ├── Refused               the state does not allow it                      retry: no
    ├── SchemaMismatch        the database needs `dataflow db migrate`         retry: no
    ├── Unreachable           Postgres does not answer                         retry: yes
    ├── NoAccess              Postgres refuses the user, password or database   retry: no
    ├── LeaseLost             this process may not claim any more              retry: after renewal
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


class NoAccess(DataflowError):
    """Postgres answers, and refuses the connection."""

    exit_code = ExitCode.UNREACHABLE


class LeaseLost(DataflowError):
    """The lease of this process has ended: it must not claim until it holds a new one."""

    retryable = True


class NotDelivered(DataflowError):
    """A target does not take a notification; the text says why, without the target's address."""

    retryable = True


class EmbeddedPostgresError(DataflowError):
    """The embedded Postgres can't be created or started."""

    exit_code = ExitCode.UNREACHABLE
