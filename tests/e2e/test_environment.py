"""What a run really sees, through the whole program: its variables, arguments and files, and what its end becomes."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.names import API_VERSION, ExitCode
from tests.e2e.conftest import Program
from tests.sql.conftest import Connection

PRINT = """
import json, os, sys
with open("seen", "w") as file:
    json.dump({
        "env": {os.fsdecode(k): os.fsdecode(v) for k, v in os.environb.items()},
        "argv": sys.argv[1:],
        "cwd": os.getcwd(),
        "stdin": sys.stdin.read(),
        "context": open(os.environ["DATAFLOW_CONTEXT"]).read(),
    }, file)
"""

UNTOUCHED = {
    "QUOTES": """he wrote "it's", didn't he""",
    "LINES": "one\ntwo\n\nfour\n",
    "HOME_LOOK": "$HOME ${HOME} ~",
    "COMMANDS": "$(id) `id` ; id & | > <",
    "DOLLARS": "$$ $(dataid) $1 $",
    "LETTERS": "flüge 日本 🚀",
    "BACKSLASHES": r"\n \\ \$x \"",
    "BLANKS": "  in front and behind  ",
    "EMPTY": "",
    "STARS": "* ? [a-z] {a,b}",
    "FOLDER": "{run_folder}",
    "IFS": ",",
    "PS1": "# ",
}


PASSWORD = '$(id) "s3cret"'
SEALED = seal(PASSWORD, "hunter2", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)


def documents(command: list[str], **spec: Any) -> str:
    """A job file: flights (in, with all that a place can have) -> delays (out, with nothing)."""
    place = {"kind": "postgres", "hostname": "h1", "database": "d 1", "schemaname": "s$1", "tablename": "t'1"}
    flights = {
        "location": {**place, "username": "u1", "url": "data/flüge", "format": "csv", "options": {"sep": ";"}},
        "credentials": {"encryptedPassword": SEALED},
        "chunkSource": {"dateRange": {"from": "2013-02-01", "to": "2013-03-01", "step": "month"}},
    }
    job = {
        "inputs": ["flights"],
        "outputs": ["delays"],
        "retry": {"limit": 0},
        "runtime": {"script": {"command": command}},
        **spec,
    }
    resources = [("DataSet", "flights", flights), ("DataSet", "delays", {}), ("DataFlowJob", "load", job)]
    return yaml.safe_dump_all(
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": content}
        for kind, name, content in resources
    )


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(dataflow: Program, db: Connection, tmp_path: Path) -> Run:
    """Runs a job file with `dataflow local` and returns the row of its run."""
    (tmp_path / "print.py").write_text(PRINT)

    def run(command: list[str], code: ExitCode = ExitCode.OK, **spec: Any) -> dict[str, Any]:
        (tmp_path / "job.yaml").write_text(documents(command, **spec))
        answer = dataflow.ask("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
        assert answer.code == code, answer
        row = db.execute("SELECT * FROM opendataflow.run ORDER BY id DESC").fetchone()
        assert row is not None
        return row

    return run


@pytest.fixture
def seen(run: Run, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a job that writes down what it sees, and returns that."""

    def seen(*arguments: str, **spec: Any) -> dict[str, Any]:
        row = run([sys.executable, "print.py", *arguments], **spec)
        found: dict[str, Any] = json.loads((tmp_path / "seen").read_text())
        return {**found, "run": row}

    return seen


def test_a_run_sees_exactly_what_is_documented(
    seen: Callable[..., dict[str, Any]], dataflow: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSKEY", "hunter2")
    monkeypatch.setenv("OF_THE_RUNNER", "kept")
    found = seen(env={"MODE": "full"})
    run = found["run"]
    environment = found["env"]
    own = dataflow.environ
    added = {name: value for name, value in environment.items() if own.get(name) != value}
    for of_the_shell in ("_", "OLDPWD", "PWD", "SHLVL", "LC_CTYPE"):
        added.pop(of_the_shell, None)
    assert added == {
        "dataid": "2013-02",
        "jobid": "load",
        "cmd": sys.executable,
        "MODE": "full",
        "flights_datasetid": "flights",
        "flights_itemtype": "IN",
        "flights_hostname": "h1",
        "flights_database": "d 1",
        "flights_schemaname": "s$1",
        "flights_tablename": "t'1",
        "flights_username": "u1",
        "flights_encryptedpass": SEALED,
        "flights_password": PASSWORD,
        "delays_datasetid": "delays",
        "delays_itemtype": "OUT",
        "DATAFLOW_JOB": "load",
        "DATAFLOW_DATA_ID": "2013-02",
        "DATAFLOW_RUN_ID": str(run["id"]),
        "DATAFLOW_ATTEMPT": "1",
        "DATAFLOW_FENCE": str(run["fence"]),
        "DATAFLOW_CONTEXT": f"{run['runs_home']}/load-r{run['id']}/context.json",
    }
    assert environment["OF_THE_RUNNER"] == "kept"
    assert "DATAFLOW_DSN" not in environment
    assert "PASSKEY" not in environment
    assert found["cwd"] == str(tmp_path)
    assert found["stdin"] == ""


def test_the_context_file_reports_the_same_and_more_but_no_password(seen: Callable[..., dict[str, Any]]) -> None:
    found = seen()
    context = json.loads(found["context"])
    nothing = dict.fromkeys(("kind", "hostname", "database", "schemaname", "tablename", "username", "url", "format"))
    assert context == {
        "job": "load",
        "data_id": "2013-02",
        "run_id": found["run"]["id"],
        "attempt": 1,
        "fence": found["run"]["fence"],
        "namespace": None,
        "datasets": {
            "flights": {
                "id": "flights",
                "itemtype": "IN",
                "kind": "postgres",
                "hostname": "h1",
                "database": "d 1",
                "schemaname": "s$1",
                "tablename": "t'1",
                "username": "u1",
                "url": "data/flüge",
                "format": "csv",
                "options": {"sep": ";"},
                "bounds": {"from": "2013-02-01", "to": "2013-03-01"},
            },
            "delays": {"id": "delays", "itemtype": "OUT", **nothing, "options": {}, "bounds": None},
        },
    }
    assert "lmibu" not in found["context"]


def test_values_and_arguments_arrive_untouched(seen: Callable[..., dict[str, Any]]) -> None:
    found = seen(*UNTOUCHED.values(), env=UNTOUCHED)
    assert {name: found["env"][name] for name in UNTOUCHED} == UNTOUCHED
    assert found["argv"] == list(UNTOUCHED.values())


def test_a_shell_script_sees_the_values_untouched_too(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "load.sh"
    script.write_text('#!/bin/sh\nprintf "%s|%s|%s" "$dataid" "$COMMANDS" "$1" > seen\n')
    script.chmod(0o755)
    run(["./load.sh", "$dataid"], env={"COMMANDS": UNTOUCHED["COMMANDS"]})
    assert (tmp_path / "seen").read_text() == f"2013-02|{UNTOUCHED['COMMANDS']}|$dataid"


def test_a_run_starts_in_its_working_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    run([], runtime={"script": {"command": ["sh", "-c", "pwd > seen"], "workingDirectory": "below"}})
    assert (tmp_path / "below" / "seen").read_text() == f"{tmp_path / 'below'}\n"


def test_the_exit_code_is_kept_with_the_last_line_of_the_output(run: Run) -> None:
    row = run(["sh", "-c", "echo no such table >&2; exit 42"], ExitCode.UNFINISHED)
    assert (row["state"], row["exit_code"], row["failure_class"]) == ("FAILED", 42, "Application")
    assert row["message"] == "exit code 42: no such table"
    assert row["log_tail"] == "no such table\n"


def test_a_success_is_kept_with_its_log(run: Run, dataflow: Program) -> None:
    row = run(["sh", "-c", "echo fine"])
    assert (row["state"], row["exit_code"], row["failure_class"]) == ("SUCCEEDED", 0, None)
    assert row["log_tail"] == Path(row["log_path"]).read_text() == "fine\n"
    assert Path(row["log_path"]).is_relative_to(dataflow.home)


UNSTARTABLE: dict[str, tuple[str | None, str]] = {
    "./nowhere.sh": (None, "there is no such program"),
    "no-such-program": (None, "there is no such program in PATH"),
    "./load.sh": ("true", "chmod +x makes it so"),
    "./lines.sh": ("#!/bin/sh\r\ntrue\r\n", "carriage return"),
    "./interpreter.sh": ("#!/no/such/interpreter\n", "its interpreter /no/such/interpreter"),
    "./env.sh": ("#!/usr/bin/env no-such-interpreter\n", "its interpreter no-such-interpreter"),
}
"""Programs that the system can't start: the text of their file, if there is one, and words of the sentence."""


@pytest.mark.parametrize("program", UNSTARTABLE)
def test_a_program_that_the_system_can_not_start_is_named_before_a_chunk_is_claimed(
    dataflow: Program, db: Connection, tmp_path: Path, program: str
) -> None:
    text, words = UNSTARTABLE[program]
    if text is not None:
        (tmp_path / program).write_text(text, newline="")
        (tmp_path / program).chmod(0o644 if program == "./load.sh" else 0o755)
    (tmp_path / "job.yaml").write_text(documents([program]))
    answer = dataflow.ask("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    assert (answer.code, answer.out) == (ExitCode.USAGE, "")
    assert re.fullmatch(rf"error: job load: {re.escape(program)}.*{re.escape(words)}.*\n", answer.err), answer.err
    assert db.execute("SELECT FROM opendataflow.run").fetchall() == []


def test_a_missing_working_directory_is_named_before_a_chunk_is_claimed(dataflow: Program, tmp_path: Path) -> None:
    script = {"command": ["true"], "workingDirectory": "nowhere"}
    (tmp_path / "job.yaml").write_text(documents([], runtime={"script": script}))
    answer = dataflow.ask("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    assert answer.code == ExitCode.USAGE
    assert f"spec.runtime.script.workingDirectory: there is no folder {tmp_path / 'nowhere'}" in answer.err


def test_a_run_past_its_deadline_is_stopped_with_a_class_of_its_own(run: Run) -> None:
    row = run(["sleep", "600"], ExitCode.UNFINISHED, runDeadline="0.3s")
    assert (row["state"], row["failure_class"], row["exit_code"]) == ("FAILED", "DeadlineExceeded", None)
    assert row["message"] == "stopped at its deadline"


def test_a_run_that_is_killed_is_reported_as_killed(run: Run) -> None:
    row = run(["sh", "-c", "kill -9 $$"], ExitCode.UNFINISHED)
    assert (row["state"], row["failure_class"], row["exit_code"]) == ("FAILED", "Application", None)
    assert row["message"].startswith("killed by SIGKILL")


def test_a_retry_sees_that_it_is_one(run: Run, tmp_path: Path) -> None:
    script = 'echo "$DATAFLOW_ATTEMPT $DATAFLOW_FENCE" >> seen; test "$DATAFLOW_ATTEMPT" = 2'
    retry = {"limit": 1, "backoff": {"initial": "0.05s", "max": "0.05s"}}
    row = run(["sh", "-c", script], retry=retry)
    first, second = ((int(word) for word in line.split()) for line in (tmp_path / "seen").read_text().splitlines())
    (first_attempt, first_fence), (second_attempt, second_fence) = first, second
    assert (first_attempt, second_attempt) == (1, 2)
    assert second_fence == row["fence"] > first_fence


def test_the_password_of_the_database_is_in_no_file_of_a_run(run: Run, dataflow: Program) -> None:
    run(["env"])
    files = [file for file in (dataflow.home / "runs").rglob("*") if file.is_file()]
    assert {"output.log", "context.json"} <= {file.name for file in files}
    for file in files:
        assert str(dataflow.dsn) not in file.read_text(errors="replace")
