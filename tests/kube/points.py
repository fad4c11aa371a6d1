"""Every place at which the operator waits for Postgres or for the cluster, found in its code; and a way to die there.

A point is an `await`, `async for` or `async with` of something that asks the store or the API client. The list is
made from the sources, so that no new one can be forgotten.
"""

import ast
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import opendataflow
from opendataflow.launch.cluster.api import Api
from opendataflow.store.store import Store

_ROOT = Path(opendataflow.__file__).parent
_MODULES = ("engine", "control", "launch/cluster")
_NOT_THE_OPERATOR_S = {
    "engine/takeover.py": "runs of local engines",
    "engine/alerts.py": "notifications: beside the work, never in its way",
    "launch/cluster/api.py": "the client itself",
    "control/cleanup.py": "another program",
}
_ASKS = ("_store", "store", "_api", "api")
"""What is awaited is a method of one of these, or a function of opendataflow.store that gets one."""


@dataclass(frozen=True, order=True)
class Point:
    """One place. `name`: stays the same when lines move."""

    name: str
    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return self.name


def points() -> list[Point]:
    """All points, in the order of the sources."""
    found: list[Point] = []
    for folder in _MODULES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(_ROOT))
            if name not in _NOT_THE_OPERATOR_S and "process/" not in name:
                found += _points_of(path, name)
    return [point for point in found if "LocalClaimAuthority" not in point.name]


class _Finder(ast.NodeVisitor):
    """Finds the points of one file. Their names say in which class and function they are."""

    def __init__(self, path: Path, module: str) -> None:
        self._path = path
        self._scope = [module]
        self._seen: Counter[str] = Counter()
        self.points: list[Point] = []

    def visit(self, node: ast.AST) -> None:
        scoped = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if scoped:
            self._scope.append(node.name)  # type: ignore[attr-defined]  # all three have one
        for expression in _awaited(node):
            if isinstance(expression, ast.Call) and _asks(expression):
                self._add(expression)
        self.generic_visit(node)
        if scoped:
            self._scope.pop()

    def _add(self, call: ast.Call) -> None:
        name = ".".join([*self._scope, _callee(call)])
        self._seen[name] += 1
        numbered = name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"
        self.points.append(Point(numbered, str(self._path), call.lineno, call.end_lineno or call.lineno))


def _points_of(path: Path, name: str) -> list[Point]:
    finder = _Finder(path, name.removesuffix(".py"))
    finder.visit(ast.parse(path.read_text()))
    return finder.points


def _awaited(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Await):
        return [node.value]
    if isinstance(node, ast.AsyncFor):
        return [node.iter]
    if isinstance(node, ast.AsyncWith):
        return [item.context_expr for item in node.items]
    return []


def _asks(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        owner = function.value
        return (isinstance(owner, ast.Attribute) and owner.attr in _ASKS) or (
            isinstance(owner, ast.Name) and owner.id in _ASKS
        )
    first = call.args[0] if call.args else None
    return isinstance(function, ast.Name) and (
        (isinstance(first, ast.Attribute) and first.attr in ("_store", "store"))
        or (isinstance(first, ast.Name) and first.id in ("_store", "store"))
    )


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


# Dying ---------------------------------------------------------------------------------------------------


def die_at(point: str, when: str, times: int = 1) -> None:
    """From now on this process is killed when it comes to a point for the `times`th time, before or after it."""
    (wanted,) = [each for each in points() if each.name == point]
    left = [times]

    def reach(moment: str, here: bool) -> None:
        if here and moment == when:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    _wrap_store(wanted, reach)
    _wrap_api(wanted, reach)


def _is_here(wanted: Point) -> bool:
    """Whether the innermost frame that is in a file of points is at this one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == wanted.file and wanted.first <= frame.f_lineno <= wanted.last:
            return True
        frame = frame.f_back
    return False


def _wrap_store(wanted: Point, reach: Any) -> None:
    for name in ("rows", "transaction"):
        original = getattr(Store, name)

        def wrapped(self: Store, *given: Any, _original: Any = original, **named: Any) -> Any:
            async def run() -> Any:
                here = _is_here(wanted)
                reach("before", here)
                answer = await _original(self, *given, **named)
                reach("after", here)
                return answer

            return run()

        setattr(Store, name, wrapped)


def _wrap_api(wanted: Point, reach: Any) -> None:
    original = Api._request

    @asynccontextmanager
    async def asked(self: Api, *given: Any, **named: Any) -> AsyncIterator[Any]:
        here = _is_here(wanted)
        reach("before", here)
        async with original(self, *given, **named) as response:
            yield response
        reach("after", here)

    setattr(Api, "_request", asked)  # noqa: B010 # mypy: a method is replaced
