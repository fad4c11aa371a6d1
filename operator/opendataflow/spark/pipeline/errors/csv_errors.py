"""Explain rows of text files that do not fit their schema, with line and column.

Spark's error names the file and the text of the cell, but no line. The line is found by reading the file again.
"""

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from opendataflow.spark.pipeline.errors.text_files import open_text
from opendataflow.spark.pipeline.errors.unfit_values import UnfitValue

_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING\S*\] Malformed records are detected in record parsing: (.*)\.")
_CELLS = re.compile(r"\[MALFORMED_CSV_RECORD\S*\] Malformed CSV record: (.*)")
_SEPARATORS = ",;\t|"
_NO_TIME = "Text '"
_VALUE = "(.{0,500})"
"""A value that Spark quotes. It is bounded, so that a long message is read in linear time."""
_CELL = re.compile(
    rf"""For input string: "{_VALUE}"|The value '{_VALUE}' of the type|{_NO_TIME}{_VALUE}' could not be parsed"""
)
_OTHER_TIMES = (
    "; days are like 2013-01-31, and times like 2013-01-31T23:59:59: write another format as "
    "options: {dateFormat: ...} or {timestampFormat: ...}"
)
_QUOTED_EMPTY = 'an empty cell in quotes is a text and not NULL: if it means NULL, write options: {nullValue: ""}'
_OTHER_TYPE = "declare a type that holds it, or read it as STRING and convert it in a transformation"


def explain_bad_row(file: str, causes: Sequence[str]) -> str | None:
    """Return one sentence about the row that does not fit, or None if the error is another one.

    `causes`: the messages of the exceptions below the one that names the file.
    """
    malformed = _MALFORMED.fullmatch(causes[0]) if causes else None
    if malformed is None:
        return None
    path, reason = Path(unquote(file)), causes[-1]
    cells = _CELLS.fullmatch(reason)
    if cells is not None:
        return f"{_locate_row(path, cells[1])}: a row has more or fewer cells than there are columns: {cells[1]}"
    text = next((next(filter(None, found.groups()), "") for it in causes if (found := _CELL.search(it))), None)
    if text == "":
        return f"{path}: a cell does not fit the type of its column: {_QUOTED_EMPTY}; the row is {malformed[1]}"
    where = None if text is None else _locate_cell(path, text)
    remedy = _OTHER_TIMES if any(_NO_TIME in it for it in causes) else ""
    if where is not None:
        return f'{path}, line {where[0]}: "{text}" does not fit the type of the column {where[1]}{remedy}'
    return f"{path}: a row does not fit its types: {reason}; it is {malformed[1]}, as far as it does{remedy}"


def explain_unfit(unfit: UnfitValue, at: str) -> str:
    """Return one sentence about a value that a conversion has refused. `at`: the place of its source."""
    where = at
    if unfit.file:
        path = Path(unquote(urlsplit(unfit.file).path))
        line = _find_line(path, unfit)
        where = unfit.file if line is None else f"{path}, line {line}"
    remedy = _OTHER_TYPE if unfit.text else _QUOTED_EMPTY
    return f'{where}: "{unfit.text}" does not fit the type {unfit.type} of the column {unfit.column}; {remedy}'


def _find_line(path: Path, unfit: UnfitValue) -> int | None:
    """Return the line of the first cell with this text, else of the first line with the text and the column's name."""
    cell = _locate_cell(path, unfit.text)
    if cell is not None and cell[1].lower() == unfit.column.lower():
        return cell[0]
    name = unfit.column.rpartition(".")[2]
    with suppress(OSError), open_text(path) as opened:
        for number, line in enumerate(opened, 1):
            if unfit.text in line and f'"{name}"' in line:
                return number
    return None


def _locate_row(path: Path, row: str) -> str:
    with suppress(OSError), open_text(path) as opened:
        for number, line in enumerate(opened, 1):
            if line.rstrip("\r\n") == row:
                return f"{path}, line {number}"
    return str(path)


def _locate_cell(path: Path, text: str) -> tuple[int, str] | None:
    """Return line and column of the first cell with this text, trying the usual separators."""
    for separator in _SEPARATORS:
        with suppress(OSError, csv.Error, StopIteration), open_text(path) as opened:
            rows = csv.reader(opened, delimiter=separator)
            header, line = next(rows), 2
            for row in rows:
                for name, cell in zip(header, row, strict=False):
                    if cell == text:
                        return line, name
                line = rows.line_num + 1
    return None
