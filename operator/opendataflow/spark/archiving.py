"""Make the archive of Spark's classes (see `class_archive`): in an image, on request, and in the background.

After a start of Spark without an archive, a detached background process makes the archive, so later starts are faster.
The process has the lowest priority and no output. This module needs only Python and Spark.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from opendataflow.spark import class_archive
from opendataflow.spark.class_archive import Archive

_REHEARSAL = Path(__file__).with_name("rehearsal.py")
_SECONDS = 600
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OF_USERS = ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables that could add other classes or settings to the archive."""
_OF_MACHINES = ("PATH", "HOME", "XDG_CACHE_HOME", "JAVA_HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
"""Variables for the background process: no secrets, and nothing that would make the process a part of a run."""
_ALONE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_SCALA_VERSION": "2.13"}
"""An image is built without name resolution. Spark's launcher requires a Scala version, but never uses it."""
_LOWEST_PRIORITY = 19
"""Niceness of the background process."""
_DRAFTS, _LOCK = ".spark-", "spark.lock"
_UNLESS_THERE = "unless-there"


class ArchivingFailed(Exception):
    """The archive can't be made. The text is one sentence for people."""


def make_archive(environ: Mapping[str, str], home: Path, python: str) -> Archive:
    """Make the archive: start the Spark in `home` once and execute the rehearsal. Takes half a minute.

    Waits for a concurrent process. Raises ArchivingFailed if Java or Spark fails, and OSError.
    """
    with _locked(environ, home, fcntl.LOCK_EX):
        return _make_locked(environ, home, python)


def _make_locked(environ: Mapping[str, str], home: Path, python: str) -> Archive:
    java = class_archive.find_java(environ)
    if java is None:
        raise ArchivingFailed(f"Spark needs {class_archive.explain_missing_java(environ)}")
    where = class_archive.archive_path(environ, home).parent
    with tempfile.TemporaryDirectory(dir=where, prefix=_DRAFTS) as folder:
        draft = Path(folder, "draft")
        own = {**environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python}
        _rehearse(str(java), draft, class_archive.class_path(home), own)
        return class_archive.install_archive(environ, home, draft)


def start_in_background(environ: Mapping[str, str], home: Path, python: str) -> None:
    """Start a detached process that makes the archive, if wanted. Its result is not reported."""
    if not class_archive.is_wanted(environ, home):
        return
    own = {name: environ[name] for name in _OF_MACHINES if name in environ} | {"SPARK_HOME": str(home)}
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    with suppress(OSError):
        os.posix_spawn(python, [python, "-P", "-m", __name__, _UNLESS_THERE], own, file_actions=silent, setsid=True)


def make_if_wanted(environ: Mapping[str, str], home: Path, python: str) -> None:
    """Make the archive if wanted and if no other process makes it. Record a failure."""
    with suppress(BlockingIOError), _locked(environ, home, fcntl.LOCK_EX | fcntl.LOCK_NB):
        if class_archive.is_wanted(environ, home):
            try:
                _make_locked(environ, home, python)
            except (ArchivingFailed, OSError) as error:
                class_archive.record_failure(environ, home, str(error))


@contextmanager
def _locked(environ: Mapping[str, str], home: Path, lock: int) -> Iterator[None]:
    """Lock the archive's folder, and delete drafts of killed processes."""
    where = class_archive.archive_path(environ, home).parent
    where.mkdir(parents=True, exist_ok=True)
    with (where / _LOCK).open("w") as held:
        fcntl.flock(held, lock)
        _clear(where)
        try:
            yield
        finally:
            _clear(where)  # again: the JVM of a killed process may have written for a while


def _clear(where: Path) -> None:
    for left in where.glob(f"{_DRAFTS}*"):
        shutil.rmtree(left, ignore_errors=True)


def _rehearse(java: str, draft: Path, class_path: str, environ: Mapping[str, str]) -> None:
    """Run the rehearsal in a JVM that writes the archive at its exit."""
    own = {name: value for name, value in environ.items() if name not in _OF_USERS} | _ALONE
    launcher = [java, "-cp", class_path, "org.apache.spark.launcher.Main", _SUBMIT, str(_REHEARSAL), str(draft.parent)]
    command = [word for word in _run_java(launcher, own).split("\0") if word.strip()]  # as Spark's scripts do
    command[command.index("-cp") + 1] = class_path
    _run_java([java, f"-XX:ArchiveClassesAtExit={draft}", *class_archive.QUIET, *command[1:]], own)
    if not draft.is_file():
        raise ArchivingFailed("Spark's classes can't be archived: this Java does not do so")


def _run_java(command: Sequence[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchivingFailed(f"Spark's classes can't be archived: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")][-1:]
        reasons = [*causes, *(line for line in lines if "Exception" in line or "Error" in line), *lines[-1:]]
        raise ArchivingFailed(
            f"Spark's classes can't be archived: {reasons[0] if reasons else f'exit code {done.returncode}'}"
        )
    return done.stdout


def _detach() -> None:
    """Close inherited files and leave the current folder."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")


def _lower_priority() -> None:
    """Use only idle resources of the machine."""
    os.nice(_LOWEST_PRIORITY)
    with suppress(OSError):  # Linux may schedule whole sessions by a niceness of their own
        Path("/proc/self/autogroup").write_text(str(_LOWEST_PRIORITY), "utf-8")


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Make the archive for SPARK_HOME: for an image, or as a background process."""
    home = Path(environ["SPARK_HOME"])
    if _UNLESS_THERE in arguments:
        _detach()
        _lower_priority()
        make_if_wanted(environ, home, sys.executable)
        return
    try:
        made = make_archive(environ, home, sys.executable)
    except ArchivingFailed as error:
        sys.exit(f"error: {error}")
    print(f"{made.file}: {made.file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
