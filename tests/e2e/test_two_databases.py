"""Two databases with one DATAFLOW_HOME: each has its own runs, logs and locks, although both number runs from 1."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.names import ExitCode
from tests.conftest import fresh_database
from tests.e2e.conftest import Inside, Program, alive
from tests.e2e.jobs import squares
from tests.e2e.test_runjob import RUNJOB
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import raw, value
from tests.waiting import wait_until

JOB = squares("{list: ['1']}", command="[sh, -c, 'echo written by $OWNER']")

PREVIOUS_LAYOUT = """
import sys
from opendataflow.cli.commands import run
from opendataflow.settings import Settings

Settings.runs_home = lambda settings, identity: settings.all_runs
sys.exit(run(sys.argv[1:]))
"""
"""The program with the run folders of earlier versions: those of all databases in one folder."""


@pytest.fixture
def first(dataflow: Program) -> Program:
    """The program with the first database."""
    return Program(dataflow.home, dataflow.dsn, {"OWNER": "first"})


@pytest.fixture
def second(first: Program, postgres_server: str, template_database: str) -> Iterator[Program]:
    """The program with another database and the same home."""
    with fresh_database(postgres_server, template_database) as dsn:
        with open_connection(dsn) as connection:
            raw(connection, "UPDATE opendataflow.leader SET identity = left(md5('second'), 12)")
        yield Program(first.home, dsn, {"OWNER": "second"})


@pytest.fixture
def both(first: Program, second: Program, tmp_path: Path) -> tuple[Program, Program]:
    """The program with both databases, after the same job has run in each."""
    (tmp_path / "job.yaml").write_text(JOB)
    for program in (first, second):
        program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    return first, second


def states(program: Program) -> list[str]:
    """The states of all runs, the newest first."""
    return [run["state"] for run in json.loads(program.run("get", "runs", "square", "-o", "json"))]


def test_the_engine_runs_the_job_of_each_database_once(both: tuple[Program, Program]) -> None:
    assert [states(program) for program in both] == [["SUCCEEDED"], ["SUCCEEDED"]]


def test_logs_prints_the_output_of_its_own_database(both: tuple[Program, Program]) -> None:
    output = [program.ask("logs", "--run", "1").out for program in both]
    assert output == ["written by first\n", "written by second\n"]


def test_runjob_runs_the_script_of_each_database(first: Program, second: Program, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "square.sh").write_text("#!/bin/sh\necho written by $OWNER\n")
    (tmp_path / "square.sh").chmod(0o755)
    output = []
    for program in (first, second):
        program.run("apply", "-f", str(tmp_path / "job.yaml"))
        done = subprocess.run(
            [RUNJOB, "./square.sh"], cwd=tmp_path, env=program.environ, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (ExitCode.OK, "")
        output.append(done.stdout.splitlines()[1])
    assert output == ["written by first", "written by second"]


def test_clean_deletes_the_logs_of_its_own_database_only(both: tuple[Program, Program], inside: Inside) -> None:
    first, second = both
    assert second.dsn is not None
    with open_connection(second.dsn) as db:
        raw(db, "UPDATE opendataflow.chunk SET run = NULL")
        raw(db, "UPDATE opendataflow.task SET run = NULL")
        # The newest run of a database always stays.
        newer = '{"id": 1000, "fence": 9000000000000000000}'
        copy = f"SELECT (jsonb_populate_record(r, '{newer}')).* FROM opendataflow.run r"
        raw(db, f"INSERT INTO opendataflow.run OVERRIDING SYSTEM VALUE {copy}")
        raw(db, "UPDATE opendataflow.run SET finished_at = now() - interval '1 year' WHERE id < 1000")
        output = inside.ask(second, "history", "clean").out
        assert output.startswith("older than 90d: 1 run, 1 log folder of this machine and 0 events gone")
        assert value(db, "SELECT array_agg(id) FROM opendataflow.run") == [1000]
    assert inside.ask(first, "logs", "square", "1").out == "written by first\n"


def test_a_run_in_the_folder_of_earlier_versions_is_taken_over_read_and_cleaned(
    first: Program, db: Connection, inside: Inside, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        squares("{list: ['1']}", command="[sh, -c, 'echo of before; echo $$ > new; mv new pid; sleep 600']")
    )
    with subprocess.Popen(
        [sys.executable, "-c", PREVIOUS_LAYOUT, "local", "-f", str(file)],
        env=first.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as runner:  # fmt: skip
        wait_until(lambda: runner.poll() is not None or (tmp_path / "pid").exists(), "the run has started")
        pid = (tmp_path / "pid").read_text().strip()
        refused = inside.ask(first, "lost", "1", "--yes")
        assert "the engine of run 1 is alive on this machine" in refused.err
        runner.kill()
    assert value(db, "SELECT runs_home FROM opendataflow.run") == str(first.home / "runs")
    file.write_text(JOB.replace("{limit: 0}", "{limit: 1, backoff: {initial: 0s}}"))
    first.run("local", "-f", str(file), "--until-caught-up")
    assert not alive(pid)
    assert states(first) == ["SUCCEEDED", "LOST"]
    assert inside.ask(first, "logs", "--run", "1").out == "of before\n"
    raw(db, "UPDATE opendataflow.run SET finished_at = now() - interval '1 year' WHERE id = 1")
    assert "1 run, 1 log folder" in inside.ask(first, "history", "clean").out
    assert not (first.home / "runs" / "square-r1").exists()
