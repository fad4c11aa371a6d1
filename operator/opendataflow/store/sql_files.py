"""The SQL files that this program carries. It reads files of the program and nothing else."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True)
class Migration:
    """One numbered file of sql/migrations."""

    number: int
    name: str
    text: str


def _folder() -> Path:
    """In a wheel the files lie inside the package; in a checkout beside operator/."""
    packaged = Path(str(files("opendataflow"))) / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"


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
    return [Migration(int(stem.split("_", 1)[0]), stem, text) for stem, text in _read("migrations")]
