"""Destinations and sources of Hadoop's file systems, by real Spark: `file://`, or the folder DATAFLOW_TEST_LAKE.

The code is the same for all of them. An object store has jars and settings in the SPARK_CONF_DIR of who runs the tests.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest

from opendataflow.core.databases.attempts import Attempt, Result, Seen
from opendataflow.errors import Refused, StepFailed
from opendataflow.model.projects.project import Destination, Mode, parse_project
from opendataflow.names import ExitCode
from opendataflow.spark.pipeline.io.folders import FolderWriter
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.file_system import FileSystem
from opendataflow.spark.pipeline.storage.remote_staging import RemoteFolder
from tests.e2e.conftest import Inside
from tests.e2e.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10
STEPS = 8
"""How many changes an attempt makes in the file system, besides those of Spark."""
YML = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{name: a, path: "file://HERE/in-{data_id}.csv", schema: "id INT"}]
    transformations: [one]
    destination: {name: out, path: "file://HERE/out"}
"""


class Killed(BaseException):
    """The driver is gone."""


class Lake:
    """A destination, and attempts that write to it."""

    def __init__(self, spark: "SparkSession", home: str) -> None:
        self.spark = spark
        self.home = home
        self.files = FileSystem(spark, home, "line 7", {})
        self._project = OpenProject(Path(), parse_project(YML, "project.yml"))

    def write(
        self,
        version: int,
        fence: int | None = None,
        data_id: str = "1",
        mode: Mode = "replace-chunk",
        passed: Callable[[], object] = lambda: None,
    ) -> Result:
        """Write a chunk of which each row has the version. `passed`: called before it is committed."""
        frame = self.spark.range(0, ROWS, numPartitions=2).selectExpr("id", f"{version} AS version")
        to = Destination(name="out", path=self.home, format="json", mode=mode)

        def seen(_: object) -> Seen:
            passed()
            return Seen(ROWS, None)

        attempt = Attempt("out", data_id, token_hex(6), fence)
        return FolderWriter(self._project, to, attempt, "line 7").write(frame, seen)

    def fail(self, fence: int, mode: Mode = "replace-chunk") -> None:
        """Let an attempt begin, and fail before it writes anything."""
        home = RemoteFolder(self.spark, self.home, "line 7", {})
        chunk = None if mode == "replace" else "data_id=1"
        with suppress(StepFailed), home.staging(chunk, Attempt("out", "1", token_hex(6), fence)):
            raise StepFailed("no")

    def versions(self) -> set[tuple[str, int, int]]:
        """What there is to be read: chunk, version, and how many rows have it."""
        found = []
        for name in self.files.file_sizes(self.home):
            chunk, _, file = name.partition("/")
            if not chunk.startswith(".") and file.endswith(".json") and not file.startswith("_"):
                rows = (self.files.read(f"{self.home}/{name}") or "").splitlines()
                found += [(chunk.partition("=")[2], json.loads(row)["version"]) for row in rows]
        return {(*it, found.count(it)) for it in found}

    def marker(self, mode: Mode = "replace-chunk") -> dict[str, Any] | None:
        """What says that the folder is whole."""
        inside = "" if mode == "replace" else "/data_id=1"
        text = self.files.read(f"{self.home}{inside}/_opendataflow.json")
        report: dict[str, Any] | None = None if text is None else json.loads(text)
        return report

    def left(self) -> list[str]:
        """What attempts have left."""
        return [name for name in self.files.file_sizes(self.home.rpartition("/")[0]) if ".attempts/" in name]


@pytest.fixture(scope="module")
def spark_conf(spark_conf: Path) -> Path:
    return Path(os.environ["SPARK_CONF_DIR"]) if "DATAFLOW_TEST_LAKE" in os.environ else spark_conf


@pytest.fixture
def lake(spark: "SparkSession", tmp_path: Path) -> Iterator[Lake]:
    above = f"{os.environ.get('DATAFLOW_TEST_LAKE', tmp_path.as_uri())}/{token_hex(6)}"
    made = Lake(spark, f"{above}/lake")
    yield made
    made.files.delete(above)


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the driver die before its next changes but so many: nothing is done from then on, also no cleaning."""

    def at(step: int) -> None:
        left = itertools.count(step, -1)

        def dying(name: str) -> None:
            real = getattr(FileSystem, name)

            def call(*given: object) -> object:
                if next(left) <= 0:
                    raise Killed
                return real(*given)

            monkeypatch.setattr(FileSystem, name, call)

        for name in ("write", "write_once", "rename", "delete"):
            dying(name)

    return at


@pytest.mark.parametrize("mode", ["replace-chunk", "replace"])
def test_what_an_attempt_leaves_that_is_killed_at_any_step_is_fixed_by_the_next(
    lake: Lake, mode: Mode, kill: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(1, mode=mode, fence=1)
    fences, survived = itertools.count(2), False
    for step in itertools.count():
        before, after = lake.versions(), {("1", step + 2, ROWS)}
        kill(step)
        with suppress(Killed):
            lake.write(step + 2, mode=mode, fence=next(fences))
            survived = True
        monkeypatch.undo()
        assert lake.marker(mode) is None or lake.versions() in (before, after)
        lake.fail(next(fences), mode)
        assert lake.marker(mode)
        assert lake.versions() in (before, after)
        assert lake.left() == []
        if survived:
            break
    assert lake.versions() == after
    assert step == STEPS


def test_a_copy_that_was_interrupted_is_finished(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(1, fence=1)
    real = FileSystem.rename

    def half(files: FileSystem, one: str, other: str) -> None:
        file = next(name for name in files.file_sizes(one) if name.endswith(".json"))
        files.write(f"{other}/_made", "")
        real(files, f"{one}/{file}", f"{other}/{file}")
        raise Killed

    monkeypatch.setattr(FileSystem, "rename", half)
    with pytest.raises(Killed):
        lake.write(2, fence=2)
    monkeypatch.undo()
    assert lake.marker() is None
    assert lake.versions() == {("1", 2, ROWS // 2)}
    lake.fail(3)
    assert lake.marker()
    assert lake.versions() == {("1", 2, ROWS)}


def test_an_older_attempt_is_refused_before_it_works_and_before_it_commits(lake: Lake) -> None:
    lake.write(4, fence=4)
    with pytest.raises(Refused, match=r"knows a newer attempt of the chunk 1 \(fence 4\) than this one \(fence 3\)"):
        lake.write(3, fence=3, passed=lambda: pytest.fail("it has worked"))

    def meanwhile() -> None:
        with pytest.raises(Refused, match=r"fence 5.*fence 4"):
            lake.write(4, fence=4, passed=lambda: pytest.fail("it has worked"))

    lake.write(5, fence=5, passed=meanwhile)
    with pytest.raises(Refused, match=r"fence 7.*fence 6"):
        lake.write(6, fence=6, passed=lambda: lake.write(7, fence=7))
    assert lake.versions() == {("1", 7, ROWS)}
    lake.write(8)  # a person always may, and the fence stays
    with pytest.raises(StepFailed, match="another attempt of the chunk 1 has begun meanwhile: this one has written"):
        lake.write(9, passed=lambda: lake.write(10))
    marker = lake.marker()
    assert marker is not None
    assert (marker["fence"], marker["rows"]) == (7, ROWS)
    assert lake.versions() == {("1", 10, ROWS)}
    assert lake.left() == []


def test_a_chunk_is_appended_once_and_replace_takes_all_away(lake: Lake) -> None:
    lake.write(1, data_id="a:b", mode="append")
    lake.write(2, data_id="c", mode="append")
    assert lake.write(3, data_id="a:b", mode="append").kept
    assert lake.versions() == {("a%3Ab", 1, ROWS), ("c", 2, ROWS)}
    done = lake.write(4, data_id="d", mode="replace")
    assert lake.versions() == {("d", 4, ROWS)}
    assert (done.where, done.rows) == (f"{lake.home}/data_id=d", ROWS)
    assert done.bytes == sum(size for name, size in lake.files.file_sizes(lake.home).items() if "/part-" in name)


def test_a_pipeline_reads_and_writes_addresses(spark: "SparkSession", inside: Inside, tmp_path: Path) -> None:
    project = Project(tmp_path, inside)
    project.write("project.yml", YML.replace("HERE", str(tmp_path)))
    project.write("in-1.csv", "id\n1\n2\n")
    project.write("in-2.csv", "id\n3\n")
    project.write("in-3.csv", "")
    project.step("one", "def run(df):\n    return df\n")
    for data_id in ("1", "2"):
        answer = project.ask("run", "p", "--data-id", data_id)
        assert answer.code == ExitCode.OK, answer.err
    spark.range(5).write.parquet(str(tmp_path / "out/.attempts/data_id=1/0/rows"))  # of one at work: nobody reads it
    assert sorted(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2, 3]
    assert f"path: file://{tmp_path}/out" in project.ask("describe", "p", "-o", "yaml").out
    assert "in-3.csv: the file is empty" in project.ask("run", "p", "--data-id", "3").err
    missing = project.ask("run", "p", "--data-id", "4").err
    assert missing.startswith("error: read a has failed: project.yml, line 5: ")
    assert missing.endswith(f" file://{tmp_path}/in-4.csv\n")
    project.write("project.yml", YML.replace("HERE", str(tmp_path)).replace("file://", "abfss://"))
    refused = project.ask("run", "p", "--data-id", "1").err
    assert "read a has failed: project.yml, line 5: abfss://" in refused
    assert "spark.jars.packages org.apache.hadoop:hadoop-azure:3." in refused
    project.step("one", "def run(df):\n    return df.selectExpr('string(id) AS id')\n")
    project.write("project.yml", YML.replace("HERE", str(tmp_path)))
    assert "the column id is string, and int in the chunk 2" in project.ask("run", "p", "--data-id", "1").err
