"""SIGKILL of the runner and of Postgres at any moment loses nothing and does nothing twice.

Seen at others: a controller that restarts between creating a child and recording it, a result that is lost because
its process was gone before it was seen, a partition that is run twice.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from opendataflow.store.embedded import EmbeddedPostgres
from tests.e2e.conftest import Program, alive
from tests.e2e.jobs import squares
from tests.waiting import wait_until

CHUNKS = 500
KILLS = 8

JOB = squares(
    "{range: {from: 0, to: %d, step: 1}}",
    retry="{limit: 0, infrastructureLimit: 1000, backoff: {initial: 0.05s, max: 0.05s}}",
)

# The lock goes with the process that holds it: whoever finds it taken runs beside a live run of the same chunk.
WORK = """
exec 9>"locks/$dataid"
flock --nonblock 9 || { echo "$dataid" >> overlaps; exit 9; }
sleep 0.15
echo "$DATAFLOW_FENCE" >> "results/$dataid"
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for folder in ("locks", "results"):
        (tmp_path / folder).mkdir()
    (tmp_path / "work.sh").write_text(WORK)
    (tmp_path / "job.yaml").write_text(JOB % CHUNKS)
    return tmp_path / "job.yaml"


def _postmaster(home: Path) -> int | None:
    for folder, _, files in os.walk(home / "postgres"):  # it minds no folders that are renamed meanwhile
        if "postmaster.pid" in files:
            with contextlib.suppress(FileNotFoundError):
                written = Path(folder, "postmaster.pid").read_text().split()
                return int(written[0]) if written else None
    return None


def _kill_postmaster(home: Path) -> None:
    pid = _postmaster(home)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _await_pids(pids: Path, number: int, runner: subprocess.Popen[str]) -> None:
    def there() -> bool:
        assert runner.poll() is None
        return pids.exists() and len(pids.read_text().split()) == number

    wait_until(there, f"{number} runs have begun", every=0.02)


def _await_results(results: Path, more: int, runner: subprocess.Popen[str]) -> None:
    wanted = min(CHUNKS, len(list(results.iterdir())) + more)
    enough = f"there are {wanted} results"
    wait_until(lambda: len(list(results.iterdir())) >= wanted or runner.poll() is not None, enough, 900, every=0.02)


@pytest.mark.timeout(3600)
def test_every_chunk_is_done_once_whatever_is_killed(embedded: Program, job: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    arguments = ("local", "-f", str(job), "--parallelism", "8", "--until-caught-up")

    runner = embedded.start(*arguments)
    for number in range(KILLS):
        if number == 0 or chance.random() < 0.7:  # in the middle of its work; else while it starts
            _await_results(job.parent / "results", 10, runner)
        time.sleep(chance.uniform(0.0, 0.5))
        victim = chance.choice(["runner", "postgres", "both"]) if number else "runner"  # one hits runs for certain
        if victim != "runner":
            _kill_postmaster(embedded.home)
        if victim != "postgres":
            runner.kill()
            runner.communicate()
            runner = embedded.start(*arguments)
        assert runner.poll() is None or runner.returncode == 0, runner.communicate()[0]
    output, _ = runner.communicate(timeout=1800)

    assert runner.returncode == 0, output
    assert not (job.parent / "overlaps").exists(), "two runs of one chunk at once"
    assert embedded.run("db", "verify") == "all is consistent\n"
    with EmbeddedPostgres(embedded.home / "postgres") as dsn, psycopg.connect(dsn) as connection:
        done = connection.execute(
            "SELECT c.data_id, c.fence, array_agg(r.fence) FROM opendataflow.chunk c JOIN opendataflow.run r "
            "ON r.job = 'square' AND r.data_id = c.data_id AND r.state = 'SUCCEEDED' "
            "WHERE c.dataset = 'squares' AND c.status = 'READY' GROUP BY 1, 2"
        ).fetchall()
        lost = connection.execute("SELECT count(*) FROM opendataflow.run WHERE state = 'LOST'").fetchone()
    assert len(done) == CHUNKS
    assert all(succeeded == [fence] for _, fence, succeeded in done), "a chunk was committed twice"
    for data_id, fence, _ in done:
        assert (job.parent / "results" / data_id).read_text().split()[-1] == str(fence), "an older attempt wrote last"
    assert lost is not None
    assert lost[0] > 0, "no kill has hit a run: the test has shown nothing"


def test_the_next_start_finds_a_killed_runners_runs_and_goes_on(embedded: Program, job: Path) -> None:
    report = '{"unfinished": true, "steps": [["read a", "DONE", 4, 0.5], ["one", "RUNNING"], ["write b", "WAITING"]]}'
    (job.parent / "made.json").write_text(report)  # as a pipeline's run does
    copy = 'cp made.json "$(dirname "$DATAFLOW_CONTEXT")/report.json"'
    job.write_text((JOB % 4).replace("sh, work.sh", f"sh, -c, '{copy}; echo $$ >> pids; sleep 600'"))
    runner = embedded.start("local", "-f", str(job), "--parallelism", "4")
    _await_pids(job.parent / "pids", 4, runner)
    runner.kill()
    runner.communicate()
    left = [int(pid) for pid in (job.parent / "pids").read_text().split()]

    job.write_text((JOB % 4).replace("sh, work.sh", "'true'"))
    embedded.run("local", "-f", str(job), "--until-caught-up")

    assert not any(alive(pid) for pid in left)
    runs = json.loads(embedded.run("get", "runs", "square", "-o", "json"))
    assert sorted(run["state"] for run in runs) == ["LOST"] * 4 + ["SUCCEEDED"] * 4
    lost = next(run for run in runs if run["state"] == "LOST")
    assert lost["message"].endswith(f" left from run square-r{lost['run']}, in step one")
    steps = json.loads(embedded.run("describe", "run", str(lost["run"]), "-o", "json"))["steps"]
    assert [(step["name"], step["status"], step["rows"]) for step in steps] == [
        ("read a", "DONE", 4),
        ("one", "FAILED", None),
        ("write b", "SKIPPED", None),
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_drains_and_two_end_the_runs(embedded: Program, job: Path, number: signal.Signals) -> None:
    text = (JOB % 4).replace("sh, work.sh", "sh, -c, 'echo $$ >> pids; sleep 600'")
    text = text.replace("{initial: 0.05s, max: 0.05s}", "{initial: 1h, max: 1h}")  # none is due yet
    job.write_text(text.replace("parallelism: 8", "parallelism: 2"))
    runner = embedded.start("local", "-f", str(job), "--parallelism", "4")
    _await_pids(job.parent / "pids", 2, runner)
    runner.send_signal(number)
    assert runner.stdout is not None
    shown = ""
    while "stopping: runs go on to their end" not in shown:  # two signals in one moment would be one
        line = runner.stdout.readline()
        assert line, shown
        shown += line
    with pytest.raises(subprocess.TimeoutExpired):
        runner.wait(timeout=1.5)  # it waits for the runs
    runner.send_signal(number)
    output, _ = runner.communicate(timeout=300)

    assert runner.returncode == 130, shown + output
    pids = [int(pid) for pid in (job.parent / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)
    jobs = json.loads(embedded.run("get", "jobs", "-o", "json"))
    assert (jobs[0]["running"], jobs[0]["retrying"], jobs[0]["failed"]) == (0, 2, 0)
