"""The archive of Spark's classes: where it is, for which Spark it is used, and how Java is told."""

from pathlib import Path

import pytest

from opendataflow.spark import class_archive, driver
from opendataflow.spark.class_archive import Archive


class Place:
    """A folder with a Spark, and with an archive that is of it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "spark"
        self.file = folder / "cache" / "spark.jsa"
        self.class_path = f"{self.home}/jars/a.jar:{self.home}/jars/b.jar"
        self.file.parent.mkdir()
        self.file.write_bytes(b"classes")
        self.file.with_suffix(".jars").write_text(self.class_path)
        self.environ = {"DATAFLOW_SPARK_ARCHIVE": str(self.file)}

    def variables(self, **environ: str) -> dict[str, str]:
        return class_archive.variables({**self.environ, **environ}, self.home)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({"DATAFLOW_SPARK_ARCHIVE": "/x/y.jsa", "HOME": "/h"}, "/x/y.jsa"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/opendataflow/spark.jsa"),
        ({"HOME": "/h"}, "/h/.cache/opendataflow/spark.jsa"),
    ],
)
def test_it_is_where_the_variable_says_or_in_the_cache(environ: dict[str, str], kept: str) -> None:
    assert class_archive.place(environ) == Path(kept)


def test_its_jars_come_first_and_java_is_told_its_file(place: Place) -> None:
    told = place.variables(SPARK_SUBMIT_OPTS="-Dmine=1")
    assert told["PYSPARK_SUBMIT_ARGS"] == f"--driver-class-path {place.class_path} pyspark-shell"
    assert told["SPARK_SUBMIT_OPTS"].startswith(f"-Dmine=1 -XX:SharedArchiveFile={place.file} ")


def test_without_one_nothing_changes(place: Place) -> None:
    place.file.unlink()
    assert place.variables() == {}


def test_one_of_another_spark_is_not_used(place: Place, tmp_path: Path) -> None:
    assert class_archive.variables(place.environ, tmp_path / "another") == {}


def test_jars_that_a_user_puts_before_those_of_spark_stay_there(place: Place, tmp_path: Path) -> None:
    assert place.variables(PYSPARK_SUBMIT_ARGS="--driver-class-path /mine.jar pyspark-shell") == {}
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraClassPath /mine.jar\n")
    assert place.variables(SPARK_CONF_DIR=str(tmp_path)) == {}


def test_a_driver_in_a_pod_starts_from_it_unless_its_job_brings_classes_of_its_own(place: Place) -> None:
    order = driver.Order("main.py", (), {"spark.app.name": "x"}, None, 60.0)
    own = driver.Order("main.py", (), {"spark.driver.extraClassPath": "/mine.jar"}, None, 60.0)
    submit = str(place.home / "bin" / "spark-submit")
    assert driver._archive(order, place.environ, submit) == Archive(place.file, place.class_path)
    assert driver._archive(own, place.environ, submit) is None


def test_without_java_it_says_so_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    with pytest.raises(class_archive.NotMade, match="Java 17 or newer"):
        class_archive.make({"JAVA_HOME": str(tmp_path), **place.environ}, place.home, "python")
    assert [file.name for file in place.file.parent.iterdir()] == ["spark.jars", "spark.jsa"]


def test_what_java_says_is_told_where_it_fails(place: Place, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java.lang.Error: no room' >&2\nexit 3\n")
    java.chmod(0o755)
    with pytest.raises(class_archive.NotMade, match=r"can't be archived: java\.lang\.Error: no room"):
        class_archive.make({"JAVA_HOME": str(tmp_path), **place.environ}, place.home, "python")
    assert place.file.read_bytes() == b"classes"
