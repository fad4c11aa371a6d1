"""The folder of a project: its file is read, and what it names is found. It imports none of the project's code."""

import ast
import difflib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import PROJECT_FILE, Pipeline, ProjectFile, parse_project


@dataclass(frozen=True)
class OpenProject:
    """A project in a folder. `folder`: as the user has named it, for sentences. `home`: the same, absolute, whatever
    folder a transformation changes to."""

    folder: Path
    file: ProjectFile
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        """Note where it is now."""
        object.__setattr__(self, "home", self.folder.absolute())

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines in the order written."""
        return self.file.project.pipelines

    def module(self, slug: str, name: str) -> Path:
        """The file of a transformation, as the user would name it."""
        return self.folder / "pipelines" / slug / f"{name}.py"

    def shown(self, path: Path | str) -> str:
        """A path of this project as the user would name it."""
        path = Path(path)
        return str(self.folder / path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def in_words(self, text: str) -> str:
        """A text, such as a traceback, with the paths of this project as the user would name them."""
        named = "" if self.folder == Path() else f"{self.folder}/"
        return re.sub(rf"(?<![\w/]){re.escape(str(self.home))}/", lambda _: named, text)  # none inside of an address

    def named(self, where: str) -> str:
        """What the project's file names, as the user would name it: a path in the project, or an address."""
        return where if "://" in where else str(self.folder / where)

    def is_ours(self, path: str) -> bool:
        """Whether a file is the project's own code."""
        if not path.startswith(str(self.home)):  # nearly all are not, and paths take their time
            return False
        inside = Path(path).is_relative_to(self.home)
        return inside and not {"site-packages", "dist-packages"}.intersection(Path(path).relative_to(self.home).parts)

    def missing_module(self, slug: str, name: str) -> str | None:
        """Return the sentence about a transformation whose file is not there; None where it is."""
        path = self.module(slug, name)
        index, pipeline = self.file.pipeline(slug)
        step = [it.name for it in pipeline.transformations].index(name)
        place = self.file.place("pipelines", index, "transformations", step)
        try:
            if path.is_file():
                return None
        except OSError as error:
            return f"{place}: {path}: can't be read: {error.strerror}"
        there = [file.stem for file in _modules(path.parent) if file.is_file()]
        close = difflib.get_close_matches(name, there, n=1)
        return f"{place}: there is no file {path}" + (f"; did you mean {close[0]}?" if close else "")

    def unlisted(self, slug: str) -> Iterator[Path]:
        """Yield files beside a pipeline's transformations that look like some and are not in the project's list."""
        _, pipeline = self.file.pipeline(slug)
        listed = {it.name for it in pipeline.transformations}
        for path in _modules(self.folder / "pipelines" / slug):
            if path.stem not in listed and _defines_run(path):
                yield path

    @contextmanager
    def imports(self) -> Iterator[None]:
        """Let the project's modules import each other, as from its folder; forget them at the end."""
        home = str(self.home)
        sys.path.insert(0, home)
        try:
            yield
        finally:
            with suppress(ValueError):
                sys.path.remove(home)
            # All are found first: where a package without __init__.py is, Python asks the one around it.
            for name in [name for name, module in list(sys.modules.items()) if self.is_ours(_place_of(module))]:
                del sys.modules[name]


def open_project(folder: Path | None) -> OpenProject:
    """Read the project in a folder, or of its file; None: in this one, or in the nearest above it.

    Raises InvalidInput where there is none, or its file is wrong.
    """
    found = _nearest() if folder is None else folder.parent if folder.name == PROJECT_FILE else folder
    path = found / PROJECT_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"there is no {path}; `dataflow pipeline init FOLDER` makes a project") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: the file is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from error
    return OpenProject(found, parse_project(text, str(path)))


def _nearest() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return Path() if folder == here else folder
    return Path()


def _modules(folder: Path) -> list[Path]:
    """The files of Python in a folder; none where it can't be read."""
    with suppress(OSError):
        return sorted(folder.glob("*.py"))
    return []


def _place_of(module: ModuleType | None) -> str:
    """The file of a module, or the folder of a package that has none."""
    file = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", ())), "/")


def _defines_run(path: Path) -> bool:
    try:
        parsed = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in parsed.body)
