"""The archive of Spark's classes: its path, its validity, its maker, the options of Java."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opendataflow.spark import archiving, class_archive, driver
from opendataflow.spark.class_archive import Archive

LEFT_BEHIND = f"""\
#!{sys.executable}
import json, os, sys
with open("FILE", "w") as file:
    json.dump([sys.argv[1:], dict(os.environ), os.getsid(0) == os.getpid()], file)
"""


class Place:
    """A folder with a Spark, a Java that fails, and an archive that is of them."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "spark"
        self.calls = folder / "calls"
        self.class_path = f"{self.home}/jars/a.jar:{self.home}/jars/b.jar"
        for jar in self.class_path.split(":"):
            Path(jar).parent.mkdir(parents=True, exist_ok=True)
            Path(jar).write_text("classes")
        self.java("17", folder)
        self.environ = {"JAVA_HOME": str(folder / "java"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.file.parent.mkdir(parents=True)

    @property
    def file(self) -> Path:
        return class_archive.archive_path(self.environ, self.home)

    @property
    def lock(self) -> Path:
        return self.file.with_name("spark.lock")

    def java(self, version: str, folder: Path, does: str = ":") -> None:
        java = folder / "java" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!/bin/sh\necho call >>{self.calls}\n{does}\necho 'java.lang.Error: no room' >&2\nexit 3\n")
        java.chmod(0o755)
        (folder / "java" / "release").write_text(f'JAVA_VERSION="{version}"\n')

    def kept(self) -> "Place":
        draft = self.home / "draft"
        draft.write_bytes(b"classes")
        class_archive.install_archive(self.environ, self.home, draft)
        return self

    def variables(self, **environ: str) -> dict[str, str]:
        return class_archive.pyspark_variables({**self.environ, **environ}, self.home)

    def is_wanted(self, **environ: str) -> bool:
        return class_archive.is_wanted({**self.environ, **environ}, self.home)

    def make_unless_there(self) -> int:
        """Return how often Java was called by now."""
        archiving.make_if_wanted(self.environ, self.home, "python")
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c"),
        ({"HOME": "/h"}, "/h/.cache"),
        ({"XDG_CACHE_HOME": "cache", "HOME": "/h"}, "/h/.cache"),
    ],
)
def test_the_path_comes_from_the_variable_or_the_cache(place: Place, environ: dict[str, str], folder: str) -> None:
    assert class_archive.archive_path(environ, place.home).parent == Path(folder, "opendataflow")
    assert class_archive.archive_path({"DATAFLOW_SPARK_ARCHIVE": "/x/y.jsa", **environ}, place.home) == Path("/x/y.jsa")


def test_a_user_without_a_home_uses_the_root_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 5)
    assert class_archive.archive_path({}, place.home).parent == Path("/.cache/opendataflow")


def test_each_spark_has_its_own_and_the_oldest_of_many_goes(place: Place, tmp_path: Path) -> None:
    kept = []
    for version in range(17, 22):
        place.java(str(version), tmp_path)
        kept.append(place.kept().file)
        os.utime(kept[-1], (version, version))
    there = [*place.file.parent.glob("*.jsa")]
    assert sorted(there) == sorted(kept[-3:])
    place.java("20", tmp_path)
    assert place.variables() != {}


def test_jars_of_the_archive_come_first_and_java_gets_its_file(place: Place) -> None:
    variables = place.kept().variables(SPARK_SUBMIT_OPTS="-Dmine=1")
    assert variables["PYSPARK_SUBMIT_ARGS"] == f"--driver-class-path {place.class_path} pyspark-shell"
    assert variables["SPARK_SUBMIT_OPTS"].startswith(f"-Dmine=1 -XX:SharedArchiveFile={place.file} ")


def test_without_one_nothing_changes(place: Place) -> None:
    assert place.variables() == {}
    place.kept().file.unlink()
    assert place.variables() == {}


def test_one_of_another_spark_or_another_java_is_not_used(place: Place, tmp_path: Path) -> None:
    assert class_archive.pyspark_variables(place.kept().environ, tmp_path / "another") == {}
    jar = place.home / "jars" / "a.jar"
    os.utime(jar, (1, 1))  # as if it was installed again
    assert place.variables() == {}
    assert place.kept().variables() != {}
    place.java("21", tmp_path)
    assert place.variables() == {}


def test_jars_that_a_user_puts_before_those_of_spark_stay_there(place: Place, tmp_path: Path) -> None:
    place.kept()
    assert place.variables(PYSPARK_SUBMIT_ARGS="--driver-class-path /mine.jar pyspark-shell") == {}
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraClassPath /mine.jar\n")
    assert place.variables(SPARK_CONF_DIR=str(tmp_path)) == {}


def test_a_driver_in_a_pod_starts_from_it_unless_its_job_brings_classes_of_its_own(place: Place) -> None:
    order = driver.Order("main.py", (), {"spark.app.name": "x"}, None, 60.0)
    own = driver.Order("main.py", (), {"spark.driver.extraClassPath": "/mine.jar"}, None, 60.0)
    submit = str(place.kept().home / "bin" / "spark-submit")
    assert driver._archive(order, place.environ, submit) == Archive(place.file, place.class_path)
    assert driver._archive(own, place.environ, submit) is None


def test_missing_java_is_reported_and_leaves_no_files(place: Place, tmp_path: Path) -> None:
    with pytest.raises(archiving.ArchivingFailed, match="Java 17 or newer"):
        archiving.make_archive({**place.environ, "JAVA_HOME": str(tmp_path)}, place.home, "python")
    assert [*place.file.parent.iterdir()] == [place.lock]


def test_a_failure_of_java_is_reported_and_an_earlier_archive_stays(place: Place) -> None:
    place.kept()
    with pytest.raises(archiving.ArchivingFailed, match=r"can't be archived: java\.lang\.Error: no room"):
        archiving.make_archive(place.environ, place.home, "python")
    assert place.file.read_bytes() == b"classes"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, True, id="nothing is written about it"),
        pytest.param({"DATAFLOW_SPARK_ARCHIVE": "off"}, False, id="its place is named"),
        pytest.param({"XDG_CACHE_HOME": "/dev/null"}, False, id="it can't be kept"),
        pytest.param({"PYSPARK_GATEWAY_PORT": "1"}, False, id="spark-submit has started the JVM"),
        pytest.param({"PYSPARK_SUBMIT_ARGS": "--driver-class-path /m.jar pyspark-shell"}, False, id="of no use"),
    ],
)
def test_a_useful_archive_is_made_unless_the_variable_is_set(place: Place, given: dict[str, str], wanted: bool) -> None:
    assert place.is_wanted(**given) == wanted
    assert not place.kept().is_wanted(**given)


def test_a_failure_prevents_new_tries_for_a_day_with_the_same_java(place: Place, tmp_path: Path) -> None:
    assert place.is_wanted()
    assert (place.make_unless_there(), place.make_unless_there()) == (1, 1)
    assert not place.is_wanted()
    place.java("21", tmp_path)
    assert place.make_unless_there() == 2
    os.utime(place.file.with_suffix(".failed"), (1, 1))
    assert place.make_unless_there() == 3


def test_leftovers_of_a_killed_process_are_deleted_by_the_next(place: Place, tmp_path: Path) -> None:
    left = place.file.parent / ".spark-killed" / "draft"
    left.parent.mkdir()
    left.write_bytes(b"half of the classes")
    place.java("17", tmp_path, f"mkdir {left.parent}")  # as a Java does that goes on
    place.make_unless_there()
    assert not left.parent.exists()


def test_the_background_process_inherits_no_files(place: Place, tmp_path: Path) -> None:
    place.java(
        "17", tmp_path, f"readlink /proc/$PPID/cwd >{tmp_path}/written; readlink /proc/$PPID/fd/* >>{tmp_path}/written"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    with (tmp_path / "held").open("w") as held:
        command = [sys.executable, "-P", "-m", "opendataflow.spark.archiving", "unless-there"]
        environ = {**os.environ, **place.environ, "SPARK_HOME": str(place.home)}
        del environ["DATAFLOW_SPARK_ARCHIVE"]
        subprocess.run(command, env=environ, cwd=gone, pass_fds=[held.fileno()], check=True)
    written = (tmp_path / "written").read_text()
    assert written.startswith("/\n")
    assert str(place.lock) in written
    assert "/held" not in written


def test_while_one_makes_it_others_do_not(place: Place) -> None:
    with place.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert place.make_unless_there() == 0
    assert place.make_unless_there() == 1


def test_the_background_process_gets_no_variables_of_a_run_and_no_secrets(place: Place, tmp_path: Path) -> None:
    written, program = tmp_path / "written", tmp_path / "python"
    os.mkfifo(written)
    program.write_text(LEFT_BEHIND.replace("FILE", str(written)))
    program.chmod(0o755)
    run = {"SHOP_PASSWORD": "hush", "DATAFLOW_CONTEXT": "/runs/1/context.json", "SPARK_CONF_DIR": "/mine"}
    archiving.start_in_background({**place.environ, **run}, place.home, str(program))
    arguments, environ, leads_a_session = json.loads(written.read_text())
    assert arguments == ["-P", "-m", "opendataflow.spark.archiving", "unless-there"]
    assert {**environ, "LC_CTYPE": ""} == {**place.environ, "SPARK_HOME": str(place.home), "LC_CTYPE": ""}
    assert leads_a_session
