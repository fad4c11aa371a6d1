"""The door to Hadoop's file systems, in the JVM of the driver: object stores, HDFS, and all else that has a connector.

Paths are texts with a scheme. It knows nothing of chunks, and never looks into files of rows.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opendataflow.core.pipelines.file_systems import why_not
from opendataflow.errors import StepFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONLY_ONE = "fs.option.create.conditional.overwrite"
"""Let S3 itself refuse a second file of one name. File systems that refuse it anyway do not know this option."""


@dataclass(frozen=True)
class Found:
    """Something that is there. `path`: without a scheme. `size`: of a file in bytes."""

    path: str
    size: int
    is_file: bool


LOCAL = "file://"
"""Before a path of this machine: Hadoop may be told of another file system that paths without a scheme are of."""


def literally(path: str) -> str:
    """Return a path whose wildcards mean themselves, where Hadoop looks for some."""
    return re.sub(r"[*?{}\[\]\\]", r"\\\g<0>", path)


class _Missing(StepFailed):
    """What was asked for is not there."""


class _Taken(StepFailed):
    """What was to be made is there already."""


_FAILURES = {
    "FileNotFoundException": _Missing,
    "FileAlreadyExistsException": _Taken,
    "RemoteFileChangedException": _Taken,
}


class FileSystem:
    """The file system of one path. Every error is a StepFailed with the place in the project's file and a sentence."""

    def __init__(self, spark: "SparkSession", where: str, place: str, options: Mapping[str, str]) -> None:
        """`options`: of the source or destination; those of the connector are among them."""
        self._jvm: Any = spark._jvm
        self._where = where
        self._place = place
        session: Any = spark._jsparkSession
        with self._told():
            settings = session.sessionState().newHadoopConf()
            for name, value in options.items():
                settings.set(name, value)
            self._fs: Any = self._path(where).getFileSystem(settings)

    def found(self, pattern: str) -> list[Found]:
        """Return what a path names, which may have the wildcards of Hadoop."""
        with self._told():
            there = self._fs.globStatus(self._path(pattern)) or ()
            return [Found(it.getPath().toUri().getPath(), it.getLen(), it.isFile()) for it in there]

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of all files below a folder, by their path in it. None are there where it is not."""
        found: dict[str, int] = {}
        try:
            with self._told():
                start = f"{self._fs.makeQualified(self._path(folder)).toString()}/"
                files = self._fs.listFiles(self._path(folder), True)
                while files.hasNext():
                    file = files.next()
                    found[file.getPath().toString().removeprefix(start)] = file.getLen()
        except _Missing:
            return {}
        return found

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of what is in a folder, if it is there."""
        try:
            with self._told():
                inside = self._fs.listStatusIterator(self._path(f"{folder}/"))
                while inside.hasNext():
                    yield inside.next().getPath().getName()
        except _Missing:
            return

    def read(self, file: str) -> str | None:
        """Return the text of a small file; None where it is not there."""
        try:
            with self._told():
                opened = self._fs.open(self._path(file))
                try:
                    return bytes(opened.readAllBytes()).decode("utf-8", "replace")
                finally:
                    opened.close()
        except _Missing:
            return None

    def write(self, file: str, text: str) -> None:
        """Write a small file, in place of one that is there."""
        with self._told():
            self._fill(self._fs.create(self._path(file), True), text)

    def write_once(self, file: str, text: str) -> bool:
        """Write a small file; False where one of that name is there, or somebody else was first."""
        try:
            with self._told():
                wanted = self._fs.createFile(self._path(file)).recursive().overwrite(False)
                self._fill(wanted.opt(_ONLY_ONE, "true").build(), text)
        except _Taken:
            return False
        return True

    @staticmethod
    def _fill(opened: Any, text: str) -> None:
        """Write and close: a file of an object store is there only then, or refused."""
        try:
            opened.write(text.encode())
        finally:
            opened.close()

    def rename(self, one: str, other: str) -> None:
        """Let a file or folder, if it is there, have another name, which nothing has. Object stores copy what is in
        it, file by file."""
        try:
            with self._told():
                if not self._fs.rename(self._path(one), self._path(other)) and self._fs.exists(self._path(one)):
                    raise StepFailed(f"{self._place}: {one}: can't be renamed to {other}")
        except _Missing:
            return

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it, if it is there."""
        try:
            with self._told():
                self._fs.delete(self._path(path), True)
        except _Missing:
            return

    def tidy(self, folder: str) -> None:
        """Delete a folder that has nothing in it."""
        with suppress(StepFailed), self._told():
            self._fs.delete(self._path(folder), False)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    @contextmanager
    def _told(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from opendataflow.spark.pipeline.errors.spark_errors import texts_of

        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            hadoop = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            kind = error.java_exception.getClass().getSimpleName() if isinstance(error, Py4JJavaError) else ""
            failed = _FAILURES.get(kind, StepFailed)
            raise failed(f"{self._place}: {why_not(self._where, texts_of(error), hadoop)}") from None
