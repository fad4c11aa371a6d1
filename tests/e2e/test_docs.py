"""What the documentation says is true: its commands run, its files parse, its links lead somewhere.

tests/unit/test_named_commands.py checks the commands that a page only names.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

import generate
from opendataflow.model.projects.project import parse_project
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.jobfile import parse_job_file
from tests.e2e.conftest import DATAFLOW, Program
from tests.sql.conftest import Connection

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
PAGES = [page for page in PAGES if "data" not in page.relative_to(ROOT).parts]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _without_times(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_command_of_the_tutorial_does_what_is_shown(embedded: Program, tmp_path: Path) -> None:
    _do(ROOT / "docs" / "tutorial.md", tmp_path, embedded.environ)


def test_every_command_about_plans_of_chunks_does_what_is_shown(
    dataflow: Program, db: Connection, dsn: str, tmp_path: Path
) -> None:
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    source = {names[name]: str(value) for name, value in conninfo_to_dict(dsn).items() if name in names}
    environ = {**dataflow.environ, **source, "DATAFLOW_SOURCE_DSN": dsn, "DATAFLOW_TARGET_DSN": dsn}
    _do(ROOT / "docs" / "how-to" / "plan-chunks.md", tmp_path, environ, db)


def _do(page: Path, folder: Path, environ: Mapping[str, str], db: Connection | None = None) -> None:
    """Write the files of a page, do its SQL and its commands, and compare what is shown with what they say."""
    environ = {**environ, "PATH": f"{DATAFLOW.parent}:{os.environ['PATH']}"}
    output = ""
    for language, options, text in BLOCK.findall(page.read_text()):
        if file := re.search(r"file=(\S+)", options):
            (folder / file[1]).write_text(text)
        elif language == "sql" and db is not None:
            db.execute(text.encode())
            db.execute("SELECT pg_stat_force_next_flush()")  # else the rows count as changed since ANALYZE
        elif language == "text":
            assert set(_without_times(text)) <= set(_without_times(output))
        elif language == "console":
            exit_code = int(found[1]) if (found := re.search(r"exit=(\d+)", options)) else 0
            for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = entry.partition("\n")
                done = subprocess.run(
                    command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False
                )
                output = done.stdout + done.stderr
                assert done.returncode == exit_code, f"$ {command}\n{output}"
                assert set(_without_times(shown)) <= set(_without_times(output)), f"$ {command}\n{output}"


def _parse(text: str, source: str) -> None:
    if "kind: DataFlowAction" in text:
        body = yaml.load(text, yaml.BaseLoader)
        metadata = body["metadata"]
        name = metadata.get("name") or metadata["generateName"]
        DataFlowAction.model_validate({**body, "metadata": {"name": name}})
    else:
        parse_job_file(text, source)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_job_file_that_is_shown_is_valid(page: Path) -> None:
    for language, _, text in BLOCK.findall(page.read_text()):
        if language == "yaml" and all(
            isinstance(part, dict) and part.get("apiVersion", "v1") != "v1"  # which is Kubernetes' own
            for part in yaml.load_all(text, yaml.BaseLoader)
        ):
            _parse(text, _name(page))


def test_every_project_that_is_shown_is_valid() -> None:
    shown = [text for page in PAGES for language, _, text in BLOCK.findall(page.read_text()) if language == "yaml"]
    projects = [text for text in shown if text.startswith("version: 2")]
    assert projects
    for text in projects:
        parse_project(text, "the page")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{_name(page)}: {target}"


def test_the_reference_of_resources_is_what_the_models_say() -> None:
    for name, text in generate.pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == text, "run: python docs/generate.py"
