"""Encrypted passwords of data sets in runs of `dataflow local`: for the eyes of the runs only."""

import subprocess
from pathlib import Path

import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.names import ExitCode
from tests.e2e.conftest import DATAFLOW, Program
from tests.e2e.jobs import squares
from tests.sql.conftest import Connection
from tests.sql.graph import tasks, value

PASSWORD = 'it\'s "$HOME" & more'  # of nobody


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job whose input has a password; its script writes it down, prints it and looks for the passkey."""
    sealed = seal(PASSWORD, "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    (tmp_path / "job.yaml").write_text(squares('{list: ["1"]}', credentials=f'{{encryptedPassword: "{sealed}"}}'))
    (tmp_path / "work.sh").write_text(
        'printf %s "$numbers_password" > seen; echo "connecting with $numbers_password"; env | grep PASSKEY; true'
    )
    return tmp_path / "job.yaml"


def local(dataflow: Program, file: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the job file until nothing is left to do."""
    return subprocess.run(
        [DATAFLOW, "local", "-f", file, "--until-caught-up", *options],
        env=dataflow.environ | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("form", ["environment", "key file"])
def test_passwords_reach_runs_and_not_the_kept_end_of_their_logs(
    dataflow: Program, db: Connection, file: Path, form: str
) -> None:
    key = file.with_name("key")
    key.write_text("plugh\n")
    key.chmod(0o600)
    done = (
        local(dataflow, file, PASSKEY="plugh")
        if form == "environment"
        else local(dataflow, file, "--key-file", str(key))
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert file.with_name("seen").read_text() == PASSWORD
    assert value(db, "SELECT log_tail FROM opendataflow.run") == "connecting with ***\n"


def test_a_wrong_passkey_costs_no_attempt(dataflow: Program, db: Connection, file: Path) -> None:
    done = local(dataflow, file, PASSKEY="xyzzy")
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith("error: the password of data set numbers can't be opened: ")
    assert tasks(db) == {"square/1": "QUEUED"}


def test_without_a_passkey_it_says_which_password_is_not_set(dataflow: Program, file: Path) -> None:
    done = local(dataflow, file)
    assert done.returncode == ExitCode.OK
    assert "numbers_password is not set: no passkey is given" in done.stderr
    assert file.with_name("seen").read_text() == ""
