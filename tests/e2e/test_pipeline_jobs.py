"""Pipelines as jobs on one machine: a folder, or a git repository whose branch moves, tested or not; and the program of
a driver's pod, started here."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opendataflow.core.pipelines.pipeline_order import MODULE
from opendataflow.names import PIPELINE_FILE, REPORT_FILE, SPARK_FILE, ExitCode
from tests.e2e.conftest import Program
from tests.share import in_share
from tests.sql.conftest import Connection
from tests.sql.graph import value

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
BROKEN = '{"carrier": "UA", "flights": 1, "late": 0, "mean_delay": -3.0}'


class Repository:
    """A git repository with the example in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("output", "__pycache__"))
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def git(self, *words: str) -> str:
        """Run git, and return what it prints."""
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
        argv = ["git", *who, "-C", str(self.folder), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        """Commit all that is there; return the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=work")
        return self.git("rev-parse", "HEAD")

    def edit(self, file: str, before: str, after: str) -> str:
        """Change a text in a file, and commit it."""
        path = self.folder / file
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))
        return self.commit()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "origin")


def file(folder: Path, url: str, *days: str, **more: Any) -> str:
    """Write a job file; return its name."""
    pipeline = {"project": {"git": {"url": url, "ref": "main"}}, "pipeline": "delays", **more}
    folder.mkdir(exist_ok=True)
    path = folder / "job.yaml"
    documents: list[dict[str, Any]] = [
        {"kind": "DataSet", "metadata": {"name": "flights"}, "spec": {"chunkSource": {"list": list(days)}}},
        {"kind": "DataSet", "metadata": {"name": "delays"}},
        {
            "kind": "DataFlowJob",
            "metadata": {"name": "delays"},
            "spec": {
                "inputs": ["flights"],
                "outputs": ["delays"],
                "retry": {"limit": 0},
                "runtime": {"pipeline": pipeline},
            },
        },
    ]
    path.write_text("\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents))
    return str(path)


def runs(dataflow: Program) -> list[dict[str, Any]]:
    """All runs, the first one first."""
    found: list[dict[str, Any]] = json.loads(dataflow.run("get", "runs", "delays", "-o", "json"))
    return found[::-1]


def known(report: dict[str, Any]) -> dict[str, Any]:
    """What the tests can know of a report beforehand."""
    unknown = ("bytes", "checksum", "steps", "tests", "looks", "preflight")
    return {name: value for name, value in report.items() if name not in unknown}


def test_the_example_runs_its_pipeline_for_each_chunk_and_leaves_no_temporary_files(
    dataflow: Program, db: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("output"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"{os.environ['SPARK_SUBMIT_OPTS']} -Djava.io.tmpdir={temporary}")
    dataflow.run("local", "-f", str(folder / "job.yaml"), "--until-caught-up")
    assert list(temporary.iterdir()) == []
    written = sorted(path.name for path in (folder / "output" / "delays").iterdir() if not path.name.startswith("."))
    assert written == ["day=2013-01-01", "day=2013-01-02"]
    assert [known(run["metrics"]) for run in runs(dataflow)] == [{"rows": 2, "rowsIn": 4}, {"rows": 2, "rowsIn": 2}]
    assert value(db, "SELECT sum(rows)::int FROM opendataflow.chunk WHERE dataset = 'delays'") == 4
    answers = dataflow.run("inspect", "delays", "2013-01-01")
    assert "Is it where it is expected? Yes.\n" in answers
    assert f": has written 2 rows to {folder}/output/delays/day=2013-01-01\n" in answers
    assert ": has read 4 rows from " in answers
    marker = json.loads((folder / "output/delays/day=2013-01-01/_opendataflow.json").read_text())
    assert marker["owner"] == value(db, "SELECT opendataflow.leader_identity()")


def test_each_run_takes_the_commit_that_its_branch_is_at_then_and_reports_it(
    dataflow: Program, repository: Repository, tmp_path: Path
) -> None:
    first = repository.git("rev-parse", "HEAD")
    job = file(tmp_path / "jobs", f"file://{repository.folder}", "2013-01-01")
    dataflow.run("local", "-f", job, "--until-caught-up")
    second = repository.edit("pipelines/delays/arrived.py", 'where("delay IS NOT NULL")', 'where("delay > 30")')
    # its unit test fails now, which nobody has asked for
    file(tmp_path / "jobs", f"file://{repository.folder}", "2013-01-01", "2013-01-02")
    dataflow.run("local", "-f", job, "--until-caught-up")
    assert [run["metrics"]["commit"] for run in runs(dataflow)] == [first, second]
    assert [run["metrics"]["rows"] for run in runs(dataflow)] == [2, 1]
    results = tmp_path / "jobs" / "output" / "delays"
    assert {path.name for path in results.glob("day=*")} == {"day=2013-01-01", "day=2013-01-02"}
    assert not list((dataflow.home / "projects").glob("*/*/.git"))
    assert second in dataflow.run("describe", "run", str(runs(dataflow)[1]["run"]))


@in_share(1)
def test_a_commit_whose_tests_fail_is_not_used_and_the_next_one_is(
    dataflow: Program, repository: Repository, tmp_path: Path, db: Connection
) -> None:
    broken = repository.edit("pipelines/delays/by_carrier.py", BROKEN, BROKEN.replace("-3.0", "4.0"))
    job = file(tmp_path / "jobs", str(repository.folder), "2013-01-01", requireTests=True)
    shown = dataflow.run("local", "-f", job, "--until-caught-up", code=ExitCode.UNFINISHED)
    assert "GIVEN_BACK" in shown
    (failed,) = runs(dataflow)
    where = "pipelines/delays/by_carrier.py, line 19: what run() returns is not expected_output"
    sentence = f"the tests of pipeline delays fail at commit {broken[:12]}: {where}"
    assert (failed["state"], failed["failure_class"], failed["message"]) == ("GIVEN_BACK", "NotStarted", sentence)
    assert value(db, "SELECT attempts FROM opendataflow.task") == 0  # it costs the chunk no retry
    assert failed["metrics"]["tests"] | {"subject": ""} == {"subject": "", "commit": broken, "passed": False}
    assert sentence in dataflow.run("status", "delays")
    assert sentence in dataflow.run("why", "delays", "2013-01-01")
    assert not (tmp_path / "jobs" / "output").exists()
    fixed = repository.edit("pipelines/delays/by_carrier.py", BROKEN.replace("-3.0", "4.0"), BROKEN)
    dataflow.run("local", "-f", job, "--until-caught-up")
    assert known(runs(dataflow)[1]["metrics"]) == {"rows": 2, "rowsIn": 4, "commit": fixed}
    assert value(db, "SELECT passed FROM opendataflow.gate") == fixed


@in_share(1)
def test_each_commit_is_tested_once_and_where_it_fails_the_last_good_one_is_used(
    dataflow: Program, repository: Repository, tmp_path: Path
) -> None:
    good = repository.git("rev-parse", "HEAD")
    folder, url = tmp_path / "jobs", f"file://{repository.folder}"
    job = file(folder, url, "2013-01-01", "2013-01-02", requireTests=True)
    dataflow.run("local", "-f", job, "--until-caught-up")
    broken = repository.edit("pipelines/delays/by_carrier.py", BROKEN, BROKEN.replace("-3.0", "4.0"))
    file(folder, url, "2013-01-01", "2013-01-02", "2013-01-03", requireTests=True)
    dataflow.run("local", "-f", job, "--until-caught-up")
    tested = [(run["state"], run["metrics"]["commit"], "tests" in run["metrics"]) for run in runs(dataflow)]
    assert tested == [
        ("SUCCEEDED", good, True),
        ("SUCCEEDED", good, False),
        ("GIVEN_BACK", broken, True),
        ("SUCCEEDED", good, False),
    ]
    status = dataflow.run("status", "delays")
    assert f"runs go on at commit {good[:12]}, whose tests pass" in status


def test_what_is_wrong_with_a_repository_is_a_sentence_of_the_run(
    dataflow: Program, repository: Repository, tmp_path: Path
) -> None:
    repository.git("branch", "--move", "main", "trunk")
    job = file(tmp_path / "jobs", str(repository.folder), "2013-01-01")
    dataflow.run("local", "-f", job, "--until-caught-up", code=ExitCode.UNFINISHED)
    (failed,) = runs(dataflow)
    assert failed["message"] == (
        f"exit code 1: {repository.folder} has no branch or tag main (known: HEAD, trunk); look at ref (a commit is "
        "written with all its 40 digits)"
    )


BY_DAY = """\
def run(df):
    day = str(df.first()["day"])
    print("the day is", day)
    if day == "2013-01-02":
        raise KeyError("not on this day")
    return df
"""


@in_share(2)
def test_what_has_failed_is_reported_with_its_step_and_what_was_expected(dataflow: Program, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("output"))
    (folder / "pipelines" / "delays" / "arrived.py").write_text(BY_DAY)
    with (folder / "project.yml").open("a") as project:
        project.write("\n    expectations: [{name: many, sql: count(*) > 100}, {notNull: [carrier]}]\n")
    job = (folder / "job.yaml").read_text().replace("requireTests: true", "requireTests: false")
    (folder / "job.yaml").write_text(job.replace("  runtime:", "  retry: {limit: 0}\n  runtime:"))
    dataflow.run("local", "-f", str(folder / "job.yaml"), "--until-caught-up", code=ExitCode.UNFINISHED)

    second, first = json.loads(dataflow.run("pipeline", "history", "delays", "-o", "json"))
    assert [(step["name"], step["status"]) for step in second["steps"]] == [
        ("read flights", "DONE"),
        ("arrived", "FAILED"),
        ("by_carrier", "SKIPPED"),
        ("write delays", "SKIPPED"),
    ]
    assert second["steps"][1]["stdout"] == "the day is 2013-01-02\n"
    assert "KeyError: 'not on this day'" in second["steps"][1]["error"]
    assert (first["failure_class"], first["steps"][3]["status"]) == ("ExpectationFailed", "FAILED")

    shown = dataflow.run("pipeline", "history", "--data-id", "2013-01-02")
    assert "arrived printed:\n    the day is 2013-01-02\n" in shown
    log = dataflow.run("logs", "delays", "2013-01-02", "--step", "arrived").splitlines()
    assert log[:2] == ["step 2/4 arrived: begins", "    the day is 2013-01-02"]
    assert log[2].startswith("step 2/4 arrived: FAILED after ")
    answers = dataflow.run("inspect", "delays", "2013-01-01")
    assert "Is it validated? No: an expectation does not hold.\n" in answers
    assert "    many: does not hold: it is false\n    not null: carrier: holds: none\n" in answers
    assert "many: does not hold" in dataflow.run("describe", "chunk", "delays", "2013-01-01")
    assert not (folder / "output").exists() or not list((folder / "output" / "delays").glob("day=*"))


class Driver:
    """What a driver's pod has: its orders beside the context, and the example as a ConfigMap lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = folder / "mounted"
        self.mounted.mkdir()
        for file in (EXAMPLE / "project.yml", *EXAMPLE.glob("pipelines/delays/*.py"), *EXAMPLE.glob("sources/*")):
            shutil.copy(file, self.mounted)
        settings = {"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.log.level": "WARN"}
        spark = {"module": MODULE, "settings": settings, "executor": None, "patience": 60.0}
        (folder / SPARK_FILE).write_text(json.dumps(spark))
        (folder / "context.json").write_text(json.dumps({"datasets": {}}))
        order = {
            "pipeline": "delays",
            "requireTests": True,
            "tests": None,
            "files": str(self.mounted),
            "output": str(folder),
            "preflight": True,
        }
        (folder / PIPELINE_FILE).write_text(json.dumps(order))

    def run(self) -> tuple[int, dict[str, Any], str]:
        """Run the chunk of a day; return the exit code, the report and the log."""
        pod = {"DATAFLOW_CONTEXT": str(self.folder / "context.json"), "DATAFLOW_POD_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-m", "opendataflow.spark.driver"],
            env={**os.environ, **pod, "DATAFLOW_DATA_ID": "2013-01-01"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, json.loads((self.folder / REPORT_FILE).read_text()), done.stdout


def test_the_driver_of_a_pod_runs_a_pipeline_out_of_a_config_map(tmp_path: Path) -> None:
    code, report, log = Driver(tmp_path).run()
    assert (code, known(report)) == (0, {"rows": 2, "rowsIn": 4}), log
    assert [path.name for path in (tmp_path / "output" / "delays").glob("day=*")] == ["day=2013-01-01"]


def test_the_driver_of_a_pod_that_does_not_find_its_data_reports_that_it_has_not_started(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    for file in driver.mounted.glob("*.csv"):
        file.unlink()
    code, report, log = driver.run()
    assert (code, report["preflight"], report["looks"][0]["found"]) == (1, "job", "no"), log
    assert report["failure"].startswith("project.yml, line ")
    assert not (tmp_path / "output").exists()


def test_the_driver_of_a_pod_fails_with_its_step(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    step = driver.mounted / "arrived.py"
    step.write_text(
        step.read_text().replace('expected_output = [{"carrier": "AA"', 'expected_output = [{"carrier": "X"')
    )
    code, report, log = driver.run()
    sentence = (
        "the tests of pipeline delays fail: pipelines/delays/arrived.py, line 14: what run() returns is not "
        "expected_output"
    )
    assert (code, known(report)) == (1, {"failure": sentence}), log
    assert log.rstrip().splitlines()[-1] == sentence
    assert not (tmp_path / "output").exists()
