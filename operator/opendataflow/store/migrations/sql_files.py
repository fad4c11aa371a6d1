"""Reads the SQL files that belong to this program. It never connects to a database."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

BASE = 1
"""The number of the base, sql/schema/tables.sql. The files of sql/migrations follow."""


@dataclass(frozen=True)
class Migration:
    """The base, or one numbered file of sql/migrations.

    `works_from`: the number of the oldest program that can use the tables after this migration.
    A line `-- Works from: N` sets the number. Without this line, only programs with the migration can use the tables.
    """

    number: int
    name: str
    text: str
    works_from: int

    @cached_property
    def digest(self) -> str:
        """The digest of all statements. Lines of comment do not change it."""
        return _digest(re.sub(r"^\s*--.*\n", "", self.text, flags=re.MULTILINE))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder() -> Path:
    """Return the folder of the SQL files: inside the package in a wheel, beside operator/ in a checkout."""
    packaged = Path(str(files("opendataflow"))) / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[4] / "sql"


def _read(folder: str) -> list[tuple[str, str]]:
    return [(path.stem, path.read_text("utf-8")) for path in sorted((_folder() / folder).glob("*.sql"))]


def functions_text() -> str:
    """Return the SQL that drops and creates all functions, views and triggers."""
    return "\n".join(text for _, text in _read("functions"))


def functions_digest() -> str:
    """Return the digest of all functions, views and triggers."""
    return _digest(functions_text())


def migrations() -> list[Migration]:
    """Return the base and all migrations, in order."""
    base = (_folder() / "schema" / "tables.sql").read_text("utf-8")
    return [Migration(BASE, "0001_base", base, BASE), *(_migration(stem, text) for stem, text in _read("migrations"))]


def newest() -> int:
    """Return the number of this program, which is the number of its last migration."""
    return max((_number(path.stem) for path in (_folder() / "migrations").glob("*.sql")), default=BASE)


def _number(stem: str) -> int:
    return int(stem.split("_", 1)[0])


def _migration(stem: str, text: str) -> Migration:
    number = _number(stem)
    found = re.search(r"^-- Works from: (\d+)$", text, re.MULTILINE)
    return Migration(number, stem, text, int(found[1]) if found else number)
