"""Prints results: tables for people, JSON and YAML for programs. It reads nothing itself.

All commands print here. Texts come from anybody, so that their control characters are made visible or escaped.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import rich.text
import typer
from rich.console import Console
from rich.table import Table

from opendataflow.names import CONTROLS, ChunkStatus, TaskState
from opendataflow.stdio import visible

Row = Mapping[str, Any]

_UNLIMITED_WIDTH = 10_000
"""Columns of an output that is no terminal, so that nothing is cut."""

_COLOURS: dict[str, str] = {
    TaskState.DONE: "green",
    TaskState.QUEUED: "green",
    TaskState.RUNNING: "cyan",
    TaskState.RETRYING: "yellow",
    TaskState.FAILED: "red",
    TaskState.HELD: "magenta",
    ChunkStatus.HOLD: "magenta",
    ChunkStatus.RESUBMIT: "yellow",
    ChunkStatus.PENDING: "yellow",
}


_WRAPPED = ("message", "reason", "sources", "transformations", "inputs", "outputs")
"""Columns that are wrapped on a narrow terminal."""


_INDENT = " " * 4


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


_CONTROLS = re.compile(rf"(?!\n)[{CONTROLS}]")


class Text(rich.text.Text):
    """A text with a style. Its control characters are visible."""

    def __init__(self, text: str = "", style: Any = "", **how: Any) -> None:
        super().__init__(visible(text), style, **how)

    def append(self, text: rich.text.Text | str, style: Any = None) -> Self:
        """Append a text, with its control characters visible."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


class _Console(Console):
    """A console that stops printing if its reader closes the pipe, as `head` does. The command continues."""

    def render_str(self, text: str, **how: Any) -> rich.text.Text:
        """Return a printed text or a cell of a table, with its control characters visible."""
        return super().render_str(visible(text), **how)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence_stdout()


def silence_stdout() -> None:
    """Redirect stdout to /dev/null, also for the flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console(*, stderr: bool = False) -> Console:
    """Return a console. It cuts no text if its output is no terminal."""
    made = _Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNLIMITED_WIDTH
    return made


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text on stdout or stderr, with its control characters visible. `nl`: end the line."""
    typer.echo(visible(text), err=err, nl=nl)


def print_rows(
    found: Sequence[Row], output: Output, columns: Sequence[str], empty: str, optional: Sequence[str] = ()
) -> None:
    """Print rows, as a table of the given columns, or with all fields as JSON or YAML.

    `empty`: printed on stderr instead of an empty table. `optional`: columns that are left out if all their values are
    0 or missing.
    """
    if output is not Output.TABLE:
        print_document([dict(row) for row in found], output)
        return
    if not found:
        console(stderr=True).print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [column for column in columns if column not in optional or any(row[column] for row in found)]
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold", no_wrap=column not in _WRAPPED)
    for row in found:
        table.add_row(*(_cell(row[column]) for column in columns))
    console().print(table)


def print_indented(to: Console, sentence: str) -> None:
    """Print a sentence indented, on a terminal also the lines after its first one."""
    for line in Text(sentence).wrap(to, to.width - len(_INDENT)):
        to.print(Text(_INDENT).append(line))


def print_document(value: object, output: Output) -> None:
    """Print a value as JSON or YAML."""
    text = json.dumps(value, default=_plain, indent=2, ensure_ascii=False) + "\n"
    if output is Output.YAML:
        text = _yaml(json.loads(text))
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def coloured(state: object) -> Text:
    """Return a state as text in its colour."""
    return Text(str(state), style=_COLOURS.get(str(state), ""))


def _yaml(value: object) -> str:
    """Return a value as YAML. Texts with control characters are in double quotes, which allow escapes."""
    import yaml  # few commands print YAML

    class Dumper(yaml.SafeDumper):
        pass

    def as_scalar(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, '"' if _CONTROLS.search(text) else None)

    Dumper.add_representer(str, as_scalar)
    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def _cell(value: object) -> Text:
    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(value.astimezone().strftime("%Y-%m-%d %H:%M:%S"))
    if isinstance(value, bool):
        return Text("yes" if value else "-", style="" if value else "dim")
    return coloured(value)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
