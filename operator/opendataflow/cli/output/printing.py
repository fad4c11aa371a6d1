"""Prints results: tables for people, JSON and YAML for programs. It reads nothing itself."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opendataflow.names import ChunkStatus, TaskState

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


class _Console(Console):
    """A console that stops printing if its reader closes the pipe, as `head` does. The command continues."""

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
    plain = json.loads(json.dumps(value, default=_plain, ensure_ascii=False))
    if output is Output.JSON:
        sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    else:
        import yaml  # few commands print YAML

        yaml.safe_dump(plain, sys.stdout, sort_keys=False, allow_unicode=True)


def coloured(state: object) -> Text:
    """Return a state as text in its colour."""
    return Text(str(state), style=_COLOURS.get(str(state), ""))


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
