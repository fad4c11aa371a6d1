"""Which frames a transformation is of: what the type hints of its run() say, in whatever way. It calls no run()."""

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


def engine_of(run: Callable[..., Any], module: ModuleType) -> Engine:
    """Return pandas where a hint is, or has in it, pandas.DataFrame; else Spark."""
    written = _written(run)
    if not written:
        return "spark"
    names = {**_for_types_only(module), **vars(module)}
    return "pandas" if any(_is_pandas(hint, names) for hint in written) else "spark"


def _written(run: Callable[..., Any]) -> list[Any]:
    while isinstance(run, functools.partial):
        run = run.func
    called = run if inspect.isroutine(run) else type(run).__call__
    try:
        return list(called.__annotations__.values())
    except (AttributeError, NameError):  # it has none; from Python 3.14 on, one names what is not there
        return []


def _is_pandas(hint: Any, names: dict[str, Any]) -> bool:
    text = hint.__forward_arg__ if isinstance(hint, typing.ForwardRef) else hint
    if isinstance(text, str):
        try:
            hint = eval(text, names)  # a hint in quotes, of the module that was executed just now
        except Exception:  # a hint that names nothing is no reason not to run
            return False
    if getattr(hint, "__name__", "") == "DataFrame" and str(getattr(hint, "__module__", "")).startswith("pandas"):
        return True
    return any(_is_pandas(inner, names) for inner in typing.get_args(hint))


def _for_types_only(module: ModuleType) -> dict[str, Any]:
    """Return what the module imports of pandas for those who check its types, and not when it runs."""
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
