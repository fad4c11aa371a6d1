"""The server's processes: starts them, waits for them, stops them; start.lock is held throughout.

Never signals a process that does not work in our data folder, and never ends one by force.
"""

import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.client import HOST, Answer, probe
from opendataflow.store.embedded.files import first_number, private
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.locks import nothing_runs, to_hand_on
from opendataflow.store.embedded.log import complaint, fault, read_from, rotate
from opendataflow.store.embedded.user import ServerUser

SILENCE = 60.0
"""Seconds to wait for processes of an earlier server that hold the data folder and do not answer."""
RECOVERY = 600.0
"""Seconds to wait for a server that says it is starting up."""
STOPPING = 60.0
"""Seconds to wait for the server to stop."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    # Statements carry data, and the log is read by people who ask for help.
    "log_min_error_statement": "panic",
}


def settle(home: Home) -> bool:
    """Wait until the server answers (True) or nothing of it is left (False)."""
    began = heard = time.monotonic()
    while not nothing_runs(home):
        found, now = probe(home), time.monotonic()
        if found in (Answer.OURS, Answer.FULL):
            return True
        if found is Answer.STARTING:
            heard = now
        if now - heard > SILENCE or now - began > RECOVERY:
            raise EmbeddedPostgresError(
                f"The embedded Postgres in {home.path} does not answer on port {home.port()} after "
                f"{now - began:.0f} s, but its processes still hold the folder: wait for them or end "
                f"them, then try again (see {home.log})."
            )
        time.sleep(0.05)
    return False


def start(home: Home, user: ServerUser, binaries: Path, settings: Mapping[str, str]) -> None:
    """Start the server on a whole cluster and return when it answers; nothing of this home runs now."""
    for _ in range(3):
        _clear_pid_of_a_stranger(home, user)
        port = _choose_port(home)
        said_before = _launch(home, user, binaries, {**settings, "port": str(port)})
        if settle(home):
            return
        said = read_from(home.log, said_before)
        if fault(said) and _is_free(port):  # else it was killed, or somebody took its port before it could
            break
    raise EmbeddedPostgresError(
        f"The embedded Postgres in {home.path} can't start: {complaint(said)} (see {home.log})."
    )


def stop(home: Home) -> None:
    """Stop the server in fast mode and wait for its end; one that takes longer goes on stopping."""
    pid = _postmaster(home)
    if pid is None or nothing_runs(home) or not _works_in_data(home, ServerUser(home.data), pid):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    give_up = time.monotonic() + STOPPING
    while not nothing_runs(home) and time.monotonic() < give_up:
        time.sleep(0.02)


def _launch(home: Home, user: ServerUser, binaries: Path, settings: Mapping[str, str]) -> int:
    """Start the postmaster: in its own session, out of reach of Ctrl-C, holding server.lock.

    Returns how long the log was before, in bytes. The shell in between leaves the server to init: as a child
    of this process it would stay a zombie when it dies, and its process id would look alive to the next server.
    """
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    server = [str(binaries / "postgres"), "-D", str(home.data), *arguments]
    rotate(home.log)
    with to_hand_on(home) as lock, open(home.log, "ab", opener=private) as log:
        said_before = log.tell()
        user.run(["/bin/sh", "-c", '"$@" &', "sh", *server], output=log, keep=[lock])
    return said_before


def _clear_pid_of_a_stranger(home: Home, user: ServerUser) -> None:
    """Remove a `postmaster.pid` whose process id now belongs to somebody else; nothing of ours runs.

    Postgres itself removes one whose process is gone, once nothing else uses the shared memory that it names,
    and refuses to start while any process has the id.
    """
    pid = _postmaster(home)
    if pid is None or not _exists(pid):
        return
    if _works_in_data(home, user, pid):
        raise EmbeddedPostgresError(
            f"A Postgres that this program did not start (process {pid}) uses {home.data}: stop it, then try again."
        )
    (home.data / "postmaster.pid").unlink(missing_ok=True)


def _postmaster(home: Home) -> int | None:
    """Return the process id that the last server wrote down: perhaps somebody else's by now."""
    return first_number(home.data / "postmaster.pid")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def _works_in_data(home: Home, user: ServerUser, pid: int) -> bool:
    """Whether the process is a server on our data folder: it lives there, or was started with it."""
    if Path("/proc/self/cwd").exists():
        # As the server's user: root in a container may not read this of others' processes.
        return user.run(["readlink", f"/proc/{pid}/cwd"]).stdout.decode().strip() == str(home.data)
    return f"-D {home.data}" in user.run(["ps", "-o", "command=", "-p", str(pid)]).stdout.decode()


def _choose_port(home: Home) -> int:
    """Return the port of the last start while nobody else has it, else write down a new one."""
    port = home.port()
    if port is None or not _is_free(port):
        with socket.socket() as any_port:
            any_port.bind((HOST, 0))
            port = int(any_port.getsockname()[1])
        home.set_port(port)
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        # As Postgres does it: connections of the last server that only wait to be forgotten don't count.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
        return True
