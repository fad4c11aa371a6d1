"""Secrets planted at each input of RunJob, and searched for wherever something is kept or can be seen by others."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from tests.e2e.conftest import DATAFLOW, Program, write_properties
from tests.e2e.test_crypt import on_terminal
from tests.e2e.test_runjob import JOB, RUNJOB, script
from tests.sql.conftest import Connection

PASSKEY = "plugh-planted-7f3a"
DATA_PASSWORD = 'it\'s "planted" $HOME `x`\nsecond-planted-line ü'

SNOOP = """
cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' > cmdlines
tr '\\0' '\\n' < /proc/$$/environ > environ
printf %s "$bobin_password" > password
echo "connecting with $bobin_password"
printf 'without an end of line: %s' "$bobin_password" >&2
"""


def ciphertext(password: str) -> str:
    return seal(password, PASSKEY, salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)


@dataclass(frozen=True)
class Planted:
    """A folder with a job, a script that looks around, and `dataflow.properties`."""

    folder: Path
    home: Path
    database_password: str

    @property
    def environ(self) -> dict[str, str]:
        """Without an address of the database: it is in the file."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATAFLOW_", "PASSKEY"))}
        return {**kept, "DATAFLOW_HOME": str(self.home)}

    def run(self, *arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RUNJOB, *arguments, "./loadbob.sh"],
            cwd=self.folder,
            env={**self.environ, **given},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture
def planted(tmp_path: Path, dataflow: Program, db: Connection) -> Planted:
    (tmp_path / "job.yaml").write_text(JOB)
    dataflow.run("apply", "-f", str(tmp_path / "job.yaml"))
    db.execute("UPDATE opendataflow.dataset SET encryptedpass = %s WHERE id = 'bobin'", (ciphertext(DATA_PASSWORD),))
    script(tmp_path, SNOOP)
    dsn = dataflow.dsn or ""
    password = str(conninfo_to_dict(dsn).get("password") or "database-planted-password")
    write_properties(tmp_path, dsn, ciphertext(password))
    return Planted(tmp_path, dataflow.home, password)


def assert_hidden(planted: Planted, text: str, where: str) -> None:
    secrets = (PASSKEY, planted.database_password, *DATA_PASSWORD.splitlines())
    assert not [secret for secret in secrets if secret in text], where


def assert_kept_nowhere(planted: Planted, db: Connection) -> None:
    for table in db.execute("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'opendataflow'").fetchall():
        query = f"SELECT to_jsonb(t)::text AS row FROM opendataflow.{table['name']} t"
        for row in db.execute(query.encode()):
            assert_hidden(planted, row["row"].replace("\\n", "\n").replace('\\"', '"'), table["name"])
    for file in planted.home.rglob("*"):
        if file.is_file():
            assert_hidden(planted, file.read_text(errors="replace"), str(file))


@pytest.mark.parametrize("given", ["environment", "key file"])
def test_passwords_and_passkeys_are_seen_by_nobody(planted: Planted, db: Connection, given: str) -> None:
    key_file = planted.folder / "key"
    key_file.write_text(PASSKEY)
    key_file.chmod(0o600)
    done = planted.run(**({"PASSKEY": PASSKEY} if given == "environment" else {"DATAFLOW_KEY_FILE": str(key_file)}))

    assert done.returncode == 0, done.stderr
    assert (planted.folder / "password").read_text() == DATA_PASSWORD, "the script does not get it"
    seen = (planted.folder / "environ").read_text()
    for secret in (PASSKEY, planted.database_password, "DATAFLOW_KEY_FILE", str(key_file)):
        assert secret not in seen
    assert "RunJob" in (planted.folder / "cmdlines").read_text()
    assert_hidden(planted, (planted.folder / "cmdlines").read_text(), "the list of processes")
    assert PASSKEY not in done.stdout + done.stderr
    assert planted.database_password not in done.stdout + done.stderr
    assert DATA_PASSWORD in done.stdout, "what the script prints is shown as it is"
    assert db.execute("SELECT count(*) AS n FROM opendataflow.run WHERE log_tail LIKE '%***%'").fetchone() == {"n": 1}
    assert_kept_nowhere(planted, db)


def test_a_run_that_is_killed_leaves_no_secret_either(planted: Planted, db: Connection) -> None:
    script(planted.folder, f"{SNOOP}\nkill -9 $PPID")
    done = planted.run(PASSKEY=PASSKEY)
    assert done.returncode == -9
    assert_kept_nowhere(planted, db)


@pytest.mark.parametrize("key", ["xyzzy", "", None])
def test_a_passkey_that_is_wrong_or_missing_stops_before_the_first_database(planted: Planted, key: str | None) -> None:
    done = planted.run(**({} if key is None else {"PASSKEY": key}))
    assert done.returncode in (1, 2)
    [sentence] = done.stderr.splitlines()
    place = f"{planted.folder / 'dataflow.properties'}, line 4: encrypted "
    assert sentence.startswith(f"error: {place}" if key != "" else "error: PASSKEY is set, but empty")
    assert_hidden(planted, sentence, "the sentence")
    assert not (planted.folder / "environ").exists()


def test_the_old_form_opens_the_database_too(planted: Planted) -> None:
    done = planted.run(PASSKEY)
    assert done.returncode == 0, done.stderr
    assert "other users of this machine can read" in done.stderr
    assert PASSKEY not in done.stderr


def test_other_commands_read_the_file_as_well(planted: Planted, dataflow: Program) -> None:
    assert dataflow.dsn is not None
    other = Program(planted.home)
    environ = {**planted.environ, "PASSKEY": PASSKEY}
    command = [str(DATAFLOW), "get", "jobs"]
    done = subprocess.run(command, cwd=planted.folder, env=environ, capture_output=True, text=True, check=False)
    assert "loadbob" in done.stdout, done.stderr
    named = {**environ, "DATAFLOW_PROPERTIES": str(planted.folder / "dataflow.properties")}
    done = subprocess.run(command, cwd="/", env=named, capture_output=True, text=True, check=False)
    assert "loadbob" in done.stdout, done.stderr
    assert not (other.home / "postgres").exists(), "an embedded database was made"


def test_an_address_with_its_password_is_not_shown_when_nobody_answers(planted: Planted, dataflow: Program) -> None:
    dsn = make_conninfo(dataflow.dsn or "", port=1, password=planted.database_password)
    done = planted.run(DATAFLOW_DSN=dsn)
    assert done.returncode == 4
    assert_hidden(planted, done.stderr, "the sentence")


def test_a_person_at_a_terminal_is_asked_once_for_all_that_is_encrypted(planted: Planted, db: Connection) -> None:
    with on_terminal([RUNJOB, "./loadbob.sh"], planted.environ, cwd=planted.folder) as person:
        person.answer("passkey: ", PASSKEY)
        assert person.end() == 0
        assert person.shown.count("passkey: ") == 1
        assert PASSKEY not in person.shown
    assert (planted.folder / "password").read_text() == DATA_PASSWORD
    assert_kept_nowhere(planted, db)


@pytest.mark.parametrize("first_question", ["the database", "a data set"])
def test_ctrl_c_at_the_question_starts_nothing(planted: Planted, dataflow: Program, first_question: str) -> None:
    environ = planted.environ if first_question == "the database" else dataflow.environ
    with on_terminal([RUNJOB, "./loadbob.sh"], environ, cwd=planted.folder) as person:
        person.wait_for("passkey: ")
        os.write(person.own, b"\x03")
        assert person.end() == 130
        assert "Traceback" not in person.shown
    assert not (planted.folder / "environ").exists()


def test_where_nothing_is_encrypted_nobody_is_asked(planted: Planted, db: Connection, dataflow: Program) -> None:
    db.execute("UPDATE opendataflow.dataset SET encryptedpass = NULL")
    script(planted.folder, "echo 'all is fine: '")
    with on_terminal([RUNJOB, "./loadbob.sh"], dataflow.environ, cwd=planted.folder) as person:
        assert person.end() == 0
        assert "passkey" not in person.shown
