"""Projects of pipelines for tests: files in a folder, and the commands on them."""

import textwrap
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.e2e.conftest import Answer, Inside, Program

DATABASE = "{url: '${SHOP_URL}', user: '${SHOP_USER}', passwordVariable: SHOP_WORD}"
"""A database as a project's file names it, with the variables of `shop_variables`."""


def login_of(dsn: str) -> tuple[str, str, str]:
    """Return the URL for JDBC, the user and the password of an address."""
    known = conninfo_to_dict(dsn)
    return (
        f"jdbc:postgresql://{known['host']}:{known['port']}/{known['dbname']}",
        str(known["user"]),
        str(known["password"]),
    )


def shop_variables(dsn: str) -> dict[str, str]:
    """Return the variables of the environment that `DATABASE` needs."""
    return dict(zip(("SHOP_URL", "SHOP_USER", "SHOP_WORD"), login_of(dsn), strict=True))


def copying(column: str, kind: str, database: str = DATABASE) -> str:
    """Return the file of a project that copies the table `orders` into `result`, by chunks of a column."""
    return f"""\
version: 2
name: tests
pipelines:
  - slug: p
    sources:
      - name: orders
        database: {database}
        table: orders
        partitioning: {{column: {column}, type: {kind}}}
    transformations: [one]
    destination:
      name: out
      database: {database}
      table: result
"""


class Project:
    """A project in a folder, and commands about it inside the tests' own process."""

    def __init__(self, folder: Path, inside: Inside | None) -> None:
        self.folder = folder
        self._inside = inside

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file; the indentation of a text does not count."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).lstrip("\n").encode())

    def step(self, name: str, text: str, pipeline: str = "p") -> None:
        """Write a transformation."""
        self.write(f"pipelines/{pipeline}/{name}.py", text)

    def ask(self, *arguments: str) -> Answer:
        """Run `dataflow pipeline …` in the folder."""
        assert self._inside is not None
        return self._inside.ask(Program(self.folder / ".home"), "pipeline", *arguments, cwd=self.folder)
