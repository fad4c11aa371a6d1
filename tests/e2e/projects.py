"""Projects of pipelines for tests: files in a folder, and the commands on them."""

import textwrap
from pathlib import Path

from tests.e2e.conftest import Answer, Inside, Program


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
