"""How the command line shows things: tables for people, JSON and YAML for programs. It asks for nothing itself."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opendataflow.names import ChunkStatus, TaskState

Row = Mapping[str, Any]

_WIDE = 10_000
"""Columns of an output that no person looks at: nothing is cut there."""

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


_SENTENCES = ("message", "reason", "sources", "transformations")
"""Columns that take more than one line where a terminal is narrow."""


class Output(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class _Console(Console):
    """Where its reader has gone, as `head` does, it falls silent; what is under way goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence()


def silence() -> None:
    """Print nothing more, also not at exit: nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console(*, stderr: bool = False) -> Console:
    """A console that cuts nothing where its output is no terminal."""
    made = _Console(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _WIDE
    return made


def rows(found: Sequence[Row], output: Output, columns: Sequence[str], empty: str) -> None:
    """Print rows: all their fields as JSON or YAML, the given columns as a table; `empty` where there are none."""
    if output is not Output.TABLE:
        document([dict(row) for row in found], output)
        return
    if not found:
        console(stderr=True).print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold", no_wrap=column not in _SENTENCES)
    for row in found:
        table.add_row(*(_cell(row[column]) for column in columns))
    console().print(table)


def document(value: object, output: Output) -> None:
    """Print a value as JSON or YAML."""
    plain = json.loads(json.dumps(value, default=_plain, ensure_ascii=False))
    if output is Output.JSON:
        sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    else:
        yaml.safe_dump(plain, sys.stdout, sort_keys=False, allow_unicode=True)


def coloured(state: object) -> Text:
    """A state in its colour."""
    return Text(str(state), style=_COLOURS.get(str(state), ""))


def _cell(value: object) -> Text:
    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(value.astimezone().strftime("%Y-%m-%d %H:%M:%S"))
    return coloured(value)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
