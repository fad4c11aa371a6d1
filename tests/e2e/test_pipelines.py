"""Projects in the form of the Django tool: listed, tested and run unchanged, with pandas and without Spark."""

import contextlib
import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from opendataflow.model.resources.jobfile import parse_job_file
from opendataflow.names import ExitCode, StepStatus
from opendataflow.spark.pipeline.project.project_folder import open_project
from opendataflow.spark.pipeline.testing.unit_tests import run_unit_test
from tests.e2e.conftest import Inside
from tests.e2e.projects import Project

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(inside: Inside, tmp_path: Path) -> Project:
    """A copy of the example."""
    shutil.copytree(
        EXAMPLES / "django-project", tmp_path / "example", ignore=shutil.ignore_patterns("output", "__pycache__")
    )
    return Project(tmp_path / "example", inside)


@pytest.fixture
def project(inside: Inside, tmp_path: Path) -> Project:
    """A project with one pipeline of two sources and two transformations, which are not written yet."""
    made = Project(tmp_path, inside)
    made.write(
        "project.yml",
        """
        name: tests
        pipelines:
          - slug: p
            sources: [a, b]
            destination: out
            transformations: [one, two]
        """,
    )
    made.write("sources/a.csv", "k,n\nx,1\ny,2\n")
    made.write("sources/b.csv", "k,m\nx,10\n")
    made.step("one", GOOD)
    made.step("two", GOOD)
    return made


GOOD = """
expected_inputs = [[{"k": "x"}]]
expected_output = [{"k": "x"}]

def run(df):
    return df
"""


OURS = "version: 2\nname: n\npipelines: [{slug: p, sources: [a], transformations: [one], destination: o}]\n"


def written(project: Project) -> list[list[dict[str, str]]]:
    """The rows of each result, the oldest first."""
    found = []
    for path in sorted((project.folder / "output").iterdir()):
        with path.open(newline="", encoding="utf-8") as file:
            found.append(list(csv.DictReader(file)))
    return found


def steps(project: Project, *arguments: str) -> dict[str, Any]:
    """The steps of a run by their names."""
    (run,) = json.loads(project.ask("run", "p", "-o", "json", *arguments).out)
    return {step["name"]: step for step in run["steps"]}


def test_the_example_passes_its_tests_without_spark(example: Project) -> None:
    answer = example.ask("test")
    assert answer.code == ExitCode.OK, answer.out
    assert "3 tests passed, 0 failed" in answer.out
    assert "1 entries have an address" in answer.out


def test_a_run_gives_each_step_what_the_one_before_it_returned_and_the_sources_as_read(example: Project) -> None:
    answer = example.ask("run", "greetings")
    assert answer.code == ExitCode.OK, answer.err
    (rows,) = written(example)
    assert [(row["email"], row["greeting"]) for row in rows] == [
        ("ada@example.com", "Hello Ada Lovelace"),
        ("kz@example.com", "Guten Tag Konrad Zuse"),
    ]
    assert rows[0]["note"] == "first line\nsecond line"


def test_runs_append_a_file_each_and_replace_takes_the_place_of_all(example: Project) -> None:
    example.ask("run", "greetings")
    example.ask("run", "greetings")
    assert len(written(example)) == 2
    example.write("sources/salutations.csv", "language,salutation\nen,Hi\n")
    example.ask("run", "greetings", "--replace")
    (rows,) = written(example)
    assert rows[0]["greeting"] == "Hi Ada Lovelace"


def test_a_stream_is_one_run_for_each_item_as_a_dict(example: Project) -> None:
    answer = example.ask("run", "new_entry", "--stream", "incoming.csv")
    assert answer.code == ExitCode.OK, answer.err
    assert "item 2 of 2: email=turing@example.com, first_name=Alan" in answer.out
    assert [rows[-1]["first_name"] for rows in written(example)] == ["Grace", "Alan"]
    assert [len(rows) for rows in written(example)] == [4, 4]


def test_a_stream_is_refused_where_a_transformation_takes_no_item(example: Project) -> None:
    answer = example.ask("run", "greetings", "--stream", "incoming.csv")
    assert answer.code == ExitCode.FAILED
    assert "full_name.py, line 14: run() takes no item; with --stream its last parameter is `stream`" in answer.err
    assert not (example.folder / "output").exists()


def test_a_stream_that_is_no_file_or_has_no_rows_is_reported(example: Project) -> None:
    assert example.ask("run", "new_entry", "--stream", ".").err == "error: .: can't be read: Is a directory\n"
    example.write("sources/none.csv", "email,first_name\n")
    answer = example.ask("run", "new_entry", "--stream", "none.csv")
    assert (answer.code, answer.err) == (ExitCode.OK, "sources/none.csv has no rows, so nothing was run\n")


def test_clean_empties_the_output(example: Project) -> None:
    example.ask("run", "greetings")
    assert example.ask("clean").out == "output is empty; removed: 1\n"
    assert list((example.folder / "output").iterdir()) == []


def test_the_pipelines_are_listed(example: Project) -> None:
    listed = json.loads(example.ask("list", "-o", "json").out)
    assert [row["pipeline"] for row in listed] == ["greetings", "new_entry"]
    assert listed[0]["transformations"] == "full_name, greeting"


def test_a_pipeline_is_described_with_what_is_wrong_in_it(example: Project) -> None:
    (example.folder / "sources" / "salutations.csv").unlink()
    example.step("greeting", "def run(df:\n", pipeline="greetings")
    shown = example.ask("describe", "greetings").out
    assert "salutations: sources/salutations.csv (not there)" in shown
    assert "full_name: pandas, takes 1 frame (pipelines/greetings/full_name.py, line 14)" in shown
    assert "greeting: pipelines/greetings/greeting.py, line 1: '(' was never closed" in shown


def test_describe_reports_before_it_executes_modules_that_it_does_so(project: Project) -> None:
    project.step("one", "raise SystemExit(3)\n")
    project.step("two", "import sys\nprint('executed', file=sys.stderr)\n\ndef run(df):\n    return df\n")
    answer = project.ask("describe", "p")
    first, *rest = answer.err.splitlines()
    assert first.startswith("note: to read their type hints, the modules of the steps are executed: ")
    assert any("executed" in line for line in (*rest, *answer.out.splitlines()))


def test_the_sources_are_given_as_read_whatever_an_earlier_step_has_done_to_them(project: Project) -> None:
    project.step("one", "def run(df, df2):\n    df2['m'] = 0\n    df['n'] = 0\n    return df\n")
    project.step("two", "def run(df, df2):\n    return df2.assign(n=df['n'].sum())\n")
    assert project.ask("run", "p").code == ExitCode.OK
    assert written(project) == [[{"k": "x", "m": "10", "n": "0"}]]


def test_each_step_is_remembered_with_its_rows_and_what_it_printed(project: Project) -> None:
    project.step("one", "def run(df):\n    print('one', len(df))\n    return df[df.n > 1]\n")
    project.step("two", "print('two is loaded')\n\ndef run(df):\n    print('and run')\n    return df\n")
    found = steps(project)
    assert [(step["name"], step["status"], step["rows"]) for step in found.values()] == [
        ("read a", StepStatus.DONE, 2),
        ("read b", StepStatus.DONE, 1),
        ("one", StepStatus.DONE, 1),
        ("two", StepStatus.DONE, 1),
        ("write out", StepStatus.DONE, 1),
    ]
    assert found["one"]["stdout"] == "one 2\n"
    assert found["two"]["stdout"] == "two is loaded\nand run\n"


def test_a_failed_step_is_reported_with_its_line_and_output_and_nothing_is_written(project: Project) -> None:
    project.step(
        "one", "def run(df):\n    print('before')\n    return helped(df)\n\ndef helped(df):\n    return df['z']\n"
    )
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.FAILED
    assert answer.err == "error: one has failed: pipelines/p/one.py, line 6: KeyError: 'z'\n"
    assert "    before" in answer.out
    assert "return helped(df)" in answer.out
    assert '      File "pipelines/p/one.py", line 3, in run' in answer.out
    assert "site-packages" not in answer.out
    assert not (project.folder / "output").exists()
    assert steps(project)["two"]["status"] == StepStatus.SKIPPED


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def run(df):\n    return df +\n", "line 2: invalid syntax: return df +"),
        ("def run(df:\n", "line 1: '(' was never closed"),
        ("import nothing_of_this_name\n", "line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("expected_inputs = []\n", "line 1: there is no function run() in it"),
        ("def run(df, a, b):\n    return df\n", "line 1: run() takes 3 frames "),
        ("def run():\n    return 1\n", "line 1: run() takes no frame; "),
        ("def run(df, *, limit):\n    return df\n", "line 1: run() wants limit, and is given frames only"),
        ("exit(3)\n", "line 1: SystemExit: 3"),
        ("def run(df, stream=None, b=None):\n    return df\n", "line 1: b stands behind stream, which is the last "),
        ("def run(df, stream):\n    return df\n", "line 1: run() wants an item; give it one by --stream, or write "),
    ],
)  # fmt: skip
def test_a_transformation_that_can_not_be_run_is_one_sentence_before_anything_is_read(
    project: Project, code: str, sentence: str
) -> None:
    project.step("two", code)
    (project.folder / "sources" / "a.csv").unlink()
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith(f"error: pipelines/p/two.py, {sentence}")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("def run(df):\n    df['z'] = 1\n", "line 1: run() returns nothing; a DataFrame of pandas is wanted"),
        ("def run(df):\n    return [1]\n", "line 1: run() returns list; a DataFrame of pandas is wanted"),
        ("def run(df):\n    raise SystemExit(3)\n", "line 2: SystemExit: 3"),
        (
            "class E(Exception):\n    def __str__(self):\n        return 1\n\ndef run(df):\n    raise E\n",
            "line 6: E: (its message can't be shown: TypeError in its __str__)",
        ),
        (
            "def run(df):\n    raise ValueError('half of a letter: \\ud83d')\n",
            "line 2: ValueError: half of a letter: ?",
        ),
    ],
)
def test_a_step_that_returns_no_frame_is_reported(project: Project, code: str, sentence: str) -> None:
    project.step("two", code)
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.FAILED
    assert answer.err.splitlines()[-1] == f"error: two has failed: pipelines/p/two.py, {sentence}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "project.yml, line 4: there is no sources/b.csv"),
        (b"k,m\nx,1\ncaf\xe9,2\n", "sources/b.csv, line 3: it is not UTF-8 text; "),
        (b"", "sources/b.csv: the file is empty; its first line names the columns"),
        (b"k,m\nx,1,2\ny,1,2,3\n", "sources/b.csv: Expected 3 fields in line 3, saw 4"),
    ],
)
def test_a_source_that_can_not_be_read_is_reported(project: Project, content: bytes | None, sentence: str) -> None:
    if content is None:
        (project.folder / "sources" / "b.csv").unlink()
    else:
        project.write("sources/b.csv", content)
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith(f"error: read b has failed: {sentence}")
    assert answer.err.count("\n") == 1
    assert steps(project)["read a"]["status"] == StepStatus.DONE


def test_a_step_may_print_what_is_no_text_and_go_to_another_folder(project: Project) -> None:
    prints = "sys.stdout.buffer.write(b'caf\\xe9 ')\n    print('\\ud83d', sys.stdout.encoding)"
    project.step("two", f"import os, sys\n\ndef run(df, b):\n    {prints}\n    os.chdir('/')\n    return df\n")
    assert project.ask("run", "p").code == ExitCode.OK
    assert steps(project)["two"]["stdout"] == "caf\ufffd ? utf-8\n"
    assert len([*(project.folder / "output").iterdir()]) == 2


def test_a_listed_transformation_without_a_file_is_reported_with_the_one_that_is_meant(project: Project) -> None:
    (project.folder / "pipelines/p/two.py").rename(project.folder / "pipelines/p/twoo.py")
    answer = project.ask("test")
    assert answer.code == ExitCode.FAILED
    assert "project.yml, line 6: there is no file pipelines/p/two.py; did you mean twoo?" in answer.out
    assert "passed  p/one" in answer.out
    assert "note: pipelines/p/twoo.py is not in the list of transformations, so it is never run" in answer.err


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (GOOD.replace("expected_inputs", "inputs"), "line 4: expected_inputs is missing in it; write it beside run()"),
        (GOOD.replace("expected_output", "output"), "line 4: expected_output is missing in it; write it beside run()"),
        (GOOD.replace('[[{"k": "x"}]]', "[[1, 2]]"), "line 4: expected_inputs is a list of rows for each frame"),
        (GOOD.replace("run(df)", "run(df, df2)"), "line 4: run() takes 2 frames and expected_inputs has 1"),
        (GOOD.replace("return df", "pass"), "line 4: run() returns nothing; a DataFrame of pandas is wanted"),
        (GOOD.replace("return df", "return df.z"), "line 5: AttributeError: 'DataFrame' object has no attribute 'z'"),
        (GOOD.replace("return df", "retur df"), "line 5: invalid syntax: retur df"),
        (GOOD.replace("return df", 'raise ValueError("that\\n    is all")'), "line 5: ValueError: that\n"),
        (GOOD.replace("run(df)", "run(df, stream)"), "line 4: stream is missing in it; write it beside run()"),
        (
            "import numpy\n"
            + GOOD.replace('expected_output = [{"k": "x"}]', 'expected_output = [{"k": numpy.zeros(2)}]'),
            "line 6: what run() returns is not expected_output\n    missing: row 1: k=[0.0, 0.0]\n",
        ),
    ],
)
def test_whatever_is_wrong_with_one_test_is_a_sentence_and_the_others_are_run(
    project: Project, code: str, sentence: str
) -> None:
    project.step("one", code)
    answer = project.ask("test")
    assert answer.code == ExitCode.FAILED
    assert f"pipelines/p/one.py, {sentence}" in answer.out
    assert "passed  p/two" in answer.out
    assert "1 test passed, 1 failed" in answer.out


def test_a_difference_is_reported_by_rows_and_cells(project: Project) -> None:
    project.step(
        "one",
        """
        import pandas as pd
        expected_inputs = [[{"k": "x", "n": 1}, {"k": "y", "n": 2}]]
        expected_output = [{"k": "x", "n": 1, "day": None}, {"k": "y", "n": 3, "day": None}, {"k": "z"}]

        def run(df):
            return df.assign(day=pd.NaT)
        """,
    )
    out = project.ask("test").out
    assert "pipelines/p/one.py, line 5: what run() returns is not expected_output" in out
    assert "    row 2: n: expected 3, found 2" in out
    assert "    missing: row 3: k='z'" in out
    assert "row 1" not in out


def test_the_order_of_rows_counts_unless_the_module_says_that_it_does_not(project: Project) -> None:
    code = """
    expected_inputs = [[{"k": "x"}, {"k": "y"}]]
    expected_output = [{"k": "y"}, {"k": "x"}]

    def run(df):
        return df
    """
    project.step("one", code)
    assert ", in another order" in project.ask("test", "p").out
    project.step("one", f"{code}\n    ordered = False\n")
    assert project.ask("test", "p").code == ExitCode.OK


def test_expected_inputs_that_run_changes_make_no_wrong_test_pass(project: Project) -> None:
    project.step(
        "one",
        """
        rows = [{"k": ["x"], "n": 1}]
        expected_inputs = [rows]
        expected_output = rows

        def run(df):
            df["k"].iloc[0].append("more")
            rows[0]["k"].append("more")
            return df
        """,
    )
    answer = project.ask("test")
    assert answer.code == ExitCode.FAILED
    assert "k: expected ['x'], found ['x', 'more']" in answer.out


def test_examples_may_be_frames_of_pandas(project: Project) -> None:
    project.step(
        "one",
        """
        import pandas as pd
        expected_inputs = pd.DataFrame({"k": ["x"], "day": pd.to_datetime(["2013-01-01"])})
        expected_output = pd.DataFrame({"k": ["x"], "day": pd.to_datetime(["2013-01-01"])})

        def run(df):
            return df
        """,
    )
    answer = project.ask("test")
    assert answer.code == ExitCode.OK, answer.out


def test_modules_of_the_project_import_each_other_and_leave_nothing_behind(project: Project) -> None:
    project.write("shared/words.py", "WORD = 'hello'\n")
    project.step("one", "from shared.words import WORD\n\ndef run(df):\n    return df.assign(word=WORD)\n")
    assert project.ask("run", "p").code == ExitCode.OK
    assert written(project)[0][0]["word"] == "hello"
    project.write("shared/words.py", "WORD = 'other'\n")
    shutil.rmtree(project.folder / "shared/__pycache__", ignore_errors=True)
    assert not any(str(project.folder) in path for path in sys.path)
    assert not {"shared", "shared.words", "pipelines.p.one"} & sys.modules.keys()


def test_transformations_import_each_other_as_parts_of_a_package(project: Project) -> None:
    project.write("pipelines/__init__.py", "")
    project.write("pipelines/p/words.py", "WORD = 'hello'\n")
    project.step("one", "from . import two\nfrom .words import WORD\n\ndef run(df):\n    return df.assign(word=WORD)\n")
    project.step(
        "two", "from pipelines.p import one\nprint('loaded')\n\ndef run(df):\n    return df.assign(is_=one.WORD)\n"
    )
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.OK, answer.err
    assert written(project)[0][0]["is_"] == "hello"
    assert answer.out.count("loaded") == 1
    assert not {"pipelines", "pipelines.p", "pipelines.p.words"} & sys.modules.keys()


def test_a_run_that_gives_no_frame_by_being_called_is_reported_by_all_commands(project: Project) -> None:
    project.step("one", "async def run(df):\n    return df\n")
    project.step("two", "def run(df):\n    yield df\n")
    for command in ("describe", "test", "run"):
        answer = project.ask(command, "p")
        assert "one.py, line 1: run() is async, and nobody awaits it" in answer.out + answer.err
        assert "two.py, line 1: run() has a `yield`; it returns one frame" in answer.out + answer.err


def test_the_chunk_of_a_project_without_chunks_is_refused(project: Project) -> None:
    answer = project.ask("run", "p", "--data-id", "1")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: the Django tool's form has no chunks: leave out --data-id and --chunks\n"


def test_without_pandas_a_project_of_the_django_tool_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for module in ("execute.pandas_frames", "testing.pandas_examples"):  # they may be imported already
        monkeypatch.delitem(sys.modules, f"opendataflow.spark.pipeline.{module}", raising=False)
        monkeypatch.delattr(f"opendataflow.spark.pipeline.{module}", raising=False)
    for command in ("test", "run p"):
        answer = project.ask(*command.split())
        assert answer.code == ExitCode.FAILED
        assert answer.err == "error: pandas is not installed: pip install 'opendataflow[pandas]'\n"


def test_without_spark_a_project_of_our_own_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    written = (project.folder / "project.yml").read_text()
    project.write("project.yml", f"version: 2\n{written}")
    answer = project.ask("run", "p", "--data-id", "1")
    assert answer.code == ExitCode.FAILED
    assert answer.err == "error: Spark is not installed: pip install 'opendataflow[spark]'\n"


def test_a_folder_without_a_project_is_refused_with_the_command_that_makes_one(inside: Inside, tmp_path: Path) -> None:
    answer = Project(tmp_path, inside).ask("test")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: there is no project.yml; `dataflow pipeline init FOLDER` makes a project\n"


def test_a_mistake_in_the_project_is_reported_with_its_line(project: Project) -> None:
    project.write("project.yml", "name: tests\npipelines:\n  - slug: p\n    source: [a]\n")
    answer = project.ask("list")
    assert answer.code == ExitCode.USAGE
    assert "project.yml, line 4: pipelines[0].source: no such field; did you mean sources?" in answer.err


def test_spark_is_there_when_a_module_is_loaded_that_is_tested(project: Project) -> None:
    project.write("project.yml", OURS)
    project.step("one", "from pathlib import Path\nassert Path('spark').exists()\n")
    opened = open_project(project.folder)

    def session() -> Any:
        Path("spark").touch()

    with opened.importable(), contextlib.chdir(project.folder):
        tested = run_unit_test(opened.resolve_all()[0], "one", session)
    assert tested.sentence is not None
    assert tested.sentence.endswith("one.py, line 1: there is no function run() in it")


def test_init_overwrites_nothing(project: Project) -> None:
    answer = project.ask("init", ".")
    assert answer.code == ExitCode.FAILED
    assert answer.err == "error: project.yml is there already: nothing was written; take another folder\n"


def test_init_writes_the_example_with_its_job_and_schema_and_leaves_what_a_new_repository_has(
    inside: Inside, tmp_path: Path
) -> None:
    project = Project(tmp_path, inside)
    project.write("README.md", "mine")
    answer = project.ask("init", ".")
    assert answer.code == ExitCode.OK, answer.err
    assert "there already, and left as it is: README.md" in answer.out
    assert (tmp_path / "README.md").read_text() == "mine"
    for file in ("pipelines/delays/arrived.py", "pipelines/delays/by_carrier.py", "sources/flights.csv"):
        assert (tmp_path / file).read_text() == (EXAMPLES / "pipeline" / file).read_text()
    parse_job_file((tmp_path / "job.yaml").read_text(), "job.yaml")
    assert project.ask("schema").out == (tmp_path / "project.schema.json").read_text()


def test_what_the_django_tool_accepts_is_accepted_and_what_shows_nothing_is_a_warning(project: Project) -> None:
    text = (project.folder / "project.yml").read_text()
    changed = text.replace("name: tests\n", "owner: me\n").replace("destination: out", "paused: true")
    (project.folder / "project.yml").write_text(changed)
    singular = GOOD.replace("expected_inputs = [[", "expected_input = [[")
    project.step("one", singular)
    project.step(
        "two",
        singular.replace('expected_output = [{"k": "x"}]', 'expected_output = [{"k": "x", "n": 1}]').replace(
            "return df", "return df.assign(n=1)"
        ),
    )
    tested = project.ask("test")
    assert tested.code == ExitCode.OK, tested
    assert tested.out.count("warning: ") == 1
    assert "one.py, line 4: expected_output is the same as the input" in tested.out
    ran = project.ask("run", "p")
    assert ran.code == ExitCode.OK, ran
    assert "owner is no field of the Django tool's form, and is ignored" in ran.err
    assert "paused is no field of the Django tool's form, and is ignored" in ran.err
