"""Infer from the type hints of a transformation whether the transformation uses Spark or pandas."""

import ast
import functools
import inspect
import typing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

Engine = Literal["spark", "pandas"]


def infer_engine(run: Callable[..., Any], module: ModuleType) -> Engine:
    """Return "pandas" if a hint of run() is or contains pandas.DataFrame, else "spark". Does not call run()."""
    hints = _read_hints(run)
    if not hints:
        return "spark"
    names = {**_import_type_checking_names(module), **vars(module)}
    return "pandas" if any(_is_pandas(hint, names) for hint in hints) else "spark"


def _read_hints(run: Callable[..., Any]) -> list[Any]:
    while isinstance(run, functools.partial):
        run = run.func
    called = run if inspect.isroutine(run) else type(run).__call__
    try:
        return list(called.__annotations__.values())
    except (AttributeError, NameError):  # no hints; from Python 3.14 on, a hint names something undefined
        return []


def _is_pandas(hint: Any, names: dict[str, Any]) -> bool:
    text = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
    if isinstance(text, str):
        try:
            hint = eval(text, names)  # a quoted hint of the module that was executed before
        except Exception:  # an undefined hint does not stop a run
            return False
    if getattr(hint, "__name__", "") == "DataFrame" and str(getattr(hint, "__module__", "")).startswith("pandas"):
        return True
    return any(_is_pandas(inner, names) for inner in typing.get_args(hint))


def _import_type_checking_names(module: ModuleType) -> dict[str, Any]:
    """Return the pandas names that the module imports for type checkers only."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_bytes())):
        if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            continue
        for line in node.body:
            of = [line.module] if isinstance(line, ast.ImportFrom) else [it.name for it in getattr(line, "names", ())]
            if any((name or "").partition(".")[0] == "pandas" for name in of):
                with suppress(ImportError):
                    exec(ast.unparse(line), found)  # one import of pandas
    return found
