"""Passfiles of libpq on volumes of Secrets. This module never writes a password to a disk.

libpq ignores a passfile that other users may read. On a volume of a Secret every file belongs to root, and the pod
reads it as a member of a group, so libpq would ignore each of them.
"""

import os
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_OTHERS = 0o077
_copies: dict[bytes, int] = {}
"""Content -> descriptor of its copy. A copy stays open: libpq reads it later, whenever a connection is opened."""


def with_readable_passfile(dsn: str) -> str:
    """Return the DSN with a private copy of its passfile (or PGPASSFILE), if libpq would ignore the file itself.

    The copy is in memory. A file that this process may change is left alone: there, libpq's rule protects a person.
    """
    if "passfile" not in dsn and "PGPASSFILE" not in os.environ:
        return dsn
    path = str(conninfo_to_dict(dsn).get("passfile") or os.environ.get("PGPASSFILE") or "")
    try:
        ignored = bool(os.stat(path).st_mode & _OTHERS) and not os.access(path, os.W_OK)
        content = Path(path).read_bytes() if ignored else b""
    except OSError:  # libpq uses no password then
        return dsn
    return make_conninfo(dsn, passfile=_copy(content)) if ignored else dsn


def _copy(content: bytes) -> str:
    """Return the path of a copy that only this process can read."""
    if content not in _copies:
        descriptor = os.memfd_create("passfile", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, content)
        _copies[content] = descriptor
    return f"/proc/self/fd/{_copies[content]}"
