"""Makes the archive of Spark's classes (`class_archive`): in an image, where it is asked for, and without being asked.

Who starts Spark without one leaves a process behind that makes it, when all else is done: the next starts are quicker.
That process is nobody's, gives way to all others, and says nothing. It needs Python, Spark and nothing else.
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
"""What would bring other classes, or settings that the archive is not of."""
_OF_MACHINES = ("PATH", "HOME", "XDG_CACHE_HOME", "JAVA_HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR")
"""What the process that is left behind gets: no secrets, and nothing by which it would be part of a run."""
_ALONE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_SCALA_VERSION": "2.13"}
"""An image is built where names are not known; and Spark's launcher asks which Scala it is of, but never uses that."""
_LEAST = 19
"""How nice the process is that is left behind."""
_DRAFTS, _LOCK = ".spark-", "spark.lock"
_UNLESS_THERE = "unless-there"


class NotMade(Exception):
    """The archive can't be made; the text is one sentence for people."""


def make(environ: Mapping[str, str], home: Path, python: str) -> Archive:
    """Make the archive anew: start the Spark in `home` once and let it do what runs do. Takes half a minute.

    Who makes one at the same time is waited for. Raises NotMade where Java or Spark can't do that, and OSError.
    """
    with _alone(environ, home, fcntl.LOCK_EX):
        return _make(environ, home, python)


def _make(environ: Mapping[str, str], home: Path, python: str) -> Archive:
    java = class_archive.java_of(environ)
    if java is None:
        raise NotMade(f"Spark needs {class_archive.no_java(environ)}")
    where = class_archive.place(environ, home).parent
    with tempfile.TemporaryDirectory(dir=where, prefix=_DRAFTS) as folder:
        draft = Path(folder, "draft")
        own = {**environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python}
        _rehearse(str(java), draft, class_archive.class_path(home), own)
        return class_archive.keep(environ, home, draft)


def leave_behind(environ: Mapping[str, str], home: Path, python: str) -> None:
    """Start a process that makes the archive, where it is wanted. Nobody waits for it, and nobody hears of it."""
    if not class_archive.is_wanted(environ, home):
        return
    own = {name: environ[name] for name in _OF_MACHINES if name in environ} | {"SPARK_HOME": str(home)}
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    with suppress(OSError):
        os.posix_spawn(python, [python, "-P", "-m", __name__, _UNLESS_THERE], own, file_actions=silent, setsid=True)


def make_unless_there(environ: Mapping[str, str], home: Path, python: str) -> None:
    """Make it where it is wanted and nobody else is about to; remember it where it can't be made."""
    with suppress(BlockingIOError), _alone(environ, home, fcntl.LOCK_EX | fcntl.LOCK_NB):
        if class_archive.is_wanted(environ, home):
            try:
                _make(environ, home, python)
            except (NotMade, OSError) as error:
                class_archive.give_up(environ, home, str(error))


@contextmanager
def _alone(environ: Mapping[str, str], home: Path, lock: int) -> Iterator[None]:
    """Be the only one who makes it, and clear away what one that was killed has left."""
    where = class_archive.place(environ, home).parent
    where.mkdir(parents=True, exist_ok=True)
    with (where / _LOCK).open("w") as held:
        fcntl.flock(held, lock)
        _clear(where)
        try:
            yield
        finally:
            _clear(where)  # once more: the Java of who was killed may have gone on for a while


def _clear(where: Path) -> None:
    for left in where.glob(f"{_DRAFTS}*"):
        shutil.rmtree(left, ignore_errors=True)


def _rehearse(java: str, draft: Path, class_path: str, environ: Mapping[str, str]) -> None:
    """Run the rehearsal in a JVM that writes the archive when it ends."""
    own = {name: value for name, value in environ.items() if name not in _OF_USERS} | _ALONE
    launcher = [java, "-cp", class_path, "org.apache.spark.launcher.Main", _SUBMIT, str(_REHEARSAL), str(draft.parent)]
    command = [word for word in _run(launcher, own).split("\0") if word.strip()]  # as Spark's own scripts would run it
    command[command.index("-cp") + 1] = class_path
    _run([java, f"-XX:ArchiveClassesAtExit={draft}", *class_archive.QUIET, *command[1:]], own)
    if not draft.is_file():
        raise NotMade("Spark's classes can't be archived: this Java does not do so")


def _run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMade(f"Spark's classes can't be archived: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")][-1:]
        said = [*causes, *(line for line in lines if "Exception" in line or "Error" in line), *lines[-1:]]
        raise NotMade(f"Spark's classes can't be archived: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _let_go() -> None:
    """Keep nothing of who has started this: no pipe or lock that was handed down, and no folder."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")


def _give_way() -> None:
    """Take what is left of the machine."""
    os.nice(_LEAST)
    with suppress(OSError):  # Linux may weigh sessions, which have a niceness of their own, and only then processes
        Path("/proc/self/autogroup").write_text(str(_LEAST), "utf-8")


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
    """Make the archive for SPARK_HOME: that of an image, or one that nobody waits for."""
    home = Path(environ["SPARK_HOME"])
    if _UNLESS_THERE in arguments:
        _let_go()
        _give_way()
        make_unless_there(environ, home, sys.executable)
        return
    try:
        made = make(environ, home, sys.executable)
    except NotMade as error:
        sys.exit(f"error: {error}")
    print(f"{made.file}: {made.file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
