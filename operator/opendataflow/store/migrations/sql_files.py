"""The SQL files that this program carries. It reads files of the program and nothing else."""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class Migration:
    """One numbered file of sql/migrations. `works_from`: the number of the oldest program that can work with the tables
    after it, as a line `-- Works from: N` says; without one only those that know the migration can."""

    number: int
    name: str
    text: str
    works_from: int


def _folder() -> Path:
    """In a wheel the files lie inside the package; in a checkout beside operator/."""
    packaged = Path(str(files("opendataflow"))) / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "sql"


def _read(folder: str) -> list[tuple[str, str]]:
    return [(path.stem, path.read_text("utf-8")) for path in sorted((_folder() / folder).glob("*.sql"))]


def schema_text() -> str:
    """The tables as they are now, for a new database."""
    return "\n".join(text for _, text in _read("schema"))


def functions_text() -> str:
    """All functions, views and triggers, after dropping what was there."""
    return "\n".join(text for _, text in _read("functions"))


def functions_digest() -> str:
    """Changes whenever a function, view or trigger changes."""
    return hashlib.sha256(functions_text().encode()).hexdigest()[:16]


def migrations() -> list[Migration]:
    """All migrations in order."""
    return [_migration(stem, text) for stem, text in _read("migrations")]


def newest() -> int:
    """The number of this program: that of its last migration."""
    return max(_number(path.stem) for path in (_folder() / "migrations").glob("*.sql"))


def _number(stem: str) -> int:
    return int(stem.split("_", 1)[0])


def _migration(stem: str, text: str) -> Migration:
    number = _number(stem)
    said = re.search(r"^-- Works from: (\d+)$", text, re.MULTILINE)
    return Migration(number, stem, text, int(said[1]) if said else number)
