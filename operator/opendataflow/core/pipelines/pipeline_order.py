"""The order of a pipeline's run: what the program of the run has to do, on one machine and in a pod. Pure.

`PipelineOrder` is written to a file beside the context of the run, `pipeline.json`. The file holds no secret:

    {"pipeline": "delays", "requireTests": false, "tests": null, "preflight": true,
     "git": {"url": "https://…", "ref": "main", "username": null, "known_hosts": []}, "folder": null,
     "clones": "/var/lib/…/projects", "fetched": false, "output": "/home/me/jobs", "owner": "3f2a9c01d4e7"}

`path` (a folder) or `files` (a folder with the project's files side by side) may replace `git`, `folder`, `clones` and
`fetched`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendataflow.core.text.project_tests import Tests, tests_known
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.jobfile import absolute_path
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime
from opendataflow.names import PROJECT_FOLDER

MODULE = "opendataflow.spark.pipeline.job"
"""The program of a run."""
HOLDER_MODULE = "opendataflow.spark.pipeline.holder"
"""The program that starts a JVM for many runs."""
FETCH_MODULE = "opendataflow.spark.pipeline.project.fetching"
"""The program of the init container that fetches a project."""
TOKEN_VARIABLE = "DATAFLOW_GIT_TOKEN"
"""Variable of the init container with the token, password or key."""

KnownTests = Mapping[str, str | None]
"""Known results of a project's unit tests: `subject`, `passed`, `failed`, `failure`. See core/text/project_tests.py."""


@dataclass(frozen=True)
class GitRef:
    """A ref of a git repository: a branch, tag or commit."""

    url: str
    ref: str
    username: str | None = None
    known_hosts: Sequence[str] = ()


@dataclass(frozen=True)
class FolderProject:
    """A project in a folder of this machine or of the image."""

    path: Path


@dataclass(frozen=True)
class FilesProject:
    """A project whose files lie side by side in one folder, as a ConfigMap mounts them."""

    files: Path


@dataclass(frozen=True)
class GitProject:
    """A project in a git repository.

    `folder`: the project's folder inside the repository. `clones`: where fetched commits are kept. `is_fetched`: an
    init container has fetched the commit, so the run uses no network.
    """

    git: GitRef
    folder: str | None
    clones: Path
    is_fetched: bool


@dataclass(frozen=True)
class PipelineOrder:
    """What one run has to do.

    `output`: the folder or address for relative destinations; None: no storage outlives the run. `tests`: known results
    of the unit tests; None: earlier results are unknown. `owner`: of the written chunks, see `core.databases.attempts`.
    `preflight`: check the locations of the data first.
    """

    pipeline: str
    require_tests: bool
    tests: KnownTests | None
    project: FolderProject | FilesProject | GitProject
    output: str | None
    owner: str | None = None
    preflight: bool = False

    def to_json(self) -> str:
        """Return the content of the order's file."""
        order = {"pipeline": self.pipeline, "requireTests": self.require_tests, "tests": self.tests}
        place = {"output": self.output, "owner": self.owner, "preflight": self.preflight}
        return json.dumps({**order, **_project_fields(self.project), **place}, ensure_ascii=False)


def parse_order(text: str, place: str) -> PipelineOrder:
    """Parse the content of an order's file. `place`: the file's path, for the error.

    Raises InvalidInput with one sentence if the content is not an order.
    """
    try:
        written = json.loads(text)
        if not isinstance(written, Mapping):
            raise TypeError("it is not an object")
        return PipelineOrder(
            pipeline=_text(written, "pipeline"),
            require_tests=_flag(written, "requireTests"),
            tests=_optional_tests(written),
            project=_parse_project(written),
            output=_optional_text(written, "output"),
            owner=_optional_text(written, "owner"),
            preflight=_flag(written, "preflight"),
        )
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{place} is not an order of a pipeline's run: {error}") from None


@dataclass(frozen=True)
class LocalFacts:
    """The facts of a pipeline's run on one machine that the job's file does not have.

    `clones`: where fetched projects are. `tests`: the stored results of the project's unit tests. `owner`: of the
    written chunks.
    """

    clones: Path
    tests: Tests = None
    owner: str | None = None


def local_order(pipeline: PipelineRuntime, folder: Path, facts: LocalFacts) -> PipelineOrder:
    """Return the order of a run on one machine. `folder`: of the job's file."""
    output, tests, owner = pipeline.output, facts.tests, facts.owner
    if output is not None and "://" not in output:
        output = str(absolute_path(output, folder))
    if pipeline.project.path is not None:
        path = absolute_path(pipeline.project.path, folder)
        return _order(pipeline, tests, FolderProject(path), output or str(path), owner)
    project = _git_project(pipeline, facts.clones, is_fetched=False)
    return _order(pipeline, tests, project, output or str(folder), owner)


def pod_order(pipeline: PipelineRuntime, tests: Tests, owner: str | None = None) -> PipelineOrder:
    """Return the order of a run in a pod."""
    place = pipeline.project
    project: FolderProject | FilesProject | GitProject
    if place.path is not None:
        project = FolderProject(Path(place.path))
    elif place.config_map is not None:
        project = FilesProject(Path(PROJECT_FOLDER))
    else:
        project = _git_project(pipeline, Path(PROJECT_FOLDER), is_fetched=True)
    return _order(pipeline, tests, project, pipeline.output, owner)


def _order(
    pipeline: PipelineRuntime,
    tests: Tests,
    project: FolderProject | FilesProject | GitProject,
    output: str | None,
    owner: str | None,
) -> PipelineOrder:
    known = tests_known(pipeline, tests)
    return PipelineOrder(pipeline.pipeline, pipeline.require_tests, known, project, output, owner, pipeline.preflight)


def _git_project(pipeline: PipelineRuntime, clones: Path, *, is_fetched: bool) -> GitProject:
    git = pipeline.project.git
    assert git is not None  # a project has exactly one location
    return GitProject(GitRef(git.url, git.ref, git.username, git.known_hosts), git.folder, clones, is_fetched)


def _project_fields(project: FolderProject | FilesProject | GitProject) -> dict[str, Any]:
    if isinstance(project, FolderProject):
        return {"path": str(project.path)}
    if isinstance(project, FilesProject):
        return {"files": str(project.files)}
    ref = project.git
    git = {"url": ref.url, "ref": ref.ref, "username": ref.username, "known_hosts": [*ref.known_hosts]}
    return {"git": git, "folder": project.folder, "clones": str(project.clones), "fetched": project.is_fetched}


def _parse_project(written: Mapping[str, Any]) -> FolderProject | FilesProject | GitProject:
    if "path" in written:
        return FolderProject(Path(_text(written, "path")))
    if "files" in written:
        return FilesProject(Path(_text(written, "files")))
    git = written.get("git")
    if not isinstance(git, Mapping):
        raise TypeError("it has none of path, files and git")
    hosts = git.get("known_hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(line, str) for line in hosts):
        raise TypeError("git.known_hosts is not a list of texts")
    ref = GitRef(_text(git, "url"), _text(git, "ref"), _optional_text(git, "username"), tuple(hosts))
    is_fetched = _flag(written, "fetched")
    return GitProject(ref, _optional_text(written, "folder"), Path(_text(written, "clones")), is_fetched)


def _text(written: Mapping[str, Any], name: str) -> str:
    value = written.get(name)
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a text")
    return value


def _optional_text(written: Mapping[str, Any], name: str) -> str | None:
    return None if written.get(name) is None else _text(written, name)


def _flag(written: Mapping[str, Any], name: str) -> bool:
    value = written.get(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is neither true nor false")
    return value


def _optional_tests(written: Mapping[str, Any]) -> KnownTests | None:
    tests = written.get("tests")
    if tests is None:
        return None
    if not isinstance(tests, Mapping) or not tests.keys() >= {"subject", "passed", "failed"}:
        raise TypeError("tests has not subject, passed and failed")
    return tests
