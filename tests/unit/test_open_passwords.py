"""Passwords are opened inside the pod: real ciphertexts, a real shell, a real command behind it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opendataflow.core.kubernetes.pods import SEALED_VARIABLE
from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, Cost, seal
from opendataflow.errors import InvalidInput, Refused
from opendataflow.runtime.open_passwords import open_passwords, script, write

CHEAP = Cost(log2_n=1, r=8, p=1)
HOSTILE = [
    "plain",
    "",
    " ",
    "it's",
    '"quoted"',
    "$HOME $(id) `id` ${x}",
    "line\nbreak\n",
    "back\\slash\\n",
    "!history #comment ~ * ? [a]",
    "\t\r\x01\x7f",
    "größe 密码 🔑",
    "'; rm -rf /; '",
    "x" * 10_000,
]


def sealed(password: str, passkey: str = "key") -> str:
    return seal(password, passkey, salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES, cost=CHEAP)


def environ(passwords: dict[str, str], passkey: str = "key") -> dict[str, str]:
    wanted = {name: {"sealed": sealed(each), "passkey": "PASSKEY_0"} for name, each in passwords.items()}
    return {SEALED_VARIABLE: json.dumps(wanted), "PASSKEY_0": passkey}


def as_seen(folder: Path, *command: str) -> bytes:
    """What a command prints that is started as `main` is, by the shell of this machine."""
    shell = f'. {folder}/env && exec "$@"'
    return subprocess.run(["sh", "-c", shell, "sh", *command], capture_output=True, check=True).stdout


PRINT = "import os, sys; sys.stdout.buffer.write(os.environb[b'bobin_password'])"


@pytest.mark.parametrize("password", HOSTILE)
def test_a_password_arrives_untouched(password: str, tmp_path: Path) -> None:
    write(tmp_path, open_passwords(environ({"bobin_password": password})), Path("/bin/true"))
    assert as_seen(tmp_path, sys.executable, "-c", PRINT) == password.encode()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(password=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_text_arrives_untouched(password: str, tmp_path: Path) -> None:
    (tmp_path / "env").unlink(missing_ok=True)
    (tmp_path / "env").write_text(script({"bobin_password": password}), newline="")
    assert as_seen(tmp_path, "printenv", "bobin_password") == password.encode() + b"\n"


def test_several_passwords_and_the_command_s_own_words_arrive(tmp_path: Path) -> None:
    write(tmp_path, open_passwords(environ({"a_password": "1", "b_password": "2"})), Path("/bin/true"))
    printed = as_seen(tmp_path, "sh", "-c", 'echo "$a_password $b_password $1 $2"', "x", "*", "$HOME")
    assert printed == b"1 2 * $HOME\n"


def test_whoever_the_program_is_it_can_read_them_and_nobody_can_write_them(tmp_path: Path) -> None:
    write(tmp_path, {"a_password": "1"}, Path("/bin/true"))
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o444
    assert (tmp_path / "busybox").stat().st_mode & 0o777 == 0o555
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busybox", "env"]


def test_the_shell_beside_them_works(tmp_path: Path) -> None:
    write(tmp_path, {"a_password": "1"}, Path("/bin/sh"))
    done = subprocess.run([tmp_path / "busybox", "-c", f". {tmp_path}/env; echo $a_password"], capture_output=True)
    assert done.stdout == b"1\n"


def test_a_second_attempt_replaces_the_first(tmp_path: Path) -> None:
    write(tmp_path, {"a_password": "1"}, Path("/bin/true"))
    write(tmp_path, {"a_password": "2"}, Path("/bin/true"))
    assert as_seen(tmp_path, "printenv", "a_password") == b"2\n"


def test_the_line_break_at_the_end_of_a_passkey_s_file_does_not_count() -> None:
    assert open_passwords(environ({"a_password": "1"}, passkey="key\n")) == {"a_password": "1"}


def test_a_wrong_passkey_is_refused_with_the_name_of_the_variable() -> None:
    with pytest.raises(Refused, match=r"^bobin_password can't be opened: the ciphertext does not open"):
        open_passwords(environ({"bobin_password": "secret"}, passkey="another"))


def test_an_empty_passkey_points_to_its_secret() -> None:
    with pytest.raises(InvalidInput, match="look at the Secret that passkeySecretRef names"):
        open_passwords(environ({"bobin_password": "secret"}, passkey=""))


def test_a_zero_byte_can_not_be_in_a_variable() -> None:
    with pytest.raises(Refused, match="it has a zero byte"):
        open_passwords(environ({"bobin_password": "a\0b"}))


@pytest.mark.parametrize("given", [None, "", "[]", "{", '{"a": 1}', '{"a": {"sealed": "x"}}'])
def test_what_the_operator_did_not_write_is_refused(given: str | None) -> None:
    with pytest.raises(InvalidInput, match="is not what the operator writes"):
        open_passwords({} if given is None else {SEALED_VARIABLE: given})


def test_a_name_that_would_be_a_command_is_refused() -> None:
    with pytest.raises(InvalidInput, match="can't be a variable of a shell"):
        script({"a; id": "1"})


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a `busybox`, as the operator's image has one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shutil.copy("/bin/sh", folder / "busybox")
    return folder


def program(folder: Path, tools: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "opendataflow.runtime.open_passwords", str(folder)],
        env={"PATH": str(tools), **own, **variables},
        capture_output=True,
        text=True,
    )


def test_the_program_writes_what_the_command_needs(tmp_path: Path, tools: Path) -> None:
    folder = tmp_path / "dataflow"
    folder.mkdir()
    done = program(folder, tools, environ({"bobin_password": "it's $5"}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert as_seen(folder, "printenv", "bobin_password") == b"it's $5\n"


def test_the_program_fails_with_a_sentence_and_shows_no_secret(tmp_path: Path, tools: Path) -> None:
    done = program(tmp_path, tools, environ({"bobin_password": "s3cret"}, passkey="wr0ng"))
    assert done.returncode == 1
    assert done.stderr.startswith("dataflow: bobin_password can't be opened: ")
    assert done.stderr.count("\n") == 1
    assert "s3cret" not in done.stderr
    assert "wr0ng" not in done.stderr
    assert not (tmp_path / "env").exists()


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path, tools: Path) -> None:
    done = program(tmp_path / "missing", tools, environ({"a_password": "1"}))
    assert done.stderr == "dataflow: the opened passwords can't be written: No such file or directory\n"
