"""Client for Hadoop's file systems, in the JVM of the driver: object stores, HDFS, and others with a connector.

Paths are texts with a scheme. Files of rows are never opened.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from opendataflow.core.pipelines.file_system_errors import explain_file_system_error
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.spark_errors import list_error_texts

_CREATE_ONLY = "fs.option.create.conditional.overwrite"
"""Makes S3 itself refuse a second file of one name. File systems that always refuse ignore this option."""


@dataclass(frozen=True)
class FoundPath:
    """An existing file or folder. `path`: without a scheme. `size`: of a file, in bytes."""

    path: str
    size: int
    is_file: bool


class _Missing(StepFailed):
    """The path does not exist."""


class _Taken(StepFailed):
    """The path exists already."""


_FAILURES = {
    "FileNotFoundException": _Missing,
    "FileAlreadyExistsException": _Taken,
    "RemoteFileChangedException": _Taken,
}


class FileSystem:
    """The file system of one path. Every error is a StepFailed with the place in the project's file and a sentence."""

    def __init__(self, spark: SparkSession, where: str, place: str, options: Mapping[str, str]) -> None:
        """Open the file system of a path. `options`: of the source or destination, including the connector's."""
        self._jvm: Any = spark._jvm
        self._where = where
        self._place = place
        session: Any = spark._jsparkSession
        with self._explained():
            settings = session.sessionState().newHadoopConf()
            for name, value in options.items():
                settings.set(name, value)
            self._fs: Any = self._path(where).getFileSystem(settings)

    def list_matches(self, pattern: str) -> list[FoundPath]:
        """Return the files and folders that match a path with Hadoop's wildcards."""
        with self._explained():
            matches = self._fs.globStatus(self._path(pattern)) or ()
            return [FoundPath(it.getPath().toUri().getPath(), it.getLen(), it.isFile()) for it in matches]

    def file_sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of all files below a folder in bytes, by relative path. A missing folder has no files."""
        found: dict[str, int] = {}
        try:
            with self._explained():
                start = f"{self._fs.makeQualified(self._path(folder)).toString()}/"
                files = self._fs.listFiles(self._path(folder), True)
                while files.hasNext():
                    file = files.next()
                    found[file.getPath().toString().removeprefix(start)] = file.getLen()
        except _Missing:
            return {}
        return found

    def list_names(self, folder: str) -> Iterator[str]:
        """Yield the names of files and folders in a folder. A missing folder has none."""
        try:
            with self._explained():
                inside = self._fs.listStatusIterator(self._path(f"{folder}/"))
                while inside.hasNext():
                    yield inside.next().getPath().getName()
        except _Missing:
            return

    def read(self, file: str) -> str | None:
        """Return the text of a small file, or None if the file is missing."""
        try:
            with self._explained():
                opened = self._fs.open(self._path(file))
                try:
                    return bytes(opened.readAllBytes()).decode("utf-8", "replace")
                finally:
                    opened.close()
        except _Missing:
            return None

    def write(self, file: str, text: str) -> None:
        """Write a small file. Replace an existing one."""
        with self._explained():
            self._fill(self._fs.create(self._path(file), True), text)

    def write_once(self, file: str, text: str) -> bool:
        """Write a small file. Return False if the file exists already or another writer was first."""
        try:
            with self._explained():
                wanted = self._fs.createFile(self._path(file)).recursive().overwrite(False)
                self._fill(wanted.opt(_CREATE_ONLY, "true").build(), text)
        except _Taken:
            return False
        return True

    @staticmethod
    def _fill(opened: Any, text: str) -> None:
        """Write and close. An object store creates or refuses the file when the file is closed."""
        try:
            opened.write(text.encode())
        finally:
            opened.close()

    def rename(self, one: str, other: str) -> None:
        """Rename a file or folder, if present, to an unused name. Object stores copy a folder file by file."""
        try:
            with self._explained():
                if not self._fs.rename(self._path(one), self._path(other)) and self._fs.exists(self._path(one)):
                    raise StepFailed(f"{self._place}: {one}: can't be renamed to {other}")
        except _Missing:
            return

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content, if present."""
        try:
            with self._explained():
                self._fs.delete(self._path(path), True)
        except _Missing:
            return

    def delete_if_empty(self, folder: str) -> None:
        """Delete an empty folder."""
        with suppress(StepFailed), self._explained():
            self._fs.delete(self._path(folder), False)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate errors of Hadoop to StepFailed."""
        try:
            yield
        except (Py4JJavaError, PySparkException) as error:
            hadoop = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
            kind = error.java_exception.getClass().getSimpleName() if isinstance(error, Py4JJavaError) else ""
            failed = _FAILURES.get(kind, StepFailed)
            sentence = explain_file_system_error(self._where, list_error_texts(error), hadoop)
            raise failed(f"{self._place}: {sentence}") from None
