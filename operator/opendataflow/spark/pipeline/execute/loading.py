"""Load a transformation: execute its module and read the signature of its run(). Does not call run()."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from opendataflow.core.pipelines.pipeline_steps import Signature
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.spark.pipeline.errors.error_report import report_error
from opendataflow.spark.pipeline.errors.printed_output import make_line_print
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline
from opendataflow.spark.pipeline.project.type_hints import Engine, infer_engine


@dataclass(frozen=True)
class LoadedStep:
    """A transformation that is ready to run.

    `file`: absolute path. `location`: "FILE, line N" of run(), for messages. `printed`: output of the module while it
    was loaded, which belongs to its step.
    """

    name: str
    file: str
    location: str
    run: Callable[..., Any]
    signature: Signature
    engine: Engine
    module: ModuleType
    printed: str = ""


class StepsNotLoaded(StepFailed):
    """Some transformations can't be run. `faults`: a sentence for each one, by name."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("\n".join(faults.values()))
        self.faults = faults


def load_module(resolved: ResolvedPipeline, name: str) -> LoadedStep:
    """Load a transformation of a pipeline. Call this function inside `project.importable()`.

    Raises StepFailed with one sentence, and a traceback below it if the module raised an error.
    """
    missing = resolved.explain_missing_module(name)
    if missing is not None:
        raise StepFailed(missing)
    path = resolved.module_path(name)
    module = _execute(resolved, name)
    run = getattr(module, "run", None)
    if not callable(run):
        raise StepFailed(f"{path}, line 1: there is no function run() in it")
    location = f"{path}, line {_first_line(run)}"
    try:
        signature = _read_signature(run)
    except InvalidInput as error:
        raise StepFailed(f"{location}: {error}") from None
    marked = next(it.engine for it in resolved.pipeline.transformations if it.name == name)
    engine = marked or infer_engine(run, module)
    return LoadedStep(name, str(path.absolute()), location, run, signature, engine, module)


def check_modules(resolved: ResolvedPipeline) -> None:
    """Raise StepsNotLoaded if the file of a transformation is missing or has a syntax error.

    No module is executed, so the check needs no Spark.
    """
    found = {it.name: explain_fault(resolved, it.name) for it in resolved.pipeline.transformations}
    faults = {name: fault for name, fault in found.items() if fault is not None}
    if faults:
        raise StepsNotLoaded(faults)


def explain_fault(resolved: ResolvedPipeline, name: str) -> str | None:
    """Return one sentence if the file of a transformation is missing or has a syntax error, or None."""
    missing = resolved.explain_missing_module(name)
    if missing is not None:
        return missing
    path = resolved.module_path(name)
    try:
        compile(path.read_bytes(), path.absolute(), "exec", dont_inherit=True)
    except SyntaxError as error:
        return report_error(error, resolved.project, f"{path}, line 1").sentence
    except OSError as error:
        return f"{path}: can't be read: {error.strerror}"
    return None


def _execute(resolved: ResolvedPipeline, name: str) -> ModuleType:
    project, path = resolved.project, resolved.module_path(name)
    spec = importlib.util.spec_from_file_location(f"pipelines.{resolved.slug}.{name}", path.absolute())
    assert spec is not None
    assert spec.loader is not None
    if (known := sys.modules.get(spec.name)) is not None:  # imported by another transformation
        return known
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a module may even call exit()
        del sys.modules[spec.name]  # an incomplete module must not be imported
        if isinstance(error, KeyboardInterrupt):
            raise
        report = report_error(error, project, f"{path}, line 1")
        raise StepFailed(project.shorten_paths(str(report))) from error
    if sys.modules.get("pyspark") is not None:
        _prepare_for_workers(project)
    return module


def _prepare_for_workers(project: OpenProject) -> None:
    """Pickle the project's functions with their code, as workers can't import the project. Make them print lines."""
    from pyspark import cloudpickle  # this module is imported at every start of the command line

    for module in list(sys.modules.values()):
        if project.is_project_code(getattr(module, "__file__", None) or "/"):
            vars(module).setdefault("print", make_line_print())
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types


def _first_line(run: Callable[..., Any]) -> int:
    code = getattr(inspect.unwrap(run), "__code__", None)
    return code.co_firstlineno if code is not None else 1


def _read_signature(run: Callable[..., Any]) -> Signature:
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
