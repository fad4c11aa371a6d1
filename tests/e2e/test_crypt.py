"""`dataflow crypt` as people use it: keys from files, the environment, the terminal; secrets that nobody sees."""

import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.main import get_command

from opendataflow.cli.commands import all_commands
from opendataflow.crypto.sealed import open_sealed
from opendataflow.names import ExitCode
from tests.e2e.conftest import DATAFLOW, Answer

KEY, NEW_KEY, PLAIN = "plugh-7f3a", "xyzzy-91cc", "hunter2 $x \"'flüge"
OLD_TEXT, OLD_KEY, OLD_PLAIN = "gVtMLbZsXFFDanYnA0sK8Z3lpyGkwEfdw9tObfM8U8mz", "plugh", "hello"
SECRETS = (KEY, NEW_KEY, PLAIN, OLD_PLAIN)


def environ(given: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not re.match("PASSKEY|DATAFLOW_", name)}
    return {**own, "DATAFLOW_HOME": "/nowhere", **given}


def crypt(*arguments: str | Path, stdin: str | bytes = "", cwd: Path | None = None, **given: str) -> Answer:
    """Run `dataflow crypt` without a terminal."""
    done = subprocess.run(
        [DATAFLOW, "crypt", *map(str, arguments)],
        env=environ(given),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        start_new_session=True,
        timeout=300,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_refused(answer: Answer, code: ExitCode, words: str) -> None:
    assert answer.code == code, answer
    assert answer.out == ""
    [sentence] = answer.err.splitlines()
    assert re.search(f"^error: .*{words}", sentence), sentence
    assert not [secret for secret in SECRETS if secret in answer.err]


def key_file(folder: Path, content: str = KEY, mode: int = 0o600, name: str = "key") -> Path:
    path = folder / name
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def sealed() -> str:
    """A ciphertext of PLAIN with KEY."""
    answer = crypt("new", stdin=PLAIN, PASSKEY=KEY)
    assert answer.code == 0, answer
    return answer.out.removesuffix("\n")


@dataclass
class Terminal:
    """A person at the terminal of a command: sees what is shown and types."""

    process: subprocess.Popen[bytes]
    own: int
    shown: str = ""
    seen: int = field(default=0, init=False)

    def wait_for(self, words: str) -> None:
        """Read on until the words are shown, after those that were waited for before."""
        while words not in self.shown[self.seen :]:
            read = self._read()
            assert read, f"ended without {words!r}: {self.shown}"
            self.shown += read
        self.seen = self.shown.index(words, self.seen) + len(words)

    def answer(self, prompt: str, typed: str) -> None:
        """Type a line when the prompt has come; by then the echo is off."""
        self.wait_for(prompt)
        os.write(self.own, typed.encode() + b"\n")

    def end(self) -> int:
        """Read the rest; return the exit code."""
        while read := self._read():
            self.shown += read
        return self.process.wait(timeout=300)

    def _read(self) -> str:
        ready, _, _ = select.select([self.own], [], [], 300)
        assert ready, f"nothing more comes: {self.shown}"
        try:
            return os.read(self.own, 4096).decode()
        except OSError:  # Linux's way to report that no process has the terminal any more
            return ""


def terminal(*arguments: str | Path, stdin: Path | None = None, **given: str) -> AbstractContextManager[Terminal]:
    """Run `dataflow crypt` on a terminal; with `stdin` from a file, where one is given."""
    return on_terminal([DATAFLOW, "crypt", *map(str, arguments)], environ(given), stdin=stdin)


@contextmanager
def on_terminal(
    command: Sequence[str | Path], env: Mapping[str, str], *, stdin: Path | None = None, cwd: Path | None = None
) -> Iterator[Terminal]:
    """Run a command on a terminal until its first prompt."""
    own, theirs = pty.openpty()
    # The shell of a new session gets its terminal by opening it.
    script = 'tty=$1 stdin=${2:-$1}; shift 2; exec 3<>"$tty"; exec "$@" <"$stdin" >"$tty" 2>&1 3<&-'
    process = subprocess.Popen(
        ["sh", "-c", script, "sh", os.ttyname(theirs), str(stdin or ""), *command],
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    person = Terminal(process, own)
    try:
        person.wait_for(": ")  # the first prompt: from here on the command alone holds the terminal
        person.seen = 0
        os.close(theirs)
        yield person
    finally:
        process.kill()
        process.wait()
        os.close(own)


# Making and opening --------------------------------------------------------------------------------------


def test_what_new_prints_opens_with_the_passkey_of_the_environment(sealed: str) -> None:
    assert sealed.startswith("df1:")
    assert crypt("open", sealed, PASSKEY=KEY) == Answer(0, PLAIN, "")


def test_open_reads_stdin_without_an_argument_and_adds_no_newline(sealed: str) -> None:
    assert crypt("open", stdin=sealed + "\n", PASSKEY=KEY) == Answer(0, PLAIN, "")


def test_new_takes_all_of_stdin_but_its_last_newline() -> None:
    answer = crypt("new", stdin="one\ntwo\n\n", PASSKEY=KEY)
    assert open_sealed(answer.out, KEY) == "one\ntwo\n"


def test_no_two_ciphertexts_are_the_same(sealed: str) -> None:
    assert crypt("new", stdin=PLAIN, PASSKEY=KEY).out != sealed + "\n"


def test_what_the_old_framework_has_sealed_opens() -> None:
    assert crypt("open", OLD_TEXT, PASSKEY=OLD_KEY) == Answer(0, OLD_PLAIN, "")


def test_the_plaintext_is_utf8_whatever_the_locale_is(sealed: str) -> None:
    assert crypt("open", sealed, PASSKEY=KEY, PYTHONIOENCODING="ascii", LC_ALL="POSIX").out == PLAIN


# Where the passkey comes from ----------------------------------------------------------------------------


@pytest.mark.parametrize("content", [KEY, f"{KEY}\n", f"{KEY}\r\n", f"{KEY}\nsomething else\n"])
def test_a_key_file_has_the_passkey_in_its_first_line(sealed: str, tmp_path: Path, content: str) -> None:
    assert crypt("open", sealed, "--key-file", key_file(tmp_path, content)).out == PLAIN


def test_a_key_file_counts_more_than_the_environment(sealed: str, tmp_path: Path) -> None:
    assert crypt("open", sealed, "--key-file", key_file(tmp_path), PASSKEY="wrong").out == PLAIN


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_key_file_that_is_open_to_others_is_refused_with_the_remedy(sealed: str, tmp_path: Path, mode: int) -> None:
    answer = crypt("open", sealed, "--key-file", key_file(tmp_path, mode=mode, name="the key"))
    assert_refused(answer, ExitCode.USAGE, rf"open to other users \(mode {mode:04o}\): run `chmod 600 '.*/the key'`$")


def test_a_key_file_that_holds_no_passkey_is_refused(sealed: str, tmp_path: Path) -> None:
    (tmp_path / "binary").touch(0o600)
    (tmp_path / "binary").write_bytes(KEY.encode() + b"\xff")
    for path, words in (
        (key_file(tmp_path, "\nx", name="empty"), "empty: the first line is empty"),
        (tmp_path / "binary", "binary: the first line is no UTF-8 text"),
        (tmp_path / "missing", "missing: can't be read: No such file"),
        (tmp_path, "can't be read: Is a directory"),
    ):
        assert_refused(crypt("open", sealed, "--key-file", path), ExitCode.USAGE, words)


def test_an_empty_variable_is_a_mistake_and_no_passkey(sealed: str) -> None:
    assert_refused(crypt("open", sealed, PASSKEY=""), ExitCode.USAGE, "PASSKEY is set, but empty")


def test_without_a_terminal_nobody_is_asked(sealed: str) -> None:
    answer = crypt("open", sealed, stdin=f"{KEY}\n")
    assert_refused(answer, ExitCode.FAILED, "no terminal to ask for the passkey on: set PASSKEY or give --key-file$")


def test_the_passkey_is_asked_for_on_the_terminal_without_echo(sealed: str) -> None:
    with terminal("open", sealed) as person:
        person.answer("passkey: ", KEY)
        assert person.end() == 0
    assert person.shown.splitlines() == ["passkey: ", PLAIN]
    assert person.shown.endswith("\n")


def test_the_terminal_is_asked_also_where_stdin_is_a_file(sealed: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(sealed)
    with terminal("open", stdin=tmp_path / "text") as person:
        person.answer("passkey: ", KEY)
        assert person.end() == 0
    assert PLAIN in person.shown


def test_new_asks_for_what_nobody_sees_twice() -> None:
    with terminal("new") as person:
        for prompt, typed in (("passkey", KEY), ("plaintext", PLAIN)):
            person.answer(f"{prompt}: ", typed)
            person.answer(f"{prompt} once more: ", typed)
        assert person.end() == 0
    assert KEY not in person.shown
    assert PLAIN not in person.shown
    assert open_sealed(person.shown.splitlines()[-1], KEY) == PLAIN


def test_a_slip_at_the_second_time_seals_nothing() -> None:
    with terminal("new") as person:
        person.answer("passkey: ", KEY)
        person.answer("passkey once more: ", NEW_KEY)
        assert person.end() == ExitCode.USAGE
    assert person.shown.splitlines()[-1] == "error: the passkey was not typed the same twice: begin anew"
    assert not [secret for secret in SECRETS if secret in person.shown]


@pytest.mark.parametrize(("typed", "code"), [("\x04", ExitCode.FAILED), ("\n", ExitCode.USAGE)])
def test_typing_nothing_is_no_passkey(sealed: str, typed: str, code: ExitCode) -> None:
    with terminal("open", sealed) as person:
        person.wait_for("passkey: ")
        os.write(person.own, typed.encode())
        assert person.end() == code
    assert person.shown.endswith("error: no passkey was typed\r\n")


# Rotating ------------------------------------------------------------------------------------------------


def test_rotate_seals_every_text_with_the_new_passkey_in_the_same_order(sealed: str) -> None:
    other = crypt("new", stdin="other", PASSKEY=KEY).out.strip()
    for arguments, stdin in (((sealed, other), ""), ((), f"{sealed}\n{other}\n")):
        answer = crypt("rotate", *arguments, stdin=stdin, PASSKEY=KEY, PASSKEY_NEW=NEW_KEY)
        assert [open_sealed(line, NEW_KEY) for line in answer.out.splitlines()] == [PLAIN, "other"]
        assert (answer.code, answer.err) == (0, "")


def test_rotate_takes_both_passkeys_from_files(sealed: str, tmp_path: Path) -> None:
    old, new = key_file(tmp_path), key_file(tmp_path, NEW_KEY, name="new")
    answer = crypt("rotate", sealed, "--key-file", old, "--new-key-file", new, PASSKEY="x", PASSKEY_NEW="x")
    assert open_sealed(answer.out, NEW_KEY) == PLAIN


def test_rotate_asks_for_the_old_passkey_once_and_for_the_new_one_twice(sealed: str) -> None:
    with terminal("rotate", sealed) as person:
        person.answer("passkey: ", KEY)
        person.answer("new passkey: ", NEW_KEY)
        person.answer("new passkey once more: ", NEW_KEY)
        assert person.end() == 0
    assert open_sealed(person.shown.splitlines()[-1], NEW_KEY) == PLAIN


def test_rotate_brings_old_ciphertexts_to_the_new_form() -> None:
    answer = crypt("rotate", OLD_TEXT, PASSKEY=OLD_KEY, PASSKEY_NEW=OLD_KEY)
    assert answer.out.startswith("df1:")
    assert open_sealed(answer.out, OLD_KEY) == OLD_PLAIN


def test_rotate_prints_nothing_where_one_text_does_not_open(sealed: str) -> None:
    for bad, code, words in (
        (OLD_TEXT, ExitCode.FAILED, "does not open: .*"),
        (PLAIN, ExitCode.USAGE, "it is not base64.*"),
        ("", ExitCode.USAGE, "it is not base64.*"),
    ):
        answer = crypt("rotate", stdin=f"{sealed}\n{bad}\n{sealed}\n", PASSKEY=KEY, PASSKEY_NEW=NEW_KEY)
        assert_refused(answer, code, f"ciphertext 2 of 3: .*{words}; nothing was rotated$")


def test_rotate_without_a_text_says_so() -> None:
    assert_refused(crypt("rotate", PASSKEY=KEY, PASSKEY_NEW=NEW_KEY), ExitCode.USAGE, "no ciphertext was given")


# Failures ------------------------------------------------------------------------------------------------


def test_a_wrong_passkey_is_one_sentence_and_exit_code_1(sealed: str) -> None:
    for text in (sealed, OLD_TEXT):
        answer = crypt("open", text, PASSKEY=NEW_KEY)
        assert_refused(answer, ExitCode.FAILED, "does not open: .* or the text is damaged$")


def test_what_is_no_ciphertext_is_not_shown() -> None:
    assert_refused(crypt("open", PLAIN, PASSKEY=KEY), ExitCode.USAGE, "this is no ciphertext")
    assert_refused(crypt("open", stdin=PLAIN, PASSKEY=KEY), ExitCode.USAGE, "this is no ciphertext")


@pytest.mark.parametrize("command", ["new", "open", "rotate"])
def test_bytes_that_are_no_text_are_refused(command: str) -> None:
    answer = crypt(command, stdin=PLAIN.encode() + b"\xff", PASSKEY=KEY, PASSKEY_NEW=NEW_KEY)
    assert_refused(answer, ExitCode.USAGE, "what comes from stdin is no UTF-8 text$")


def test_a_passkey_that_is_no_text_is_refused(sealed: str) -> None:
    assert_refused(crypt("open", sealed, PASSKEY=f"{KEY}\udcff"), ExitCode.USAGE, "the passkey is no UTF-8 text$")


def test_an_empty_plaintext_is_taken_for_a_mistake() -> None:
    assert_refused(crypt("new", stdin="\n", PASSKEY=KEY), ExitCode.USAGE, "the plaintext is empty")


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", PLAIN),
        ("new", KEY, PLAIN),
        ("new", f"--{KEY}"),
        ("new", f"-{KEY}"),
        ("new", f"--passkey={KEY}"),
        ("open", KEY, OLD_TEXT),
        ("open", f"--passkey={KEY}"),
        ("rotate", KEY, OLD_TEXT),
        ("rotate", f"-k{KEY}"),
    ],
)
def test_a_secret_among_the_arguments_is_refused_and_not_shown(arguments: tuple[str, ...]) -> None:
    assert_refused(crypt(*arguments, PASSKEY=OLD_KEY, PASSKEY_NEW=NEW_KEY), ExitCode.USAGE, "")


def test_no_command_can_take_a_passkey_or_a_plaintext_as_an_argument() -> None:
    """Every user of a machine can read the arguments of its processes."""
    commands = getattr(getattr(get_command(all_commands()), "commands", {})["crypt"], "commands", {})
    taken = {name: {parameter.opts[0] for parameter in command.params} for name, command in commands.items()}
    assert taken == {
        "new": {"--key-file"},
        "open": {"texts", "--key-file"},
        "rotate": {"texts", "--key-file", "--new-key-file"},
    }


def test_nothing_is_written_to_the_state_folder(sealed: str, tmp_path: Path) -> None:
    assert crypt("open", sealed, cwd=tmp_path, PASSKEY=KEY, DATAFLOW_HOME=str(tmp_path / "home")).code == 0
    assert list(tmp_path.iterdir()) == []
