"""Postgres as companies run it: passwords that change, roles with few rights, several servers, and TLS.

Seen at others: a scheduler that has to be restarted after each rotation of a password.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.errors import NoAccess, Unreachable
from opendataflow.names import ExitCode
from opendataflow.opening.database import open_store
from opendataflow.settings import Settings
from opendataflow.store.connections import passfile
from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.store import Store
from tests.e2e.conftest import Program
from tests.e2e.jobs import squares
from tests.kube.cluster.certificates import Authority
from tests.pooler import answers
from tests.sql.conftest import Connection
from tests.sql.graph import value
from tests.waiting import wait_until


@pytest.fixture
def role(db: Connection) -> Iterator[str]:
    """A role that tests change: roles belong to all databases of a server."""
    name = f"of_a_test_{os.getpid()}"
    db.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'first'")
    yield name
    db.execute(f"DROP OWNED BY {name}")
    db.execute(f"DROP ROLE {name}")


async def test_a_password_that_changes_while_the_program_runs_is_read_from_its_file(
    db: Connection, dsn: str, role: str, tmp_path: Path
) -> None:
    file = tmp_path / "dsn"
    file.write_text(make_conninfo(dsn, user=role, password="first") + "\n")
    async with open_store(Settings(None, tmp_path, dsn_file=file), size=2) as store:
        assert await store.row("SELECT current_user AS name") == {"name": role}
        db.execute(f"ALTER ROLE {role} PASSWORD 'second'")
        with pytest.raises(NoAccess):
            await until_answered(store, lambda: cut(db, role))
        file.write_text(make_conninfo(dsn, user=role, password="second"))
        await until_answered(store, lambda: True)


def cut(db: Connection, role: str) -> bool:
    """End all sessions of a role, also one that has just begun."""
    db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (role,))
    return False


async def until_answered(store: Store, enough: Callable[[], bool]) -> None:
    """Ask until Postgres answers and that is enough."""
    while True:
        try:
            await store.row("SELECT 1 AS one")
        except NoAccess:
            raise
        except Unreachable:  # a connection that was open is reported first
            continue
        if enough():
            return


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, ExitCode.UNREACHABLE, "with the address of the database"),
        ("", ExitCode.USAGE, "is one line with the address of the database"),
        ("postgresql://h/d\npostgresql://h/e", ExitCode.USAGE, "is one line with the address of the database"),
    ],
)
def test_a_file_without_an_address_is_named(tmp_path: Path, content: str | None, code: ExitCode, words: str) -> None:
    file = tmp_path / "dsn"
    if content is not None:
        file.write_text(content)
    output = Program(tmp_path, None, {"DATAFLOW_DSN_FILE": str(file)}).run("status", code=code)
    assert f"{file}" in output
    assert words in output


def test_two_addresses_are_refused(tmp_path: Path, dsn: str) -> None:
    output = Program(tmp_path, dsn, {"DATAFLOW_DSN_FILE": "/x"}).run("status", code=ExitCode.USAGE)
    assert "both set" in output


def test_a_program_with_its_address_in_a_file_does_everything_and_its_runs_do_not_see_it(
    dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "dsn").write_text(dsn)
    (tmp_path / "job.yaml").write_text(
        squares('{list: ["1", "2"]}', command='[sh, -c, "test -z \\"$DATAFLOW_DSN_FILE$DATAFLOW_DSN\\""]')
    )
    program = Program(tmp_path, None, {"DATAFLOW_DSN_FILE": str(tmp_path / "dsn")})
    program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    assert "2 of 2 done" in program.run("status")
    assert str(conninfo_to_dict(dsn)["dbname"]) in program.run("db", "status")


# Passfiles -----------------------------------------------------------------------------------------------------------


def test_a_passfile_on_a_volume_of_a_secret_is_used_although_its_group_may_read_it(dsn: str, tmp_path: Path) -> None:
    """As the kubelet mounts it: read only, and readable by others."""
    parts = conninfo_to_dict(dsn)
    folder = tmp_path / "secret"
    folder.mkdir()
    file = folder / "pgpass"
    file.write_text(f"{parts['host']}:{parts['port']}:*:{parts['user']}:{parts['password']}\n")
    file.chmod(0o444)
    without = make_conninfo(dsn, password="", passfile=str(file))
    environ = {**Program(tmp_path, without).environ}
    command = [str(Path(sys.executable).parent / "dataflow"), "db", "status"]
    if os.getuid() == 0:  # who may change every file, except on a read-only mount
        script = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && exec {' '.join(command)}"
        command = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the one of this program" in done.stdout or str(parts["dbname"]) in done.stdout


def test_the_passfile_of_a_person_is_left_to_libpq(tmp_path: Path) -> None:
    file = tmp_path / "pgpass"
    file.write_text("*:*:*:*:hush\n")
    file.chmod(0o644)
    dsn = f"host=h passfile={file}"
    assert passfile.with_readable_passfile(dsn) == dsn


# Servers -------------------------------------------------------------------------------------------------------------


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server besides that of the tests."""
    embedded = EmbeddedPostgres(folder, {"fsync": "off"})
    try:
        yield embedded.join()
    finally:
        embedded.leave()


async def test_of_several_hosts_the_one_that_can_be_written_is_used(open_folder: Path, tmp_path: Path) -> None:
    with server(open_folder / "standby") as standby, server(open_folder / "primary") as primary:
        with psycopg.connect(standby, autocommit=True) as admin:
            admin.execute("ALTER DATABASE dataflow SET default_transaction_read_only = on")
        both = [conninfo_to_dict(one) for one in (standby, primary)]
        file = tmp_path / "pgpass"
        file.write_text("".join(f"{one['host']}:{one['port']}:*:*:{one['password']}\n" for one in both))
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
        hosts, ports = (",".join(str(one[key]) for one in both) for key in ("host", "port"))
        address = f"postgresql:///dataflow?host={hosts}&port={ports}&user=dataflow&passfile={file}"
        program = Program(tmp_path, f"{address}&target_session_attrs=read-write")
        program.run("db", "migrate")
        async with await connect(f"{address}&target_session_attrs=read-write") as connection:
            assert connection.info.port == int(str(both[1]["port"]))
        assert f"{ports}/dataflow" in program.run("db", "status")
        assert "is read-only" in Program(tmp_path, address).run("db", "migrate", code=ExitCode.UNREACHABLE)


@pytest.fixture
def authority(db: Connection, open_folder: Path) -> Iterator[Path]:
    """Let the server of the tests speak TLS as db.example; yield the certificate of the authority."""
    if value(db, "SHOW ssl_library") == "":
        pytest.skip("this build of Postgres has no TLS; `.ci/on-postgres-15` runs the test on one that has it")
    made = Authority(open_folder / "pki")
    made.issue("server", "server", hosts=["db.example"])
    made.folder.chmod(0o711)
    owner = Path(value(db, "SHOW data_directory")).stat()
    for kind in ("cert", "key"):
        path = made.folder / f"server.{kind.replace('cert', 'crt')}"
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
        db.execute(f"ALTER SYSTEM SET ssl_{kind}_file = '{path}'")
    db.execute("ALTER SYSTEM SET ssl = on")
    db.execute("SELECT pg_reload_conf()")
    yield made.folder / "ca.crt"
    for name in ("ssl", "ssl_cert_file", "ssl_key_file"):
        db.execute(f"ALTER SYSTEM RESET {name}")
    db.execute("SELECT pg_reload_conf()")


def test_a_server_is_known_by_its_certificate(authority: Path, dsn: str, tmp_path: Path) -> None:
    trusted = make_conninfo(
        dsn, host="db.example", hostaddr="127.0.0.1", sslmode="verify-full", sslrootcert=str(authority)
    )
    wait_until(lambda: answers(trusted), "the server speaks TLS")
    assert str(conninfo_to_dict(dsn)["dbname"]) in Program(tmp_path, trusted).run("db", "status")
    other = make_conninfo(trusted, host="other.example")
    output = Program(tmp_path, other).run("db", "status", code=ExitCode.UNREACHABLE)
    assert 'server certificate for "db.example" does not match host name "other.example"' in output
