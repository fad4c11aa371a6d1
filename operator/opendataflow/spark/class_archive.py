"""Keeps Spark's classes as Java has them in memory, so that a JVM for Spark starts in two thirds of the time.

To start Spark, Java reads, checks and links ten thousand classes. An archive of them (class data sharing, JEP 350) is
mapped instead. It is good for the jars that it was made of, which have to come first in the class path, and for the
Java that made it; for others Java starts as ever. Nothing depends on it. This keeps it and finds it; `archiving` makes
it. It needs Python, Spark and nothing else.
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

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java says on standard output that an archive is of other jars or another Java."""

_CLASS_PATH = ("--driver-class-path", "spark.driver.extraClassPath")
"""How users bring jars that come before Spark's."""

_ARGUMENTS = "pyspark-shell"
"""Of pyspark, unless PYSPARK_SUBMIT_ARGS says otherwise."""

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Says that somebody else has started the JVM."""


_KEPT, _MOST = "spark-", 3
"""Each virtual environment has a Spark of its own; but nobody wants the archives of all that ever were."""

_DAY = 24 * 3600


@dataclass(frozen=True)
class _Slot:
    """Where the archive for one Spark and Java is kept. `of`: which these are."""

    file: Path
    of: str

    @property
    def label(self) -> Path:
        """The file beside an archive that says of what it is."""
        return self.file.with_suffix(".json")

    @property
    def failed(self) -> Path:
        """The file that says why there is no archive."""
        return self.file.with_suffix(".failed")


@dataclass(frozen=True)
class Archive:
    """An archive, and the class path that it is of."""

    file: Path
    class_path: str

    @property
    def options(self) -> tuple[str, ...]:
        """Java's options."""
        return (f"-XX:SharedArchiveFile={self.file}", *QUIET)


def place(environ: Mapping[str, str], home: Path) -> Path:
    """Return where the archive is kept: DATAFLOW_SPARK_ARCHIVE, or in the user's cache one for this Spark and Java."""
    return _slot(environ, home).file


def found(environ: Mapping[str, str], home: Path) -> Archive | None:
    """Return the archive for the Spark in `home`; None where there is none, or one of another Spark or Java."""
    slot = _slot(environ, home)
    return Archive(slot.file, class_path(home)) if _is_there(slot) else None


def variables(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables that let pyspark start its JVM from the archive; none where it can't."""
    archive = found(environ, home)
    if archive is None or not _is_for(environ, home):
        return {}
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", _ARGUMENTS)
    return {
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {shlex.quote(archive.class_path)} {arguments}",
        **submit_variables(environ, archive),
    }


def submit_variables(environ: Mapping[str, str], archive: Archive) -> dict[str, str]:
    """Return the variables that give `spark-submit` Java's options, beside those that are there."""
    return {"SPARK_SUBMIT_OPTS": f"{environ.get('SPARK_SUBMIT_OPTS', '')} {shlex.join(archive.options)}".strip()}


def is_wanted(environ: Mapping[str, str], home: Path) -> bool:
    """Whether the archive should be made without being asked for: it is not there, and could be used.

    Not where DATAFLOW_SPARK_ARCHIVE says where it is: who says so makes it. And not again where it could not be made,
    for a day: what was in the way may be a full disk.
    """
    if environ.get(SPARK_ARCHIVE) or environ.get(_GATEWAY) or not _is_for(environ, home):
        return False
    slot = _slot(environ, home)
    return _may_be_kept(slot) and not _is_there(slot) and not _has_failed(slot)


def keep(environ: Mapping[str, str], home: Path, draft: Path) -> Archive:
    """Put an archive that was made for the Spark in `home` where it is kept."""
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


def give_up(environ: Mapping[str, str], home: Path, why: str) -> None:
    """Remember that it can't be made."""
    slot = _slot(environ, home)
    _write(slot.failed, {"of": slot.of, "why": why})


def class_path(home: Path) -> str:
    """Return all jars of the Spark in `home`, as Java is told them."""
    return ":".join(str(jar) for jar in _jars(home))


def java_of(environ: Mapping[str, str]) -> Path | None:
    """Return the Java that Spark's scripts would start."""
    named = environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{named}/bin" if named else environ.get("PATH"))
    return Path(java) if java else None


def no_java(environ: Mapping[str, str]) -> str:
    """Say what is missing where there is no Java."""
    named = environ.get("JAVA_HOME")
    return "Java 17 or newer, which is not " + (f"in {named}, which JAVA_HOME names" if named else "there")


def _home_of(environ: Mapping[str, str]) -> Path:
    """Return the user's folder; `/`, as containers do, for a user who has none."""
    try:
        home = Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:
        home = Path()
    return home if home.is_absolute() else Path("/")


def _slot(environ: Mapping[str, str], home: Path) -> _Slot:
    of = _identity(environ, home)
    if environ.get(SPARK_ARCHIVE):
        return _Slot(Path(environ[SPARK_ARCHIVE]), of)
    named = Path(environ.get("XDG_CACHE_HOME", ""))  # one that is not absolute does not count, says its specification
    cache = named if named.is_absolute() else _home_of(environ) / ".cache"
    return _Slot(cache / "opendataflow" / f"{_KEPT}{of[:12]}.jsa", of)


def _is_there(slot: _Slot) -> bool:
    return _read(slot.label).get("of") == slot.of and slot.file.is_file()


def _may_be_kept(slot: _Slot) -> bool:
    """Whether its folder may be written, or made."""
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
    """Tell Spark and Java from others, as Java itself does: an archive is of these files and of this version."""
    java = java_of(environ)
    release = java.resolve().parents[1] / "release" if java is not None else None
    version = release.read_text("utf-8", "replace") if release is not None and release.is_file() else str(java)
    jars = [(str(jar), seen.st_size, int(seen.st_mtime)) for jar in _jars(home) for seen in [jar.stat()]]
    return hashlib.sha256(json.dumps([version, jars]).encode()).hexdigest()


def _is_for(environ: Mapping[str, str], home: Path) -> bool:
    """Whether Spark's own jars come first, as nobody brings others."""
    arguments = environ.get("PYSPARK_SUBMIT_ARGS", _ARGUMENTS)
    return not any(word in text for word in _CLASS_PATH for text in (arguments, _defaults(environ, home)))


def _defaults(environ: Mapping[str, str], home: Path) -> str:
    folder = Path(environ.get("SPARK_CONF_DIR") or home / "conf")
    try:
        return (folder / "spark-defaults.conf").read_text("utf-8", "replace")
    except OSError:
        return ""
