"""What the program of a pipeline's run (spark/pipeline/job.py) is told, on one machine and in a pod. Pure.

It is a file beside the context, `pipeline.json`, and holds no secret:

    {"pipeline": "delays", "requireTests": false, "tests": null, "output": "/home/me/jobs",
     "git": {"url": "https://…", "ref": "main", "username": null, "known_hosts": []}, "folder": null,
     "clones": "/var/lib/…/projects", "fetched": false}

Instead of `git`, `folder` (where the project is in the repository), `clones` and `fetched`: `path`, a folder; or
`files`, a folder with the project's files side by side. `fetched`: the folder of `clones` has been filled before, by
the init container of a pod; the network is asked nothing any more. `output`: the folder or address that relative
destinations are in; null: there is none that stays. `tests`: what is known of the project's unit tests where they
have to pass, see core/text/project_tests.py; null where nobody remembers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opendataflow.core.text.project_tests import Tests, tests_known
from opendataflow.model.resources.jobfile import absolute_path
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime
from opendataflow.names import PROJECT_FOLDER

MODULE = "opendataflow.spark.pipeline.job"
"""The program of a run."""
FETCH_MODULE = "opendataflow.spark.pipeline.project.fetching"
"""The program of the init container that fetches a project."""
TOKEN_VARIABLE = "DATAFLOW_GIT_TOKEN"
"""Of that init container only: the token, password or key."""


def local_order(pipeline: PipelineRuntime, tests: Tests, folder: Path, clones: Path) -> str:
    """Return the order of a run on one machine. `folder`: of the job's file. `clones`: where fetched projects are."""
    place = pipeline.project
    output = pipeline.output
    if output is not None and "://" not in output:
        output = str(absolute_path(output, folder))
    if place.path is not None:
        project = str(absolute_path(place.path, folder))
        return _text(pipeline, tests, {"path": project, "output": output or project})
    told = {**_git(pipeline), "clones": str(clones), "fetched": False, "output": output or str(folder)}
    return _text(pipeline, tests, told)


def pod_order(pipeline: PipelineRuntime, tests: Tests) -> str:
    """Return the order of a run in a pod."""
    place, output = pipeline.project, {"output": pipeline.output}
    if place.path is not None:
        return _text(pipeline, tests, {"path": place.path, **output})
    if place.config_map is not None:
        return _text(pipeline, tests, {"files": PROJECT_FOLDER, **output})
    return _text(pipeline, tests, {**_git(pipeline), "clones": PROJECT_FOLDER, "fetched": True, **output})


def _git(pipeline: PipelineRuntime) -> dict[str, Any]:
    git = pipeline.project.git
    assert git is not None  # a place is exactly one of them
    told = {"url": git.url, "ref": git.ref, "username": git.username, "known_hosts": git.known_hosts}
    return {"git": told, "folder": git.folder}


def _text(pipeline: PipelineRuntime, tests: Tests, project: Mapping[str, Any]) -> str:
    known = tests_known(pipeline, tests)
    told = {"pipeline": pipeline.pipeline, "requireTests": pipeline.require_tests, "tests": known, **project}
    return json.dumps(told, ensure_ascii=False)
