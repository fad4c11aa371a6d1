"""Keeps Spark's classes as Java has them in memory, so that a JVM for Spark starts in two thirds of the time.

To start Spark, Java reads, checks and links ten thousand classes. An archive of them (class data sharing, JEP 350) is
mapped instead. It is good for the jars that it was made of, which have to come first in the class path, and for the
Java that made it; for others Java starts as ever. Nothing depends on it. This needs Python, Spark and nothing else.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opendataflow.names import SPARK_ARCHIVE

_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java says on standard output that an archive is of other jars or another Java."""

_CLASS_PATH = ("--driver-class-path", "spark.driver.extraClassPath")
"""How users bring jars that come before Spark's."""

_REHEARSAL = Path(__file__).with_name("rehearsal.py")
_SECONDS = 600
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_OF_USERS = ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""What would bring other classes, or settings that the archive is not of."""
_ALONE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_SCALA_VERSION": "2.13"}
"""An image is built where names are not known; and Spark's launcher asks which Scala it is of, but never uses that."""


class NotMade(Exception):
    """The archive can't be made; the text is one sentence for people."""


@dataclass(frozen=True)
class Archive:
    """An archive, and the class path that it is of."""

    file: Path
    class_path: str

    @property
    def options(self) -> tuple[str, ...]:
        """Java's options."""
        return (f"-XX:SharedArchiveFile={self.file}", *_QUIET)


def place(environ: Mapping[str, str]) -> Path:
    """Return where the archive is kept: DATAFLOW_SPARK_ARCHIVE, or a file in the user's cache."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return Path(environ.get(SPARK_ARCHIVE) or Path(cache, "opendataflow", "spark.jsa"))


def found(environ: Mapping[str, str], home: Path) -> Archive | None:
    """Return the archive for the Spark in `home`; None where there is none, or one of another Spark."""
    file = place(environ)
    try:
        class_path = _jars_of(file).read_text("utf-8")
    except OSError:
        return None
    same = file.is_file() and all(Path(jar).parent == home / "jars" for jar in class_path.split(":"))
    return Archive(file, class_path) if same else None


def variables(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables that let pyspark start its JVM from the archive; none where it can't."""
    archive = found(environ, home)
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if archive is None or any(word in text for word in _CLASS_PATH for text in (arguments, _defaults(environ, home))):
        return {}
    return {
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {shlex.quote(archive.class_path)} {arguments}",
        **submit_variables(environ, archive),
    }


def submit_variables(environ: Mapping[str, str], archive: Archive) -> dict[str, str]:
    """Return the variables that give `spark-submit` Java's options, beside those that are there."""
    return {"SPARK_SUBMIT_OPTS": f"{environ.get('SPARK_SUBMIT_OPTS', '')} {shlex.join(archive.options)}".strip()}


def make(environ: Mapping[str, str], home: Path, python: str) -> Archive:
    """Make the archive anew: start the Spark in `home` once and let it do what runs do. Takes half a minute.

    Raises NotMade where Java or Spark can't do that; then there is no archive.
    """
    archive = Archive(place(environ), ":".join(str(jar) for jar in sorted((home / "jars").glob("*.jar"))))
    java = Path(environ["JAVA_HOME"], "bin", "java") if environ.get("JAVA_HOME") else shutil.which("java")
    if java is None or not Path(java).is_file():
        raise NotMade("Spark needs Java 17 or newer, which is not there")
    archive.file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.file.parent, prefix=".spark-") as folder:
        draft = Path(folder, "draft")
        _rehearse(str(java), draft, archive.class_path, {**environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": python})
        _jars_of(archive.file).unlink(missing_ok=True)
        draft.chmod(0o644)
        draft.replace(archive.file)
        _jars_of(archive.file).write_text(archive.class_path, "utf-8")
    return archive


def _rehearse(java: str, draft: Path, class_path: str, environ: Mapping[str, str]) -> None:
    """Run the rehearsal in a JVM that writes the archive when it ends."""
    own = {name: value for name, value in environ.items() if name not in _OF_USERS} | _ALONE
    launcher = [java, "-cp", class_path, "org.apache.spark.launcher.Main", _SUBMIT, str(_REHEARSAL), str(draft.parent)]
    command = [word for word in _run(launcher, own).split("\0") if word.strip()]  # as Spark's own scripts would run it
    command[command.index("-cp") + 1] = class_path
    _run([java, f"-XX:ArchiveClassesAtExit={draft}", *_QUIET, *command[1:]], own)
    if not draft.is_file():
        raise NotMade("Spark's classes can't be archived: this Java does not do so")


def _run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMade(f"Spark's classes can't be archived: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines()]
        causes = [line for line in lines if line.startswith("Caused by:")][-1:]
        said = [*causes, *(line for line in lines if "Exception" in line or "Error" in line)]
        raise NotMade(f"Spark's classes can't be archived: {said[0] if said else f'exit code {done.returncode}'}")
    return done.stdout


def _jars_of(file: Path) -> Path:
    """The file beside an archive that has its class path."""
    return file.with_suffix(".jars")


def _defaults(environ: Mapping[str, str], home: Path) -> str:
    folder = Path(environ.get("SPARK_CONF_DIR") or home / "conf")
    try:
        return (folder / "spark-defaults.conf").read_text("utf-8", "replace")
    except OSError:
        return ""


def main(environ: Mapping[str, str] = os.environ) -> None:
    """Make the archive of an image, which has SPARK_HOME."""
    try:
        made = make(environ, Path(environ["SPARK_HOME"]), sys.executable)
    except NotMade as error:
        sys.exit(f"error: {error}")
    print(f"{made.file}: {made.file.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
