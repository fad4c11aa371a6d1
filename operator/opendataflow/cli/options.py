"""Adds options that many commands share to commands that are registered already."""

import functools
import inspect
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any

import typer

Options = Mapping[str, tuple[Any, Any]]
"""Name of a parameter -> its annotation and its default."""

UTC_OPTIONS: Options = {
    "utc": (Annotated[bool, typer.Option("--utc", help="Print times in UTC. Default: the local time zone.")], False)
}


def add_options(
    app: typer.Typer, names: Collection[str], options: Options, around: Callable[..., AbstractContextManager[None]]
) -> None:
    """Add options to the commands and groups of commands with these names. Repeated calls add none.

    `around`: gets the values of the options by name. The command runs inside of its block.
    """
    commands = [command for command in app.registered_commands if command.name in names]
    for group in app.registered_groups:
        if group.name in names and group.typer_instance is not None:
            commands += group.typer_instance.registered_commands
    for command in commands:
        assert command.callback is not None
        if not options.keys() & inspect.signature(command.callback).parameters.keys():
            command.callback = _with_options(command.callback, options, around)


def _with_options(
    command: Callable[..., Any], options: Options, around: Callable[..., AbstractContextManager[None]]
) -> Callable[..., Any]:
    signature = inspect.signature(command)

    @functools.wraps(command)
    def command_with_options(**given: Any) -> Any:
        with around(**{name: given.pop(name) for name in options}):
            return command(**given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(n, keyword, annotation=a, default=d) for n, (a, d) in options.items()]
    parameters = [parameter.replace(kind=keyword) for parameter in signature.parameters.values()]
    command_with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]  # PEP 362
        parameters=[*parameters, *more]
    )
    return command_with_options


@contextmanager
def in_time_zone(*, utc: bool) -> Iterator[None]:
    """Use UTC as the local time zone of this process during the block, if wanted."""
    before = os.environ.get("TZ")
    if utc:
        os.environ["TZ"] = "UTC"
        time.tzset()
    try:
        yield
    finally:
        if utc:
            os.environ.pop("TZ")
            if before is not None:
                os.environ["TZ"] = before
            time.tzset()
