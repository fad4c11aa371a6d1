"""Find and install an archive of Spark's loaded classes. With the archive, a JVM starts in two thirds of the time.

To start Spark, Java reads, verifies and links ten thousand classes. Java maps an archive (class data sharing, JEP 350)
into memory instead. An archive is valid for one version of Java and for the jars that it was made of, first in the
class path. In all other cases Java starts without the archive. `archiving` makes archives. This module needs only
Python and Spark.
"""

import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.names import SPARK_ARCHIVE
from opendataflow.spark.properties import parse_properties

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Suppresses Java's warnings on standard output about an archive of other jars or another Java."""

_CLASS_PATH = ("--driver-class-path", "spark.driver.extraClassPath")
"""The settings that put users' jars before Spark's jars."""

_ARGUMENTS = "pyspark-shell"
"""pyspark's default for PYSPARK_SUBMIT_ARGS."""

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set if another program has started the JVM."""


_KEPT, _MOST = "spark-", 3
"""Prefix of archives, and the number of archives to keep: each virtual environment has its own Spark."""

_DAY = 24 * 3600


@dataclass(frozen=True)
class _Slot:
    """The path of the archive for one Spark and Java. `of`: their identity."""

    file: Path
    of: str

    @property
    def label(self) -> Path:
        """The file with the identity of the archive."""
        return self.file.with_suffix(".json")

    @property
    def failed(self) -> Path:
        """The file with the reason why the archive can't be made."""
        return self.file.with_suffix(".failed")


@dataclass(frozen=True)
class Archive:
    """An archive and its class path."""

    file: Path
    class_path: str

    @property
    def options(self) -> tuple[str, ...]:
        """The options for Java."""
        return (f"-XX:SharedArchiveFile={self.file}", *QUIET)


def archive_path(environ: Mapping[str, str], home: Path) -> Path:
    """Return the archive's path: DATAFLOW_SPARK_ARCHIVE, or a path in the user's cache for this Spark and Java."""
    return _slot(environ, home).file


def find_archive(environ: Mapping[str, str], home: Path) -> Archive | None:
    """Return the valid archive for the Spark in `home`, or None."""
    slot = _slot(environ, home)
    return Archive(slot.file, class_path(home)) if _is_valid(slot) else None


def pyspark_variables(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables that make pyspark start its JVM from the archive, or {}."""
    archive = find_archive(environ, home)
    if archive is None or not _uses_spark_jars_only(environ, home):
        return {}
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", _ARGUMENTS)
    return {
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {shlex.quote(archive.class_path)} {arguments}",
        **submit_variables(environ, archive),
    }


def submit_variables(environ: Mapping[str, str], archive: Archive) -> dict[str, str]:
    """Return the variable that adds Java's options to the existing ones of `spark-submit`."""
    return {"SPARK_SUBMIT_OPTS": f"{environ.get('SPARK_SUBMIT_OPTS', '')} {shlex.join(archive.options)}".strip()}


def is_wanted(environ: Mapping[str, str], home: Path) -> bool:
    """Return whether to make the archive in the background: a usable archive is missing.

    Return False if DATAFLOW_SPARK_ARCHIVE is set: its owner makes the archive. Return False for a day after a failure,
    which may be a full disk.
    """
    if environ.get(SPARK_ARCHIVE) or environ.get(_GATEWAY) or not _uses_spark_jars_only(environ, home):
        return False
    slot = _slot(environ, home)
    return _is_writable(slot) and not _is_valid(slot) and not _has_failed(slot)


def install_archive(environ: Mapping[str, str], home: Path, draft: Path) -> Archive:
    """Move a new archive for the Spark in `home` to its path."""
    slot = _slot(environ, home)
    slot.label.unlink(missing_ok=True)
    draft.chmod(0o644)
    draft.replace(slot.file)
    _write(slot.label, {"of": slot.of})
    if not environ.get(SPARK_ARCHIVE):
        made = sorted(slot.file.parent.glob(f"{_KEPT}*.jsa"), key=lambda it: it.stat().st_mtime)
        for oldest in made[:-_MOST]:
            oldest.unlink()
            _Slot(oldest, "").label.unlink(missing_ok=True)
    return Archive(slot.file, class_path(home))


def record_failure(environ: Mapping[str, str], home: Path, why: str) -> None:
    """Record that the archive can't be made."""
    slot = _slot(environ, home)
    _write(slot.failed, {"of": slot.of, "why": why})


def class_path(home: Path) -> str:
    """Return all jars of the Spark in `home` as a class path."""
    return ":".join(str(jar) for jar in _jars(home))


def find_java(environ: Mapping[str, str]) -> Path | None:
    """Return the Java that Spark's scripts would start, or None."""
    named = environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{named}/bin" if named else environ.get("PATH"))
    return Path(java) if java else None


def explain_missing_java(environ: Mapping[str, str]) -> str:
    """Describe the missing Java, for a message."""
    named = environ.get("JAVA_HOME")
    return "Java 17 or newer, which is not " + (f"in {named}, which JAVA_HOME names" if named else "there")


def _home_of(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder, or `/` for a user without one, as in containers."""
    try:
        home = Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:
        home = Path()
    return home if home.is_absolute() else Path("/")


def _slot(environ: Mapping[str, str], home: Path) -> _Slot:
    of = _identity(environ, home)
    if environ.get(SPARK_ARCHIVE):
        return _Slot(Path(environ[SPARK_ARCHIVE]), of)
    named = Path(environ.get("XDG_CACHE_HOME", ""))  # by its specification, a relative path is ignored
    cache = named if named.is_absolute() else _home_of(environ) / ".cache"
    return _Slot(cache / "opendataflow" / f"{_KEPT}{of[:12]}.jsa", of)


def _is_valid(slot: _Slot) -> bool:
    return _read(slot.label).get("of") == slot.of and slot.file.is_file()


def _is_writable(slot: _Slot) -> bool:
    """Return whether the folder of the archive can be written or created."""
    there = next(it for it in slot.file.parents if os.access(it, os.F_OK))
    return os.access(there, os.W_OK | os.X_OK)


def _has_failed(slot: _Slot) -> bool:
    return _read(slot.failed).get("of") == slot.of and time.time() - slot.failed.stat().st_mtime < _DAY


def _write(label: Path, known: Mapping[str, str]) -> None:
    label.write_text(json.dumps(known), "utf-8")


def _read(label: Path) -> dict[str, str]:
    try:
        known = json.loads(label.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _jars(home: Path) -> list[Path]:
    return sorted((home / "jars").glob("*.jar"))


def _identity(environ: Mapping[str, str], home: Path) -> str:
    """Return the identity of Spark's jars and of Java. Java itself validates an archive by the same facts."""
    java = find_java(environ)
    release = java.resolve().parents[1] / "release" if java is not None else None
    version = release.read_text("utf-8", "replace") if release is not None and release.is_file() else str(java)
    jars = [(str(jar), seen.st_size, int(seen.st_mtime)) for jar in _jars(home) for seen in [jar.stat()]]
    return hashlib.sha256(json.dumps([version, jars]).encode()).hexdigest()


def _uses_spark_jars_only(environ: Mapping[str, str], home: Path) -> bool:
    """Return whether Spark's jars come first in the class path, as no setting adds others."""
    option, setting = _CLASS_PATH
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", _ARGUMENTS)
    return option not in arguments and setting not in arguments and setting not in spark_defaults(environ, home)


def spark_defaults(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the settings of spark-defaults.conf; {} if there is none, or if Spark can't read it either."""
    folder = Path(environ.get("SPARK_CONF_DIR") or home / "conf")
    try:
        text = (folder / "spark-defaults.conf").read_text("utf-8", "replace")
        return {it.key: it.value.strip() for it in parse_properties(text) if it.key.startswith("spark.")}
    except (OSError, ValueError):
        return {}
