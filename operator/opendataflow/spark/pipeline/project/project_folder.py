"""The folder of a project: read `project.yml`, find its modules, import from it. No code of the project is executed."""

import ast
import difflib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from opendataflow.errors import InvalidInput
from opendataflow.model.projects.data_sources import DATA_SOURCES_FILE, with_data_sources
from opendataflow.model.projects.project import PROJECT_FILE, Pipeline, ProjectFile, parse_project


@dataclass(frozen=True)
class OpenProject:
    """A project in a folder.

    `folder`: as the user named the folder, for messages. `home`: the absolute path, independent of later `chdir` calls.
    """

    folder: Path
    file: ProjectFile
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        """Resolve `home` against the current folder."""
        object.__setattr__(self, "home", self.folder.absolute())

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines, in the order of the file."""
        return self.file.project.pipelines

    def resolve(self, slug: str) -> "ResolvedPipeline":
        """Return a pipeline of this project. Raises InvalidInput if the slug is unknown."""
        return ResolvedPipeline(self, *self.file.pipeline(slug))

    def resolve_all(self) -> tuple["ResolvedPipeline", ...]:
        """Return all pipelines of this project."""
        return tuple(ResolvedPipeline(self, index, pipeline) for index, pipeline in enumerate(self.pipelines))

    def display_path(self, path: Path | str) -> str:
        """Return a path of this project as the user would write the path."""
        path = Path(path)
        return str(self.folder / path.relative_to(self.home)) if path.is_relative_to(self.home) else str(path)

    def shorten_paths(self, text: str) -> str:
        """Return a text, such as a traceback, with the paths of this project as the user would write them."""
        prefix = "" if self.folder == Path() else f"{self.folder}/"
        return re.sub(rf"(?<![\w/]){re.escape(str(self.home))}/", lambda _: prefix, text)  # not inside an address

    def display_location(self, where: str) -> str:
        """Return a location from the project's file, a path or an address, as the user would write the location."""
        return where if "://" in where else str(self.folder / where)

    def is_project_code(self, path: str) -> bool:
        """Return whether a file belongs to the project's own code."""
        if not path.startswith(str(self.home)):  # quick answer for nearly all files
            return False
        inside = Path(path).is_relative_to(self.home)
        return inside and not {"site-packages", "dist-packages"}.intersection(Path(path).relative_to(self.home).parts)

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Make the project's modules importable during the block. Forget the modules at the end."""
        home = str(self.home)
        sys.path.insert(0, home)
        try:
            yield
        finally:
            with suppress(ValueError):
                sys.path.remove(home)
            # Collect before deleting: to locate a namespace package, Python imports its parent.
            modules = list(sys.modules.items())
            for name in [name for name, module in modules if self.is_project_code(_module_location(module))]:
                del sys.modules[name]


@dataclass(frozen=True)
class ResolvedPipeline:
    """One pipeline of an open project. `index`: the position of the pipeline in the project's file."""

    project: OpenProject
    index: int
    pipeline: Pipeline

    @property
    def slug(self) -> str:
        """The slug of the pipeline."""
        return self.pipeline.slug

    def place(self, *path: str | int) -> str:
        """Return "project.yml, line N" for a field of the pipeline."""
        return self.project.file.place("pipelines", self.index, *path)

    def with_destination_path(self, path: str) -> "ResolvedPipeline":
        """Return the same pipeline with another path of its destination."""
        destination = self.pipeline.destination.model_copy(update={"path": path})
        return replace(self, pipeline=self.pipeline.model_copy(update={"destination": destination}))

    def module_path(self, name: str) -> Path:
        """Return the file of a transformation, as the user would write the path."""
        return self.project.folder / "pipelines" / self.slug / f"{name}.py"

    def explain_missing_module(self, name: str) -> str | None:
        """Return one sentence if the file of a transformation is missing or unreadable, or None."""
        path = self.module_path(name)
        step = [it.name for it in self.pipeline.transformations].index(name)
        place = self.place("transformations", step)
        try:
            if path.is_file():
                return None
        except OSError as error:
            return f"{place}: {path}: can't be read: {error.strerror}"
        present = [file.stem for file in _list_modules(path.parent) if file.is_file()]
        close = difflib.get_close_matches(name, present, n=1)
        return f"{place}: there is no file {path}" + (f"; did you mean {close[0]}?" if close else "")

    def list_unlisted_modules(self) -> Iterator[Path]:
        """Yield files in the pipeline's folder that define run() and are missing in the list of transformations."""
        listed = {it.name for it in self.pipeline.transformations}
        for path in _list_modules(self.project.folder / "pipelines" / self.slug):
            if path.stem not in listed and _defines_run(path):
                yield path


def open_project(folder: Path | None) -> OpenProject:
    """Read the project in a folder, or of a project file. None: the current folder or the nearest one above.

    Raises InvalidInput if there is no project or its file is invalid.
    """
    found = _find_nearest() if folder is None else folder.parent if folder.name == PROJECT_FILE else folder
    path, beside = found / PROJECT_FILE, found / DATA_SOURCES_FILE
    text = _read_text(path)
    if text is None:
        raise InvalidInput(f"there is no {path}; `dataflow pipeline init FOLDER` makes a project")
    file, declared = parse_project(text, str(path)), _read_text(beside)
    return OpenProject(found, file if declared is None else with_data_sources(file, declared, str(beside)))


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None if there is none. Raises InvalidInput if it can't be read."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: the file is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from error


def _find_nearest() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return Path() if folder == here else folder
    return Path()


def _list_modules(folder: Path) -> list[Path]:
    """Return the Python files of a folder, or none if the folder is unreadable."""
    with suppress(OSError):
        return sorted(folder.glob("*.py"))
    return []


def _module_location(module: ModuleType | None) -> str:
    """Return the file of a module, or the folder of a namespace package."""
    file = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", ())), "/")


def _defines_run(path: Path) -> bool:
    try:
        parsed = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in parsed.body)
