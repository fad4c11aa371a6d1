"""Disks that are full: small ones of a process of its own, which nobody else sees."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import SPARK_DEFAULTS
from tests.e2e.projects import Project
from tests.kube.cluster.providers import Unavailable
from tests.left_out import left_out

YML = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{name: a, schema: "t STRING"}]
    transformations: [one]
    destination: {name: out, path: disk/out}
  - slug: q
    sources: [{name: a, schema: "t STRING"}]
    transformations: [one, spread]
    destination: {name: elsewhere}
"""

DRIVER = """
import io, json, secrets, zlib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from opendataflow.cli.commands import run
from opendataflow.spark.pipeline.measure.session import local_session

def done(pipeline, rows):
    Path("sources/a.csv").write_text("t\\n" + "".join(f"{secrets.token_hex(30)}\\n" for _ in range(rows)))
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run(["pipeline", "run", pipeline, "--data-id", "x", "-o", "json"])
    there = {str(path): zlib.crc32(path.read_bytes()) for path in Path("disk").rglob("*") if path.is_file()}
    steps = [(step["name"], step["status"]) for step in json.loads(out.getvalue())[0]["steps"]]
    return {"code": code, "error": err.getvalue(), "steps": steps, "there": there}

with local_session("tests"):
    results = [done("p", 3), done("p", 30_000), done("q", 30_000), done("q", 3)]
Path("results.json").write_text(json.dumps(results))
"""


@pytest.fixture
def results(tmp_path: Path) -> list[dict[str, Any]]:
    """The results of the runs, one after the other: of a result that fits on a small disk, and of one that does not; of
    rows for which Spark's own space is too small, and of fewer."""
    project = Project(tmp_path, None)
    project.write("project.yml", YML)
    for slug in ("p", "q"):
        project.step("one", "def run(df):\n    return df\n", pipeline=slug)
    project.step("spread", "def run(df):\n    return df.repartition(2)\n", pipeline="q")
    project.write("conf/spark-defaults.conf", f"{SPARK_DEFAULTS}spark.local.dir {tmp_path}/scratch\n")
    for folder in ("disk", "scratch", "sources"):
        (tmp_path / folder).mkdir()
    who = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", "--mount", *who]
    with left_out("there is no small disk", "DATAFLOW_REQUIRE_CLUSTER"):
        if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
            raise Unavailable("this user can't mount anything, not even for one process")
    mounts = "".join(
        f"mount -t tmpfs -o size={size} none {name} && " for name, size in (("disk", "512k"), ("scratch", "1m"))
    )
    done = subprocess.run(
        [*alone, "sh", "-c", f'{mounts}exec "$0" -c "$1"', sys.executable, DRIVER],
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads((tmp_path / "results.json").read_text())
    return found


def test_a_full_disk_is_reported_with_its_path_and_leaves_what_was_there(results: list[dict[str, Any]]) -> None:
    fits, full, scratch, again = results
    assert (fits["code"], again["code"]) == (ExitCode.OK, ExitCode.OK)
    assert (full["code"], scratch["code"]) == (ExitCode.FAILED, ExitCode.FAILED)
    assert full["error"].startswith(
        "error: write out has failed: project.yml, line 7: there is no space left on the disk of disk/out/data_id=x; "
    )
    assert full["error"].count("\n") == 1
    assert full["steps"][-1] == ["write out", "FAILED"]
    assert full["there"] == fits["there"]
    assert scratch["error"].startswith(
        "error: spread has failed: pipelines/q/spread.py, line 1: there is no space left "
    )
    assert scratch["error"].endswith(" scratch: free some, or let spark.local.dir name another one\n")
    assert scratch["steps"] == [
        ["read a", "DONE"],
        ["one", "DONE"],
        ["spread", "FAILED"],
        ["write elsewhere", "SKIPPED"],
    ]
