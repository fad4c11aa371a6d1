"""The SQL files that this program carries. It reads files of the program and nothing else."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

BASE = 1
"""The number of the base, sql/schema/tables.sql; the files of sql/migrations follow."""


@dataclass(frozen=True)
class Migration:
    """The base, or one numbered file of sql/migrations.

    `works_from`: the number of the oldest program that can work with the tables after it, as a line `-- Works from: N`
    says; without one only those that know the migration can.
    """

    number: int
    name: str
    text: str
    works_from: int

    @cached_property
    def digest(self) -> str:
        """Changes whenever a statement changes, and stays where only a line of comment does."""
        return _digest(re.sub(r"^\s*--.*\n", "", self.text, flags=re.MULTILINE))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder() -> Path:
    """In a wheel the files lie inside the package; in a checkout beside operator/."""
    packaged = Path(str(files("opendataflow"))) / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "sql"


def _read(folder: str) -> list[tuple[str, str]]:
    return [(path.stem, path.read_text("utf-8")) for path in sorted((_folder() / folder).glob("*.sql"))]


def functions_text() -> str:
    """All functions, views and triggers, after dropping what was there."""
    return "\n".join(text for _, text in _read("functions"))


def functions_digest() -> str:
    """Changes whenever a function, view or trigger changes."""
    return _digest(functions_text())


def migrations() -> list[Migration]:
    """The base and all migrations after it, in order."""
    base = (_folder() / "schema" / "tables.sql").read_text("utf-8")
    return [Migration(BASE, "0001_base", base, BASE), *(_migration(stem, text) for stem, text in _read("migrations"))]


def newest() -> int:
    """The number of this program: that of its last migration."""
    return max((_number(path.stem) for path in (_folder() / "migrations").glob("*.sql")), default=BASE)


def _number(stem: str) -> int:
    return int(stem.split("_", 1)[0])


def _migration(stem: str, text: str) -> Migration:
    number = _number(stem)
    said = re.search(r"^-- Works from: (\d+)$", text, re.MULTILINE)
    return Migration(number, stem, text, int(said[1]) if said else number)
