"""Starts and stops the server, and waits for it. The caller holds start.lock.

It never signals a process that does not use this home's data folder, and never sends SIGKILL.
"""

import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.client import HOST, Answer, exit_reason, fatal_line, probe
from opendataflow.store.embedded.home import Home, first_number, open_private
from opendataflow.store.embedded.locks import inheritable_server_lock, is_stopped
from opendataflow.store.embedded.user import ServerUser

SILENT_SECONDS = 60.0
"""Maximum time to wait for processes of an earlier server that hold the data folder and do not answer."""
RECOVERY_SECONDS = 600.0
"""Maximum time to wait for a server that is starting up."""
STOP_SECONDS = 60.0
"""Maximum time to wait for the server to stop."""
LOG_LIMIT = 16 * 1024 * 1024
"""Maximum size of the log in bytes at a start. A longer one is renamed; one old log is kept."""

SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    # Statements contain data, and users send the log to others when they ask for help.
    "log_min_error_statement": "panic",
}


def wait_until_settled(home: Home) -> bool:
    """Wait until the server answers (return True) or none of its processes is left (return False)."""
    began = heard = time.monotonic()
    while not is_stopped(home):
        found, now = probe(home), time.monotonic()
        if found in (Answer.OURS, Answer.FULL):
            return True
        if found is Answer.STARTING:
            heard = now
        if now - heard > SILENT_SECONDS or now - began > RECOVERY_SECONDS:
            raise EmbeddedPostgresError(
                f"The embedded Postgres in {home.path} does not answer on port {home.port()} after "
                f"{now - began:.0f} s, but its processes still hold the folder: wait for them or end "
                f"them, then try again (see {home.log})."
            )
        time.sleep(0.05)
    return False


def start(home: Home, user: ServerUser, binaries: Path, settings: Mapping[str, str]) -> None:
    """Start the server and return when it answers. The cluster exists, and no server of this home runs."""
    for _ in range(3):
        _remove_stale_pid_file(home, user)
        port = _choose_port(home)
        log_offset = _launch(home, user, binaries, {**settings, "port": str(port)})
        if wait_until_settled(home):
            return
        output = _read_from(home.log, log_offset)
        if fatal_line(output) and _is_free(port):  # else it was killed, or another process has taken the port
            break
    raise EmbeddedPostgresError(
        f"The embedded Postgres in {home.path} can't start: {exit_reason(output)} (see {home.log})."
    )


def stop(home: Home) -> None:
    """Stop the server in fast mode and wait up to STOP_SECONDS. A slower server continues to stop."""
    pid = _postmaster(home)
    if pid is None or is_stopped(home) or not _uses_data_folder(home, ServerUser(home.data), pid):
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_SECONDS
    while not is_stopped(home) and time.monotonic() < deadline:
        time.sleep(0.02)


def _launch(home: Home, user: ServerUser, binaries: Path, settings: Mapping[str, str]) -> int:
    """Start the postmaster in its own session, so that Ctrl-C does not reach it. It inherits server.lock.

    Return the size of the log before the start, in bytes. A shell between makes the server a child of init. As a child
    of this process, a dead server would stay a zombie, and its process id would look alive to the next server.
    """
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    server = [str(binaries / "postgres"), "-D", str(home.data), *arguments]
    _rotate(home.log)
    with inheritable_server_lock(home) as lock, open(home.log, "ab", opener=open_private) as log:
        log_offset = log.tell()
        user.run(["/bin/sh", "-c", '"$@" &', "sh", *server], output=log, keep=[lock])
    return log_offset


def _remove_stale_pid_file(home: Home, user: ServerUser) -> None:
    """Remove a `postmaster.pid` whose process id now belongs to another program. No server of this home runs.

    Postgres itself removes the file if no process has the id and nothing uses the shared memory that the file names.
    It refuses to start while any process has the id.
    """
    pid = _postmaster(home)
    if pid is None or not _exists(pid):
        return
    if _uses_data_folder(home, user, pid):
        raise EmbeddedPostgresError(
            f"A Postgres that this program did not start (process {pid}) uses {home.data}: stop it, then try again."
        )
    (home.data / "postmaster.pid").unlink(missing_ok=True)


def _postmaster(home: Home) -> int | None:
    """Return the process id of the last server, from its file. Another process may have this id now."""
    return first_number(home.data / "postmaster.pid")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user
    return True


def _uses_data_folder(home: Home, user: ServerUser, pid: int) -> bool:
    """Return whether the process is a server on this data folder, by its working directory or its arguments."""
    if Path("/proc/self/cwd").exists():
        # As the server's user: root in a container may not read this link for processes of other users.
        return user.run(["readlink", f"/proc/{pid}/cwd"]).stdout.decode().strip() == str(home.data)
    return f"-D {home.data}" in user.run(["ps", "-o", "command=", "-p", str(pid)]).stdout.decode()


def _choose_port(home: Home) -> int:
    """Return the port of the last start if it is free. Otherwise choose and store a new port."""
    port = home.port()
    if port is None or not _is_free(port):
        with socket.socket() as any_port:
            any_port.bind((HOST, 0))
            port = int(any_port.getsockname()[1])
        home.set_port(port)
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        # Like Postgres: connections of the last server in TIME_WAIT do not block the port.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
        return True


def _rotate(log: Path) -> None:
    """Rename the log if it is longer than LOG_LIMIT."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))


def _read_from(log: Path, byte: int) -> str:
    """Return the text of the log from an offset in bytes."""
    with log.open("rb") as file:
        file.seek(byte)
        return file.read().decode(errors="replace")
