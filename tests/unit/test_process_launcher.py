"""The local launcher with real processes: what a run sees, where its output goes, how its end is reported."""

import asyncio
import errno
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest

from opendataflow.engine.ports import Launcher
from opendataflow.errors import Backpressure, Refused
from opendataflow.launch.process import child as child_module
from opendataflow.launch.process.folder import TAIL_BYTES, RunFolder
from opendataflow.launch.process.host import this_host
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.run import Command, Ended, RunOrder
from opendataflow.store.connections.connection import _translate
from tests.pods import claimed

DUMP_ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)))"
Order = Callable[..., RunOrder]


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ProcessLauncher]:
    made = ProcessLauncher(tmp_path / "runs", deadline_grace=5, kill_grace=5)
    yield made
    await made.close()


@pytest.fixture
def order(tmp_path: Path) -> Order:
    def make(*argv: str, run: int = 1, cwd: Path = tmp_path, **rest: dict[str, str]) -> RunOrder:
        command = Command(argv, rest.get("env", {}), cwd, rest.get("files", {}))
        return RunOrder(run, f"etl-r{run}", "etl", "2013-02-01", 1, 7, command)

    return make


async def run(launcher: Launcher[RunOrder], order: RunOrder) -> Ended:
    await launcher.start(order)
    return await launcher.ended()


async def environment_seen(launcher: Launcher[RunOrder], order: RunOrder) -> dict[str, str]:
    seen: dict[str, str] = json.loads((await run(launcher, order)).log_tail)
    return seen


async def test_a_run_reports_by_a_file_beside_its_context(launcher: ProcessLauncher, order: Order) -> None:
    script = 'echo \'{"rows": 3, "mine": 1}\' > "$(dirname "$DATAFLOW_CONTEXT")/report.json"; exit 4'
    files, env = {"context.json": "{}"}, {"DATAFLOW_CONTEXT": "{run_folder}/context.json"}
    reporting = order("sh", "-c", script, files=files, env=env)
    end = await run(launcher, reporting)
    assert (end.exit_code, end.report.metrics) == (4, {"rows": 3, "mine": 1})
    silent = await run(launcher, order("true", run=2))
    assert silent.report.metrics == {}


async def test_no_secret_is_in_what_a_run_reports(tmp_path: Path, order: Order) -> None:
    hide = ProcessLauncher(tmp_path / "runs", redactor=lambda: lambda text: text.replace("s3cret", "***"))
    report = {
        "failure": "no user s3cret",
        "expectations": {"s3cret": {"found": "s3cret"}},
        "steps": [["write s3cret", "FAILED", 1, 1, "s3cret refused", "it is s3cret"]],
    }
    script = 'printf %s "$REPORT" > "$(dirname "$DATAFLOW_CONTEXT")/report.json"; exit 4'
    env = {"DATAFLOW_CONTEXT": "{run_folder}/context.json", "REPORT": json.dumps(report)}
    end = await run(hide, order("sh", "-c", script, files={"context.json": "{}"}, env=env))
    await hide.close()
    assert end.report.steps[0].error == "*** refused"
    assert end.report.steps[0].stdout == "it is ***"
    assert "s3cret" not in repr(end.report)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        'it\'s "quoted" \\ and \\n',
        "two\nlines\n",
        "$HOME $$ $(touch boom) ${X:-y} `touch boom`",
        "äöü 漢字 ā € 🚚 \u0081",
        "* ? [a-z] ~ ! # & ; | < >",
        "\t\r\x01\x7f",
        "{run_folder}",
        "x" * 30_000,
    ],
)
async def test_a_value_arrives_untouched(launcher: ProcessLauncher, order: Order, value: str) -> None:
    script = "import os; print(os.environb[b'VALUE'].hex())"
    end = await run(launcher, order(sys.executable, "-c", script, env={"VALUE": value}))
    assert end.exit_code == 0
    assert bytes.fromhex(end.log_tail) == value.encode()


@pytest.mark.parametrize("argument", ["", "two words", "a'b\"c", "$HOME `x` $(y)", "line\nline", "*", "漢字"])
async def test_an_argument_arrives_untouched(launcher: ProcessLauncher, order: Order, argument: str) -> None:
    end = await run(launcher, order(sys.executable, "-c", "import sys; print(ascii(sys.argv[1]))", argument))
    assert end.log_tail == ascii(argument) + "\n"


@pytest.mark.parametrize("name", ["IFS", "PWD", "PPID", "OPTIND", "SHLVL", "spark.master", "BASH_FUNC_go%%", "0"])
async def test_a_variable_that_a_shell_would_change_or_drop_arrives_too(
    launcher: ProcessLauncher, order: Order, name: str
) -> None:
    value = "() { echo 'a\nb'; }"
    assert (await environment_seen(launcher, order(sys.executable, "-c", DUMP_ENVIRONMENT, env={name: value})))[
        name
    ] == value
    assert not (folder_of(launcher) / child_module.UNSAFE_VARIABLES_FILE).exists()


def log_of(end: Ended) -> str:
    assert end.log_path is not None
    return Path(end.log_path).read_text()


def folder_of(launcher: ProcessLauncher) -> Path:
    return launcher._runs_home / "etl-r1"


async def test_variables_named_as_the_shim_s_own_are_not_replaced(launcher: ProcessLauncher, order: Order) -> None:
    own = {"stat": "mine", "1": "one", "dataflow": "mine too"}
    seen = await environment_seen(launcher, order(sys.executable, "-c", DUMP_ENVIRONMENT, env=own))
    assert {name: seen[name] for name in own} == own


async def test_the_run_sees_the_runner_s_environment_without_its_secrets(
    launcher: ProcessLauncher, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_DSN", "postgresql://secret")
    monkeypatch.setenv("PASSKEY", "secret")
    monkeypatch.setenv("PASSKEY_NEW", "secret")
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    monkeypatch.setenv("COLOUR", "from the runner")
    given = {"COLOUR": "from the command"}
    seen = await environment_seen(launcher, order(sys.executable, "-c", DUMP_ENVIRONMENT, env=given))
    assert "DATAFLOW_DSN" not in seen
    assert "PASSKEY" not in seen
    assert "PASSKEY_NEW" not in seen
    assert seen["JAVA_HOME"] == "/opt/java"
    assert seen["COLOUR"] == "from the command"


async def test_the_run_folder_is_named_in_two_variables_only(launcher: ProcessLauncher, order: Order) -> None:
    env = {
        "DATAFLOW_CONTEXT": "{run_folder}/context.json",
        "SPARK_CONF_DIR": "{run_folder}",
        "OTHER": "{run_folder}",
    }
    seen = await environment_seen(launcher, order(sys.executable, "-c", DUMP_ENVIRONMENT, env=env))
    folder = str(folder_of(launcher))
    assert [seen[name] for name in env] == [f"{folder}/context.json", folder, "{run_folder}"]


async def test_files_lie_in_the_run_folder_for_their_owner_only(launcher: ProcessLauncher, order: Order) -> None:
    script = 'cat "$DATAFLOW_CONTEXT"'
    files = {"context.json": '{"a": "ü$"}', "spark-defaults.conf": "secret"}
    env = {"DATAFLOW_CONTEXT": "{run_folder}/context.json"}
    end = await run(launcher, order("sh", "-c", script, files=files, env=env))
    folder = folder_of(launcher)
    assert end.log_tail == '{"a": "ü$"}'
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in [*files, "output.log"]} == {0o600}


async def test_a_file_can_t_leave_the_run_folder(launcher: ProcessLauncher, order: Order) -> None:
    end = await run(launcher, order("true", files={"../outside": "x"}))
    assert end.exit_code == 126
    assert "'../outside'" in end.log_tail


async def test_the_run_starts_in_its_folder_with_nothing_to_read(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    end = await run(launcher, order("sh", "-c", "pwd; wc -c"))
    assert end.log_tail == f"{tmp_path}\n0\n"


@pytest.mark.parametrize("code", [0, 1, 7, 125, 126, 127, 255])
async def test_an_exit_code_is_reported(launcher: ProcessLauncher, order: Order, code: int) -> None:
    end = await run(launcher, order("sh", "-c", f"exit {code}", run=5))
    assert (end.run, end.exit_code, end.signal, end.lost) == (5, code, None, None)
    assert not end.cancelled
    assert not end.deadline_exceeded


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_signal_is_reported(launcher: ProcessLauncher, order: Order, number: signal.Signals) -> None:
    end = await run(launcher, order("sh", "-c", f"kill -{int(number)} $$"))
    assert (end.exit_code, end.signal, end.lost) == (None, number, None)


async def test_output_and_errors_are_in_one_log_in_order(launcher: ProcessLauncher, order: Order) -> None:
    end = await run(launcher, order("sh", "-c", "echo one; echo two >&2; echo three"))
    assert end.log_tail == "one\ntwo\nthree\n"
    assert log_of(end) == "one\ntwo\nthree\n"


async def test_a_long_log_s_tail_is_its_last_whole_lines(launcher: ProcessLauncher, order: Order) -> None:
    end = await run(launcher, order("seq", "1", "100000"))
    lines = end.log_tail.splitlines()
    assert lines[-1] == "100000"
    assert lines == [str(n) for n in range(int(lines[0]), 100_001)]
    assert TAIL_BYTES - 10 < len(end.log_tail.encode()) <= TAIL_BYTES


@pytest.mark.parametrize(
    ("content", "tail"),
    [
        (b"a\0b\n", "ab\n"),
        (b"caf\xe9\n", "caf\N{REPLACEMENT CHARACTER}\n"),
        (b"x" * TAIL_BYTES, "x" * TAIL_BYTES),
        (b"x" * (TAIL_BYTES + 1), "x" * TAIL_BYTES),
        (b"y" * TAIL_BYTES + b"\n", "y" * (TAIL_BYTES - 1) + "\n"),
        (b"first\n" + b"z" * (TAIL_BYTES - 2) + b"\n", "z" * (TAIL_BYTES - 2) + "\n"),
        ("é".encode() * TAIL_BYTES, "é" * (TAIL_BYTES // 2)),
        (b"\xff" * TAIL_BYTES, "\N{REPLACEMENT CHARACTER}" * (TAIL_BYTES // 3)),
    ],
)
def test_a_tail_is_text_that_postgres_can_hold(tmp_path: Path, content: bytes, tail: str) -> None:
    (tmp_path / "output.log").write_bytes(content)
    assert RunFolder(tmp_path).read_tail() == tail


async def test_a_hundred_runs_at_once_are_each_reported_once(launcher: ProcessLauncher, order: Order) -> None:
    orders = [order("sh", "-c", f"echo {n}; exit {n}", run=n) for n in range(100)]
    await asyncio.gather(*(launcher.start(each) for each in orders))
    ends = [await launcher.ended() for _ in orders]
    assert sorted(end.run for end in ends) == list(range(100))
    assert all(end.exit_code == end.run and end.log_tail == f"{end.run}\n" for end in ends)
    await launcher.close()
    assert launcher._ends.empty()


async def test_a_second_start_with_the_same_name_does_nothing(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    again = order("sh", "-c", "echo started >> marker")
    await asyncio.gather(launcher.start(again), launcher.start(again))
    await launcher.ended()
    await launcher.start(again)
    await launcher.close()
    assert (tmp_path / "marker").read_text() == "started\n"
    assert launcher._ends.empty()


def write_script(path: Path, text: str, mode: int) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_a_script_without_a_first_line_runs_as_in_a_shell(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    write_script(tmp_path / "etl.sh", "echo plain $1\n", 0o755)
    assert (await run(launcher, order("./etl.sh", "x"))).log_tail == "plain x\n"
    awkward = order("./etl.sh", "y", run=2, env={"a.b": "c"})
    assert (await run(launcher, awkward)).log_tail == "plain y\n"


@pytest.mark.parametrize("env", [{}, {"a.b": "awkward"}], ids=["plain", "awkward"])
@pytest.mark.parametrize("program", ["no-such-program-anywhere", "./missing.sh", "./bad-interpreter.sh"])
async def test_a_program_that_is_not_there_ends_with_127_and_its_name(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, program: str, env: dict[str, str]
) -> None:
    write_script(tmp_path / "bad-interpreter.sh", "#!/no/such/shell\n", 0o755)
    end = await run(launcher, order(program, env=env))
    assert (end.exit_code, end.lost) == (127, None)
    assert Path(program).name in end.log_tail


@pytest.mark.parametrize("program", ["./not-executable.sh", "./folder"])
async def test_a_program_that_can_t_be_executed_ends_with_126_and_its_name(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, program: str
) -> None:
    write_script(tmp_path / "not-executable.sh", "true\n", 0o644)
    (tmp_path / "folder").mkdir()
    end = await run(launcher, order(program))
    assert (end.exit_code, end.lost) == (126, None)
    assert program in end.log_tail


async def test_a_start_folder_that_is_not_there_ends_with_127_and_its_name(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    end = await run(launcher, order("true", cwd=tmp_path / "gone"))
    assert (end.exit_code, end.lost) == (127, None)
    assert str(tmp_path / "gone") in end.log_tail
    assert log_of(end) == end.log_tail


@pytest.mark.parametrize("env", [{"A": "x" * 200_000}, {"A": "nul\0"}, {"A=B": "x"}], ids=["long", "nul", "name"])
async def test_an_environment_that_no_process_can_have_ends_with_126(
    launcher: ProcessLauncher, order: Order, env: dict[str, str]
) -> None:
    end = await run(launcher, order("true", env=env))
    assert (end.exit_code, end.lost) == (126, None)
    assert end.log_tail.startswith("dataflow: the run's ")


async def test_a_run_whose_folder_can_t_be_made_is_lost(order: Order, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file in the place of the folder")
    end = await run(ProcessLauncher(tmp_path / "runs"), order("true"))
    assert end.lost is not None
    assert str(tmp_path / "runs") in end.lost


async def test_a_run_that_can_t_record_its_process_does_not_run(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    launcher._ln = "/bin/false"
    end = await run(launcher, order("touch", "marker"))
    assert (end.exit_code, end.lost) == (
        None,
        f"run etl-r1 could not record its process in {tmp_path}/runs/etl-r1; its log says why",
    )
    assert not (tmp_path / "marker").exists()


async def test_release_keeps_the_log_the_context_and_the_record_only(launcher: ProcessLauncher, order: Order) -> None:
    await run(launcher, order("true", files={"context.json": "{}", "spark-defaults.conf": "password"}))
    folder = folder_of(launcher)
    await launcher.release(claimed(1, "etl"))
    assert sorted(os.listdir(folder)) == ["context.json", "output.log", "process"]
    await launcher.release(claimed(1, "etl"))
    await launcher.release(claimed(2, "etl"))


async def test_a_closed_launcher_starts_nothing(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.close()
    with pytest.raises(Refused, match="closed"):
        await launcher.start(order("true"))


async def test_an_error_while_watching_is_raised_by_ended(
    launcher: ProcessLauncher, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(session: int) -> None:
        raise OSError(f"no /proc for {session}")

    monkeypatch.setattr("opendataflow.launch.process.launcher.kill_session", broken)
    await launcher.start(order("true"))
    with pytest.raises(OSError, match="no /proc"):
        await launcher.ended()
    for left in launcher._children.values():
        left.reap()


def test_the_host_is_named_by_boot_and_process_namespace() -> None:
    host = this_host()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host.name == os.uname().nodename
    assert host.boot == f"{boot}/{os.readlink('/proc/self/ns/pid')}"


def test_a_machine_without_proc_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"need Linux with /proc mounted"):
        this_host(tmp_path)


def test_a_foreign_proc_is_refused(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "stat").write_text("999999999 (x) S")
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[1]")
    (tmp_path / "sys" / "kernel" / "random").mkdir(parents=True)
    (tmp_path / "sys" / "kernel" / "random" / "boot_id").write_text("boot\n")
    with pytest.raises(Refused, match="another process id namespace"):
        this_host(tmp_path)


async def test_a_full_disk_is_reported_with_its_path_and_the_run_starts_when_there_is_room(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(tmp_path)
    full = os.statvfs_result((*found[:4], 0, *found[5:]))
    with monkeypatch.context() as patched:
        patched.setattr("os.statvfs", lambda _: full)
        with pytest.raises(Backpressure, match=f"the disk of {tmp_path / 'runs'} is full"):
            await launcher.start(order("true"))
        with pytest.raises(Backpressure):
            await launcher.start(order("true"))
    assert (await run(launcher, order("true"))).exit_code == 0


async def test_a_disk_that_is_full_during_the_start_is_no_failure_of_the_run(
    launcher: ProcessLauncher, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_private", write)
        with pytest.raises(Backpressure, match="is full"):
            await launcher.start(order("true", files={"context.json": "{}"}))
    assert (await run(launcher, order("true", files={"context.json": "{}"}))).exit_code == 0


def test_a_full_disk_of_postgres_is_reported_as_such_and_waited_for() -> None:
    error = _translate(psycopg.errors.DiskFull('could not extend file "base/1/2": No space left on device'), "h:1/d")
    assert str(error).startswith("the disk of Postgres at h:1/d is full: could not extend file")
    assert error.retryable
