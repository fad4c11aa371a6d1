"""Prints results: tables for people, JSON and YAML for programs. It reads nothing itself.

All commands print here. Texts come from anybody, so that their control characters are made visible or escaped.
"""

import json
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from opendataflow.cli.output.screen import Screen, Text, console
from opendataflow.cli.output.tables import lay_out
from opendataflow.core.text.moments import shown
from opendataflow.names import CONTROLS, ChunkStatus, TaskState
from opendataflow.stdio import visible

Row = Mapping[str, Any]

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

_INDENT = " " * 4


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_document(self) -> bool:
        """Return whether a program reads the output."""
        return self in (Output.JSON, Output.YAML)


_CONTROLS = re.compile(rf"(?!\n)[{CONTROLS}]")


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text on stdout or stderr, with its control characters visible. `nl`: end the line."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{visible(text)}\n" if nl else visible(text))
    stream.flush()


def print_rows(
    found: Sequence[Row], output: Output, columns: Sequence[str], empty: str, optional: Sequence[str] = ()
) -> None:
    """Print rows, as a table of the given columns, or with all fields as JSON or YAML.

    `empty`: printed on stderr instead of an empty table. `optional`: columns that are left out if all their values are
    0 or missing.
    """
    if output.is_document:
        print_document([dict(row) for row in found], output)
        return
    if not found:
        echo(empty, err=True)
        return
    columns = [column for column in columns if column not in optional or any(row[column] for row in found)]
    cells = [{column: _cell(row[column]) for column in columns} for row in found]
    print_table(columns, cells, wide=output is Output.WIDE)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Text]],
    *,
    wide: bool = False,
    right: Collection[str] = (),
    **how: Any,
) -> None:
    """Print a table. Say what does not fit a terminal, unless `wide`: then the terminal wraps the lines."""
    to = console()
    table = lay_out(columns, rows, None if wide else to.width, right, **how)
    for line in table.lines:
        to.print(line)
    if table.note:
        echo(table.note, err=True)


def print_indented(to: Screen, sentence: str) -> None:
    """Print a sentence indented, on a terminal also the lines after its first one."""
    plain = visible(sentence)
    width = None if to.width is None else to.width - len(_INDENT)
    lines = [plain] if width is None else textwrap.wrap(plain, width, break_long_words=False, break_on_hyphens=False)
    for line in lines:
        to.print(f"{_INDENT}{line}")


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
    """Return a value as a cell, on one line."""
    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, datetime):
        return Text(shown(value))
    if isinstance(value, bool):
        return Text("yes" if value else "-", style="" if value else "dim")
    return coloured(value).on_one_line()


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
