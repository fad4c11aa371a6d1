"""Loads a transformation: its module is executed, and what it takes is found out. It calls no run()."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from opendataflow.core.pipelines.pipeline_steps import Signature
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.spark.pipeline.errors.error_report import tell
from opendataflow.spark.pipeline.project.hints import Engine, engine_of
from opendataflow.spark.pipeline.project.project_folder import OpenProject


@dataclass(frozen=True)
class Loaded:
    """A transformation that can be run. `file`: absolute. `at`: "FILE, line N" of run(), for sentences. `printed`: what
    its module has printed when it was loaded, which belongs to its step."""

    name: str
    file: str
    at: str
    run: Callable[..., Any]
    signature: Signature
    engine: Engine
    module: ModuleType
    printed: str = ""


class NotLoaded(StepFailed):
    """Transformations can't be run. `faults`: a sentence for each, by its name."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("\n".join(faults.values()))
        self.faults = faults


def load(project: OpenProject, slug: str, name: str) -> Loaded:
    """Load a transformation of a pipeline. Call it inside `project.imports()`.

    Raises StepFailed: one sentence, with the traceback below it where the module itself has failed.
    """
    missing = project.missing_module(slug, name)
    if missing is not None:
        raise StepFailed(missing)
    path = project.module(slug, name)
    module = _executed(project, slug, name)
    run = getattr(module, "run", None)
    if not callable(run):
        raise StepFailed(f"{path}, line 1: there is no function run() in it")
    at = f"{path}, line {_line(run)}"
    try:
        signature = _signature(run)
    except InvalidInput as error:
        raise StepFailed(f"{at}: {error}") from None
    _, pipeline = project.file.pipeline(slug)
    marked = next(it.engine for it in pipeline.transformations if it.name == name)
    return Loaded(name, str(path.absolute()), at, run, signature, marked or engine_of(run, module), module)


def check_modules(project: OpenProject, slug: str) -> None:
    """Raise NotLoaded where the file of a transformation is not there, or is no Python. None is executed: this needs no
    Spark."""
    _, pipeline = project.file.pipeline(slug)
    found = {it.name: fault_of(project, slug, it.name) for it in pipeline.transformations}
    faults = {name: fault for name, fault in found.items() if fault is not None}
    if faults:
        raise NotLoaded(faults)


def fault_of(project: OpenProject, slug: str, name: str) -> str | None:
    """Return the sentence about a transformation whose file is not there, or is no Python; None where it is."""
    missing = project.missing_module(slug, name)
    if missing is not None:
        return missing
    path = project.module(slug, name)
    try:
        compile(path.read_bytes(), path.absolute(), "exec", dont_inherit=True)
    except SyntaxError as error:
        return tell(error, project, f"{path}, line 1").sentence
    except OSError as error:
        return f"{path}: can't be read: {error.strerror}"
    return None


def _executed(project: OpenProject, slug: str, name: str) -> ModuleType:
    path = project.module(slug, name).absolute()
    spec = importlib.util.spec_from_file_location(f"pipelines.{slug}.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    if (known := sys.modules.get(spec.name)) is not None:  # another transformation has imported it
        return known
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a module may even call exit()
        del sys.modules[spec.name]  # half of it is nothing to import
        if isinstance(error, KeyboardInterrupt):
            raise
        raise StepFailed(
            project.in_words(str(tell(error, project, f"{project.module(slug, name)}, line 1")))
        ) from error
    if sys.modules.get("pyspark") is not None:
        _sent_whole(project)
    return module


def _sent_whole(project: OpenProject) -> None:
    """Let functions of the project reach Python workers with their code, as workers can't import the project, and print
    whole lines there."""
    from pyspark import cloudpickle

    from opendataflow.spark.pipeline.measure.worker_output import whole_print

    for module in list(sys.modules.values()):
        if project.is_ours(getattr(module, "__file__", None) or "/"):
            vars(module).setdefault("print", whole_print())
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types


def _line(run: Callable[..., Any]) -> int:
    code = getattr(inspect.unwrap(run), "__code__", None)
    return code.co_firstlineno if code is not None else 1


def _signature(run: Callable[..., Any]) -> Signature:
    if inspect.iscoroutinefunction(run):
        raise InvalidInput("run() is async, and nobody awaits it; write it without `async`")
    if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
        raise InvalidInput("run() has a `yield`; it returns one frame")
    needed, most, any_number, stream, item = 0, 0, False, False, False
    for name, parameter in inspect.signature(run).parameters.items():
        if stream and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL):
            raise InvalidInput(f"{name} stands behind stream, which is the last parameter of run()")
        if name == "stream":
            stream, item = True, parameter.default is parameter.empty
        elif parameter.kind is parameter.VAR_POSITIONAL:
            any_number = True
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InvalidInput(f"run() wants {name}, and is given frames only")
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            needed += parameter.default is parameter.empty
    return Signature(needed, None if any_number else most, stream, item)
