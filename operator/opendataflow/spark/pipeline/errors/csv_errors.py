"""Rows of CSV files that do not fit their schema: which line and cell it is, out of what Spark says of it.

Spark names the file and what it could not make of a cell, and never the line. It asks nobody but the file.
"""

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from opendataflow.spark.pipeline.io.sources import text_of

_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING\S*\] Malformed records are detected in record parsing: (.*)\.")
_CELLS = re.compile(r"\[MALFORMED_CSV_RECORD\S*\] Malformed CSV record: (.*)")
_SEPARATORS = ",;\t|"
_CELL = re.compile(r"""For input string: "(.*)"|The value '(.*)' of the type|Text '(.*)' could not be parsed""")


def misfit(file: str, causes: Sequence[str]) -> str | None:
    """Return the sentence about a row; None where it is no row that does not fit. `causes`: what each exception that
    lies below the one about the file says."""
    malformed = _MALFORMED.fullmatch(causes[0]) if causes else None
    if malformed is None:
        return None
    path, reason = Path(unquote(file)), causes[-1]
    cells = _CELLS.fullmatch(reason)
    if cells is not None:
        return f"{_placed(path, cells[1])}: a row has more or fewer cells than there are columns: {cells[1]}"
    text = next((next(filter(None, found.groups()), "") for it in causes if (found := _CELL.search(it))), None)
    where = None if text is None else _cell(path, text)
    if where is not None:
        return f'{path}, line {where[0]}: "{text}" does not fit the type of the column {where[1]}'
    return f"{path}: a row does not fit its types: {reason}; it is {malformed[1]}, as far as it does"


def _placed(path: Path, row: str) -> str:
    with suppress(OSError), text_of(path) as opened:
        for number, line in enumerate(opened, 1):
            if line.rstrip("\r\n") == row:
                return f"{path}, line {number}"
    return str(path)


def _cell(path: Path, text: str) -> tuple[int, str] | None:
    """The line and the column of the first cell that has the text, with one of the usual separators."""
    for separator in _SEPARATORS:
        with suppress(OSError, csv.Error, StopIteration), text_of(path) as opened:
            rows = csv.reader(opened, delimiter=separator)
            header, line = next(rows), 2
            for row in rows:
                for name, cell in zip(header, row, strict=False):
                    if cell == text:
                        return line, name
                line = rows.line_num + 1
    return None
