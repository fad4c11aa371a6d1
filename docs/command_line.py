"""Generates the reference of the command line from the commands themselves, for `generate`.

The text does not depend on the width of a terminal or on the environment.
"""

import argparse
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from unittest.mock import patch

from typer.main import get_command

from opendataflow.cli.commands import all_commands
from opendataflow.cli.contents import COMMANDS, EXAMPLES, PANELS
from opendataflow.control import main as operator_program

HEAD = """# Command line

<!-- Written by docs/generate.py from operator/opendataflow/cli, control and runjob. -->

| program | what it is for |
|---|---|
| `dataflow` | the command line for people and scripts |
| `kubectl dataflow` | the same commands, by default [through the cluster](../how-to/through-a-kubeconfig.md) |
| [`RunJob`](#runjob) | runs one chunk around an unchanged script, in the words of the old framework |
| [`opendataflow`](#opendataflow) | the program of the operator's image |

Each command ends with one of [these exit codes](exit-codes.md). An error is one sentence on stderr.
`--help` or `-h` after any command shows its help, as `dataflow help COMMAND` does. `dataflow version` prints the
version.
Singular and plural of a noun are the same: `dataflow get job` is `dataflow get jobs`.
`dataflow --install-completion` sets up [shell completion](../how-to/shell-completion.md);
`dataflow --show-completion` prints it.
"""

CLUSTER = """## Options for a cluster

The commands under "Show" and "Change" accept these options. They choose
[a cluster](../how-to/through-a-kubeconfig.md) instead of Postgres.
"""

HIDDEN = """## Hidden names

`--help` does not list these commands. They are for people who know them from before.

| command | what it does |
|---|---|"""

RUN_JOB = """## RunJob

    RunJob [--literal] SCRIPT [ARGUMENTS]...

Run one chunk of the job that has the script's name, and exit with the script's exit code. Everything after the script
goes to the script. Exit code 75 means that no chunk can run now. `dataflow run` does the same with options. See
[RunJob](../how-to/runjob.md).

| option | what it is |
|---|---|
| `--literal` | Give the arguments to the script as they are: `$dataid` stays `$dataid`. |
| `-h`, `--help` | Show the forms of a call. |
| `--version` | Print the version. |
"""

OPERATOR = """## opendataflow

The program of the operator's image. Its settings are [environment variables](operator.md).
"""

TABLE = "| argument or option | value | default | what it is |\n|---|---|---|---|"
_SHARED = ("kube", "context", "namespace")


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *_contents(), *_commands(), *_cluster_options(), RUN_JOB, *_operator()])


def _contents() -> Iterator[str]:
    yield "| | commands |\n|---|---|"
    for panel in PANELS:
        links = " · ".join(f"[{name}](#dataflow-{name.replace(' ', '-').lower()})" for name, _ in _below(panel))
        yield f"| {panel} | {links} |"
    yield ""


def _commands() -> Iterator[str]:
    for panel in PANELS:
        yield f"## {panel}\n"
        for name, command in _below(panel):
            yield from _described(name, command)
    yield HIDDEN
    for name, command in _registered():
        if command.hidden:
            yield f"| `dataflow {name}` | {_cell(command.help)} |"
    yield ""


def _below(panel: str) -> Iterator[tuple[str, Any]]:
    """Yield each command of a panel with its name, and each command of a group in place of the group."""
    for name, command in _registered():
        if COMMANDS[name].panel == panel:
            within = sorted(getattr(command, "commands", {}).items())
            yield from [(f"{name} {child}", one) for child, one in within if not one.hidden] or [(name, command)]


def _registered() -> list[tuple[str, Any]]:
    """Return all commands by name: the order of their registration depends on which module is imported first."""
    return sorted(get_command(all_commands()).commands.items())  # type: ignore[attr-defined]  # a group


def _described(name: str, command: Any) -> Iterator[str]:
    own = [parameter for parameter in command.params if parameter.name not in _SHARED]
    arguments = [parameter for parameter in own if _is_argument(parameter)]
    options = [parameter for parameter in own if not _is_argument(parameter) and not parameter.hidden]
    usage = [f"dataflow {name}", *(["[OPTIONS]"] if options else []), *map(_usage, arguments)]
    yield f"### dataflow {name}\n\n{command.help}\n\n    {' '.join(usage)}\n"
    if arguments or options:
        yield TABLE
        for parameter in [*arguments, *options]:
            yield _row(parameter)
        yield ""
    yield "".join(["Examples:\n\n", *(f"    {example}\n" for example in EXAMPLES[name])])
    if len(own) < len(command.params):
        yield "Also the [options for a cluster](#options-for-a-cluster).\n"


def _cluster_options() -> Iterator[str]:
    yield f"{CLUSTER}\n{TABLE}"
    for parameter in dict(_registered())["status"].params:
        if parameter.name in _SHARED:
            yield _row(parameter)
    yield ""


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _usage(argument: Any) -> str:
    name = _name(argument)
    spelled = name if argument.required else f"[{name}]"
    return f"{spelled}..." if argument.nargs == -1 else spelled


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).removesuffix("...")


def _row(parameter: Any) -> str:
    if _is_argument(parameter):
        spelled = f"`{_name(parameter)}`"
    else:
        spelled = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    return f"| {spelled} | {_value(parameter)} | {_default(parameter)} | {_cell(parameter.help or '')} |"


def _value(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar and not _is_argument(parameter):
        return f"`{parameter.metavar}`{', repeatable' if parameter.multiple else ''}"
    kind = _type(parameter.type_descriptor.annotation)
    if parameter.min is not None and parameter.max is not None:
        return f"{kind}, {parameter.min} to {parameter.max}"
    if parameter.min is not None:
        return f"{kind}, at least {parameter.min}"
    return kind


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(_type(one) for one in arguments if one is not NoneType)
    if origin is list:
        return f"{_type(arguments[0])}, repeatable"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{one.value}`" for one in annotation)
    return {str: "text", int: "whole number", float: "number", Path: "path"}[annotation]


def _default(parameter: Any) -> str:
    if parameter.required:
        return "**needed**"
    value = parameter.default
    if value is None or value is False or value == [] or callable(value) or not parameter.show_default:
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _operator() -> Iterator[str]:
    yield OPERATOR
    with patch.dict(os.environ):
        os.environ.pop("DATAFLOW_LOG_FORMAT", None)
        parser = operator_program._parser()
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    helps = {choice.dest: choice.help for choice in commands._choices_actions}
    for name, command in commands.choices.items():
        text = command.description or f"{str(helps[name]).capitalize()}."
        usage = " ".join(["opendataflow", name, *_required(command), "[OPTIONS]"])
        yield f"### opendataflow {name}\n\n{text}\n\n    {usage}\n"
        yield "| option | value | default | what it is |\n|---|---|---|---|"
        for action in command._actions:
            if action.dest != "help":
                yield _operator_row(action)
        yield ""


def _required(command: argparse.ArgumentParser) -> Iterator[str]:
    for group in command._mutually_exclusive_groups:
        if group.required:
            yield f"({' | '.join(action.option_strings[-1] for action in group._group_actions)})"


def _operator_row(action: argparse.Action) -> str:
    spelled = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.choices:
        value = " or ".join(f"`{choice}`" for choice in action.choices)
    else:
        value = "" if action.nargs == 0 else f"`{action.metavar or action.dest.upper()}`"
    default = f"`{action.default}`" if action.default else ""
    return f"| {spelled} | {value} | {default} | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
