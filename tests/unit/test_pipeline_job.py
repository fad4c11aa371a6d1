"""The program of a pipeline's run without Spark: its order, project, destination and report.

With Spark: tests/e2e/test_pipeline_jobs.py.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opendataflow.core.chunks.chunk_parts import Chunk
from opendataflow.core.databases.attempts import Result
from opendataflow.core.pipelines.pipeline_order import (
    FilesProject,
    FolderProject,
    GitProject,
    GitRef,
    LocalFacts,
    PipelineOrder,
    local_order,
    parse_order,
    pod_order,
)
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import read_report
from opendataflow.core.runs.outcome import judge
from opendataflow.core.text.project_tests import subject_of
from opendataflow.errors import InvalidInput
from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.projects.project import parse_project
from opendataflow.model.records.run import Ended, Report
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime
from opendataflow.names import PIPELINE_FILE, ExitCode, OutcomeClass, StepStatus
from opendataflow.spark.pipeline import job
from opendataflow.spark.pipeline.project import reporting
from opendataflow.spark.pipeline.project.fetching import commit_folder
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline
from opendataflow.spark.pipeline.testing import test_gate

PROJECT = """\
version: 2
name: x
pipelines:
  - slug: a
    sources: [s]
    transformations: [t]
    destination: {destination}
"""


def resolved(destination: str = "d", text: str = PROJECT) -> ResolvedPipeline:
    file = parse_project(text.replace("{destination}", destination), "project.yml")
    return OpenProject(Path(), file).resolve("a")


@pytest.mark.parametrize(
    ("destination", "output", "where"),
    [
        ("d", "/jobs", "/jobs/output/d"),
        ("{name: d, path: results/d}", "/data/", "/data/results/d"),
        ("{name: d, path: /mine}", None, "/mine"),
        ("{name: d, path: 's3a://b/c'}", "/jobs", "s3a://b/c"),
        ("d", "s3a://b/c/", "s3a://b/c/output/d"),
    ],
)
def test_relative_destinations_are_in_the_output(destination: str, output: str | None, where: str) -> None:
    assert job.place_destination(resolved(destination), output).pipeline.destination.where == where


def prepared(folder: Path, project: str, *, tested: bool) -> dict[str, str]:
    """Write a project and the order of a run. Return the variables of the run."""
    (folder / "project.yml").write_text(project.replace("{destination}", "d"))
    order = PipelineOrder("a", require_tests=tested, tests=None, project=FolderProject(folder), output="/jobs")
    (folder / PIPELINE_FILE).write_text(order.to_json())
    (folder / "context.json").write_text(json.dumps({"datasets": {"s": {"bounds": None}, "d": {"bounds": None}}}))
    return {"DATAFLOW_CONTEXT": str(folder / "context.json"), "DATAFLOW_DATA_ID": "x"}


def test_a_source_without_a_data_set_of_the_job_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = prepared(tmp_path, PROJECT.replace("[s]", "[{name: s, dataset: t}]"), tested=True)
    assert job.main(environ) == ExitCode.FAILED
    sentence = "project.yml, line 5: the job has no data set t; it has s, d: write another dataset"
    assert capsys.readouterr().err.strip() == sentence
    assert json.loads((tmp_path / "report.json").read_text()) == {"failure": sentence}


@pytest.mark.parametrize(
    ("project", "sentence"),
    [
        (PROJECT.replace("slug: a", "slug: b"), "project.yml: there is no pipeline a; known here: b"),
        (PROJECT.replace("sources", "source"), "project.yml, line 4: pipelines[0].sources: this field is needed"),
        (None, "https://h/p has no project.yml; write the folder that has it beside url, as `folder`"),
    ],
)
def test_a_commit_with_an_invalid_project_fails_required_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str | None, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if project is not None:
        (tmp_path / "project.yml").write_text(project.replace("{destination}", "d"))
    known = {"subject": "s", "failed": None, "passed": "d" * 40}
    order = replace(pod_order(runtime(git={"url": "https://h/p"}), None), tests=known)
    with pytest.raises(test_gate.TestsFail) as raised:
        job.JobRun(order, job.FoundProject(tmp_path, "c" * 40), Chunk("x"), {}).run()
    assert str(raised.value) == f"the tests of pipeline a fail at commit cccccccccccc: {sentence}"
    assert raised.value.verdict == {"subject": "s", "commit": "c" * 40, "passed": False}


def test_a_syntax_error_is_reported_before_spark_starts_and_no_step_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name, text in (("t", "def run(df):\n    return df\n"), ("u", "def run(df:\n")):
        (tmp_path / "pipelines" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "pipelines" / "a" / f"{name}.py").write_text(text)
    environ = prepared(tmp_path, PROJECT.replace("[t]", "[t, u]"), tested=False)
    assert job.main(environ) == ExitCode.FAILED
    sentence = "pipelines/a/u.py, line 1: '(' was never closed: def run(df:"
    assert capsys.readouterr().err.strip() == f"u has failed: {sentence}"
    report = read_report((tmp_path / "report.json").read_text())
    assert report is not None
    assert [(step.name, step.status, step.error) for step in report.steps] == [
        ("read s", StepStatus.SKIPPED, None),
        ("t", StepStatus.SKIPPED, None),
        ("u", StepStatus.FAILED, sentence),
        ("write d", StepStatus.SKIPPED, None),
    ]


def test_a_result_that_would_be_lost_with_the_pod_is_refused() -> None:
    with pytest.raises(InvalidInput) as raised:
        job.place_destination(resolved(), None)
    assert str(raised.value) == (
        "project.yml, line 7: output/d would be gone with the pod; write runtime.pipeline.output, such as the path of "
        "a volume of podTemplate or s3a://bucket/data"
    )


def test_a_pipeline_of_the_django_tool_writes_to_a_folder_with_its_slug_and_to_no_address() -> None:
    django = resolved("d", PROJECT.removeprefix("version: 2\n"))
    assert job.place_destination(django, "/jobs").pipeline.destination.where == "/jobs/output/a"
    with pytest.raises(InvalidInput, match=r"project.yml, line 3: .* writes files of this machine"):
        job.place_destination(django, "s3a://bucket/jobs")
    with pytest.raises(InvalidInput, match="would be gone with the pod"):
        job.place_destination(django, None)


def test_files_side_by_side_become_a_project(tmp_path: Path) -> None:
    mounted, folder = tmp_path / "mounted", tmp_path / "project"
    (mounted / "..2026").mkdir(parents=True)
    folder.mkdir()
    for name in ("project.yml", "data-sources.yml", "clean.py", "flights.csv"):  # as the kubelet lays a ConfigMap out
        (mounted / "..2026" / name).write_text(name)
        (mounted / name).symlink_to(f"..2026/{name}")
    job.lay_out(mounted, folder, "a")
    made = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert made == {
        "project.yml": "project.yml",
        "data-sources.yml": "data-sources.yml",
        "pipelines/a/clean.py": "clean.py",
        "sources/flights.csv": "flights.csv",
    }


def runtime(**project: object) -> PipelineRuntime:
    return PipelineRuntime.model_validate({"project": project, "pipeline": "a", "requireTests": True})


@pytest.mark.parametrize(
    ("written", "output", "path"), [(".", "/jobs", "/jobs"), ("../p", "/jobs/../p", "/jobs/../p"), ("/p", "/p", "/p")]
)
def test_on_one_machine_a_path_starts_in_the_folder_of_the_file(written: str, output: str, path: str) -> None:
    order = local_order(runtime(path=written), Path("/jobs"), LocalFacts(Path("/clones"), owner="0123456789ab"))
    assert json.loads(order.to_json()) == {
        "pipeline": "a",
        "requireTests": True,
        "tests": None,
        "path": path,
        "output": output,
        "owner": "0123456789ab",
        "preflight": True,
    }


def test_the_output_of_a_job_may_be_an_address() -> None:
    written = {"project": {"path": "/p"}, "pipeline": "a", "output": "s3a://b/c"}
    pipeline = PipelineRuntime.model_validate(written, context=CLUSTER_CONTEXT)
    for order in (pod_order(pipeline, None), local_order(pipeline, Path("/jobs"), LocalFacts(Path("/clones")))):
        assert order.output == "s3a://b/c"


@pytest.mark.parametrize(
    "project",
    [
        FolderProject(Path("/p")),
        FilesProject(Path("/files")),
        GitProject(
            GitRef("https://h/p", "main", None, ("h ssh-ed25519 x",)), "teams", Path("/clones"), is_fetched=True
        ),
    ],
    ids=["folder", "files", "repository"],
)
def test_an_order_is_parsed_as_it_was_written(project: FolderProject | FilesProject | GitProject) -> None:
    tests = {"subject": "s", "passed": None, "failed": "c3", "failure": "f"}
    order = PipelineOrder("a", require_tests=True, tests=tests, project=project, output=None, owner="a/b")
    assert parse_order(order.to_json(), "pipeline.json") == order


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("[]", "it is not an object"),
        ('{"path": "/p"}', "pipeline is not a text"),
        ('{"pipeline": "a"}', "it has none of path, files and git"),
        ('{"pipeline": "a", "path": 1}', "path is not a text"),
        ('{"pipeline": "a", "path": "/p", "requireTests": "no"}', "requireTests is neither true nor false"),
        ('{"pipeline": "a", "path": "/p", "tests": {}}', "tests has not subject, passed and failed"),
        (
            '{"pipeline": "a", "git": {"url": "u", "ref": "r", "known_hosts": [1]}}',
            "git.known_hosts is not a list of texts",
        ),
    ],
)
def test_an_invalid_order_is_one_sentence(written: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_order(written, "pipeline.json")
    assert str(raised.value) == f"pipeline.json is not an order of a pipeline's run: {reason}"


def test_an_order_has_a_repository_and_no_secret() -> None:
    git = {"url": "https://h/p", "ref": "main", "username": "me", "secretRef": {"name": "s", "key": "k"}}
    order = json.loads(pod_order(runtime(git=git), None).to_json())
    assert order["git"] == {"url": "https://h/p", "ref": "main", "username": "me", "known_hosts": []}
    assert order["fetched"] is True


def test_a_project_may_be_in_a_folder_of_its_repository(tmp_path: Path) -> None:
    order = pod_order(runtime(git={"url": "https://h/p", "folder": "teams/delays"}), None)
    assert isinstance(order.project, GitProject)
    order = replace(order, project=replace(order.project, clones=tmp_path), require_tests=False)
    assert isinstance(order.project, GitProject)
    (tmp_path / "commit").write_text("c" * 40)
    with job.find_project(order) as found:
        assert found.folder == commit_folder(order.project.git, tmp_path, "c" * 40) / "teams/delays"
        with pytest.raises(InvalidInput, match=r"^https://h/p has no teams/delays/project\.yml; write"):
            job.JobRun(order, found, Chunk("x"), {}).run()


@pytest.mark.parametrize(
    ("changes", "has_tests"), [({}, True), ({"pipeline": "b"}, False), ({"project": {"path": "."}}, False)]
)
def test_an_order_has_the_tests_of_this_project_only(changes: dict[str, object], has_tests: bool) -> None:
    made = runtime(path="/p")
    tests = {"subject": subject_of(made), "passed": "c1", "failed": None, "failure": None, "looks": 3}
    order = pod_order(made.model_validate({**made.model_dump(exclude_unset=True), **changes}), tests)
    assert (order.tests is not None) is has_tests


def test_the_version_of_a_project_without_a_repository_depends_on_its_description_and_modules(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text("name: x")
    (tmp_path / "a.py").write_text("a = 1")
    before = test_gate.project_version(tmp_path, None)
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "rows.csv").write_text("1")
    assert test_gate.project_version(tmp_path, None) == before
    (tmp_path / "a.py").write_text("a = 2")
    assert test_gate.project_version(tmp_path, None) != before
    assert test_gate.project_version(tmp_path, "c1") == "c1"


@pytest.mark.parametrize(
    ("found", "gone"), [("c2", None), ("c3", "c1"), ("files:b", "c1")], ids=["new", "known to fail", "no repository"]
)
def test_a_verdict_reports_an_earlier_version_as_gone_if_a_run_could_not_use_it(found: str, gone: str | None) -> None:
    known = {"subject": "s", "passed": "c1", "failed": "c3", "failure": "f"}
    verdict = test_gate.make_verdict(found, known, passed=False)
    assert verdict is not None
    assert verdict.get("gone") == gone
    assert "gone" not in (test_gate.make_verdict(found, known, passed=True) or {})


def test_a_version_that_is_known_to_fail_is_not_tested_again() -> None:
    known = {"subject": "s", "passed": None, "failed": "c3", "failure": "it fails"}
    with pytest.raises(test_gate.TestsFail, match="it fails"):
        test_gate.has_passed("c3", known)
    assert not test_gate.has_passed("c4", known)
    assert not test_gate.has_passed("c4", None)


def test_a_report_has_the_rows_read_and_written() -> None:
    steps = [Step("read a", rows=3), Step("read b", rows=4), Step("clean", rows=5), Step("write d", rows=5)]
    outcome = job.RunOutcome(steps, Result("out", 5, "xxhash64:1", 99))
    fields = {"rows": 5, "bytes": 99, "checksum": "xxhash64:1", "looks": None}
    assert outcome.report_fields() == {**fields, "rowsIn": 7}
    steps[1].rows = None
    assert outcome.report_fields() == {**fields, "rowsIn": None}


def test_the_report_of_a_run_that_wrote_nothing_has_no_rows() -> None:
    assert job.RunOutcome([Step("read a", rows=3)]).report_fields() == {}


def test_a_report_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    environ = {"DATAFLOW_CONTEXT": str(tmp_path / "context.json")}
    reporting.write_report({"commit": "ab", "unfinished": True}, [Step("a", StepStatus.RUNNING)], [], environ)
    first = read_report((tmp_path / "report.json").read_text())
    reporting.write_report({"commit": "ab", "rows": 1}, [Step("a", StepStatus.DONE, 1)], [], environ)
    then = read_report((tmp_path / "report.json").read_text())
    assert first is not None and then is not None  # noqa: PT018 # for mypy
    assert (first.unfinished, first.steps[0].status) == (True, StepStatus.RUNNING)
    assert (then.unfinished, then.steps[0].status, then.is_complete) == (False, StepStatus.DONE, True)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def checked(folder: Path, source: str, output: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Run the program with the check of locations, without Spark. Return its exit code and its report."""
    environ = {**prepared(folder, PROJECT.replace("[s]", f"[{source}]"), tested=False), "DATAFLOW_RUN_ID": "7"}
    order = PipelineOrder(
        "a",
        require_tests=False,
        tests=None,
        project=FolderProject(folder),
        output=str(output or folder),
        preflight=True,
    )
    (folder / PIPELINE_FILE).write_text(order.to_json())
    code = job.main(environ)
    report = read_report((folder / "report.json").read_text())
    assert report is not None
    return code, dict(report.metrics)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "verdict", "missing"),
    [
        ("{name: s, path: 'in/{data_id}.csv'}", "chunk", "in/x.csv"),
        ("{name: s, path: '{data_id}/all.csv'}", "chunk", "x/all.csv"),
        ("{name: s, path: 'nowhere/{data_id}.csv'}", "job", "nowhere/x.csv"),
        ("{name: s, path: in/lookup.csv}", "job", "in/lookup.csv"),
        ("s", "job", "sources/s.csv"),
    ],
)
def test_a_missing_file_is_reported_before_spark_starts_with_whose_runs_it_prevents(
    no_spark: Path, capsys: pytest.CaptureFixture[str], source: str, verdict: str, missing: str
) -> None:
    (no_spark / "in").mkdir()
    code, report = checked(no_spark, source)
    sentence = f"project.yml, line 5: there is no {missing}"
    assert (code, capsys.readouterr().err.strip()) == (ExitCode.FAILED, sentence)
    assert (report["preflight"], report["failure"]) == (verdict, sentence)
    look = report["looks"][0]
    assert (look["dataset"], look["found"], look["place"]) == ("s", "no", str(no_spark / missing))


def test_a_run_that_does_not_find_its_file_has_not_started(no_spark: Path) -> None:
    code, report = checked(no_spark, "s")
    outcome = judge(Ended(7, exit_code=code, report=Report(report)))
    assert (outcome.kind, outcome.message) == (
        OutcomeClass.NOT_STARTED,
        "project.yml, line 5: there is no sources/s.csv",
    )


def test_a_destination_that_can_not_be_made_prevents_all_runs_of_the_job(no_spark: Path) -> None:
    (no_spark / "sources").mkdir()
    (no_spark / "sources" / "s.csv").touch()
    (no_spark / "file").touch()
    _, report = checked(no_spark, "s", no_spark / "file")
    where = f"{no_spark}/file/output/d"
    assert report["failure"] == f"project.yml, line 7: {no_spark}/file is no folder, so {where} can't be made"
    assert [(look["dataset"], look["found"]) for look in report["looks"]] == [("d", "no"), ("s", "yes")]


def test_the_check_never_claims_that_a_destination_exists(no_spark: Path) -> None:
    (no_spark / "output" / "d").mkdir(parents=True)
    _, report = checked(no_spark, "s")
    looks = {look["dataset"]: look for look in report["looks"]}
    assert looks["d"]["found"] == "unknown"
    assert looks["d"]["sentence"] == f"only its folder was looked at: {no_spark}/output/d is there"


def test_a_run_whose_files_exist_goes_on(no_spark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (no_spark / "sources").mkdir()
    (no_spark / "sources" / "s.csv").touch()
    _, report = checked(no_spark, "s")
    assert report["preflight"] == "passed"
    assert "there is no file pipelines/a/t.py" in capsys.readouterr().err
