"""Converts the words of a command line into the types of its parameters.

Typer's own conversion imports pydantic, which takes longer than most commands, and its sentences are about pydantic's
types. A type that is not known here is converted by Typer.
"""

from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
import typer.core
from typer._coercion import build_runtime_param

_LARGEST = 2**31 - 1
"""No number of a command line is larger: limits, parallelism, runs."""
_SCALARS = (str, int, float, bool, Path)


def convert_without_pydantic() -> None:
    """Let Typer convert the values of parameters by this module."""

    def conversion_of(descriptor: Any) -> Any:
        annotation = descriptor.annotation
        known = all(_is_known(one) for one in (get_args(annotation) or (annotation,)))
        return _Conversion(annotation) if known else build_runtime_param(descriptor)

    setattr(typer.core, "build_runtime_param", conversion_of)  # noqa: B010  no public way leads around pydantic


def _is_known(annotation: Any) -> bool:
    return isinstance(annotation, type) and (annotation in _SCALARS or issubclass(annotation, Enum))


class _Conversion:
    """Converts the values of one parameter."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._kinds = get_args(annotation)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value with its type. Raise BadParameter with a sentence."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            if get_origin(self._annotation) is tuple:
                return tuple(_convert(one, kind) for one, kind in zip(value, self._kinds, strict=True))
            if self._kinds:
                return [_convert(one, self._kinds[0]) for one in value]
            return _within(_convert(value, self._annotation), param)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _convert(value: Any, kind: Any) -> Any:
    if isinstance(value, kind):
        return value
    if issubclass(kind, Enum):
        for choice in kind:
            if value == choice.value:
                return choice
        raise ValueError(f"'{value}' is not one of {', '.join(repr(choice.value) for choice in kind)}")
    if kind in (int, float):
        return _number(value, kind)
    return kind(value)


def _number(value: Any, kind: Any) -> Any:
    try:
        number = kind(value)
    except ValueError:
        raise ValueError(f"'{value}' is not a {'whole ' if kind is int else ''}number") from None
    if number != number or abs(number) > _LARGEST:
        raise ValueError(f"'{value}' is not a number that is possible here")
    return number


def _within(value: Any, param: Any) -> Any:
    """Return the value if it is within the limits of its parameter."""
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"from {least} to {most}" if None not in (least, most) else f"at least {least}"
        raise ValueError(f"{value} is not allowed: write a number {limits}")
    return value
