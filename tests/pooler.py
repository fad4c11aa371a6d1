"""A real PgBouncer between the program and Postgres. It hands the server's connections round, so that two statements of
one client seldom meet the same one: what is kept in a session is missed at once."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.kube.cluster.control_plane import free_port
from tests.kube.cluster.providers import Unavailable
from tests.left_out import left_out
from tests.waiting import wait_until

WITHOUT_POOLER = "no PgBouncer on this machine"
CONNECTIONS = 4


@contextmanager
def pooler(dsn: str, mode: str, folder: Path) -> Iterator[str]:
    """Start PgBouncer in front of the database at `dsn`; yield the address of the same database through it.

    `mode`: session or transaction. `folder`: which other users can pass through.
    """
    with left_out(WITHOUT_POOLER, "DATAFLOW_REQUIRE_POOLER"):
        program = _program()
    port, to = free_port(), conninfo_to_dict(dsn)
    users = folder / "users.txt"
    users.write_text(f'"{to["user"]}" "{to["password"]}"\n')
    config = folder / "pgbouncer.ini"
    config.write_text(f"""
[databases]
* = host={to["host"]} port={to["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = {mode}
default_pool_size = {CONNECTIONS if mode == "transaction" else 50}
server_round_robin = 1
""")
    for path in (users, config):
        path.chmod(0o644)
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    with (folder / "pgbouncer.log").open("w") as log:
        process = subprocess.Popen([program, "-q", *user, str(config)], stdout=log, stderr=subprocess.STDOUT)
    through = make_conninfo(dsn, host="127.0.0.1", port=port)
    try:
        wait_until(lambda: answers(through), f"PgBouncer answers; its log is {folder / 'pgbouncer.log'}")
        yield through
    finally:
        process.kill()
        process.wait()


def _program() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise Unavailable("install the package pgbouncer")
    return found


def answers(dsn: str) -> bool:
    """Return whether a connection can be opened."""
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
