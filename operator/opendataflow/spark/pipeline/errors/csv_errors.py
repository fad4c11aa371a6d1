"""Explain rows of CSV files that do not fit their schema, with line and column.

Spark's error names the file and the text of the cell, but no line. The line is found by reading the file again.
"""

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from opendataflow.spark.pipeline.errors.text_files import open_text

_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING\S*\] Malformed records are detected in record parsing: (.*)\.")
_CELLS = re.compile(r"\[MALFORMED_CSV_RECORD\S*\] Malformed CSV record: (.*)")
_SEPARATORS = ",;\t|"
_CELL = re.compile(r"""For input string: "(.*)"|The value '(.*)' of the type|Text '(.*)' could not be parsed""")


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
    where = None if text is None else _locate_cell(path, text)
    if where is not None:
        return f'{path}, line {where[0]}: "{text}" does not fit the type of the column {where[1]}'
    return f"{path}: a row does not fit its types: {reason}; it is {malformed[1]}, as far as it does"


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
