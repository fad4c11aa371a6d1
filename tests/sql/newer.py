"""A program that is one migration ahead of this one: for the time of a block this process carries its SQL files."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from opendataflow.store.migrations import sql_files

NEXT = "9999_next"
NEXT_APPLIED = f"migration {NEXT} applied"
WORKS_FROM = f"-- Works from: {sql_files.newest()}"
"""This program can work with the tables after it."""
ADDITION = "ALTER TABLE opendataflow.run ADD a_new_column text;"
FUNCTION = "CREATE FUNCTION opendataflow.of_the_newer_program() RETURNS integer LANGUAGE sql AS 'SELECT 1';"


@contextmanager
def newer_program(*migration: str) -> Iterator[None]:
    """Carry the lines of a next migration, and one function more, in the block."""
    ours = Path(__file__).parents[2] / "sql"
    with tempfile.TemporaryDirectory() as folder:
        sql = Path(folder) / "sql"
        shutil.copytree(ours, sql)
        (sql / "migrations" / f"{NEXT}.sql").write_text("\n".join(migration))
        (sql / "functions" / "99_newer.sql").write_text(FUNCTION)
        with patch.object(sql_files, "_folder", lambda: sql):
            yield
