"""Parse a list of chunks: CSV with a header, one id per line, or JSON lines. Pure: the caller reads the file.

    id,from,to                      the column `id` or `data_id`; every other column is a bound, as text
    2013-01,2013-01-01,2013-02-01

    2013-01                         one id per line, nothing else

    {"id": "0-99", "bounds": {"from": 0, "to": 100}}     bounds keep their types

An id must be unique. An error names the first invalid line by its number.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from opendataflow.errors import InvalidInput
from opendataflow.model.resources.api import Id

_ID_COLUMNS = ("id", "data_id")
_OTHER_HEADERS = (
    "dataid",
    "data id",
    "data-id",
    "id",
    "data_id",
    "chunk",
    "chunk_id",
    "partition",
    "partition_key",
    "key",
)
"""Words that are a header and no id, also in capitals."""

_ID: TypeAdapter[str] = TypeAdapter(Id)


@dataclass(frozen=True)
class Listed:
    """A chunk of the list. `line`: the number of its line. `bounds`: None if the list has none."""

    line: int
    id: str
    bounds: dict[str, Any] | None


def parse_chunk_list(text: str, name: str) -> list[Listed]:
    """Return the chunks in the order of the text. `name`: of the file, for errors.

    Raise InvalidInput for the first invalid line.
    """
    text = text.removeprefix("\ufeff")
    parse = _json_lines if text.lstrip().startswith("{") else _csv
    seen: dict[str, int] = {}
    found = []
    for listed in parse(text, name):
        _check_id(listed, name)
        first = seen.setdefault(listed.id, listed.line)
        if first != listed.line:
            raise InvalidInput(f"{name}, line {listed.line}: {listed.id} is in line {first} already: keep one")
        found.append(listed)
    if not found:
        raise InvalidInput(f"{name}: there is no chunk in it")
    return found


def _check_id(listed: Listed, name: str) -> None:
    try:
        _ID.validate_python(listed.id)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"{name}, line {listed.line}: the id {listed.id!r} can't be one: {reason}") from None


def _csv(text: str, name: str) -> Iterator[Listed]:
    rows = csv.reader(text.splitlines(keepends=True), strict=True)
    columns: list[str] | None = None
    began = 1
    try:
        for row in rows:
            line, began = began, rows.line_num + 1
            if not row:
                continue
            if columns is None:
                columns = _columns(row, name, line)
                if columns is not None:
                    continue
                columns = ["id"]
            if len(row) != len(columns):
                wanted = (
                    f"the header has {len(columns)}" if len(columns) > 1 else "without a header it is one id a line"
                )
                raise InvalidInput(f"{name}, line {line}: {len(row)} fields, but {wanted}")
            fields = dict(zip(columns, row, strict=True))
            data_id = fields.pop("id")
            yield Listed(line, data_id, {k: v for k, v in fields.items() if v} or None)
    except csv.Error as error:
        raise InvalidInput(f"{name}, line {rows.line_num}: this is no CSV: {error}") from error


def _columns(row: list[str], name: str, line: int) -> list[str] | None:
    """Return the columns of a header, with `id` for the id, or None if the first line is an id."""
    ids = [column for column in row if column in _ID_COLUMNS]
    if len(ids) == 1:
        columns = ["id" if column == ids[0] else column for column in row]
        _check_columns(columns, name, line)
        return columns
    if len(ids) > 1 or len(row) > 1 or row[0].strip().lower() in _OTHER_HEADERS:
        found = ", ".join(row)
        raise InvalidInput(f"{name}, line {line}: the header is {found}; one column must be named id or data_id")
    return None


def header_warning(found: Sequence[Listed]) -> str | None:
    """Return a warning if the first id of a list may be a header: a word, where all other ids have digits."""
    first, *others = found
    if first.bounds is None and first.id.isalpha() and others and all(re.search("[0-9]", it.id) for it in others):
        return f"line {first.line}: {first.id} counts as a data id; if it is a header, write id or data_id there"
    return None


def _check_columns(columns: list[str], name: str, line: int) -> None:
    for column in columns:
        if not column or columns.count(column) > 1:
            fault = f"the column {column} is there twice" if column else "a column has no name"
            raise InvalidInput(f"{name}, line {line}: {fault}")


def _json_lines(text: str, name: str) -> Iterator[Listed]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{where}: this is no JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            raise InvalidInput(f'{where}: an object with a text as its id is wanted: {{"id": "2013-01"}}')
        unknown = sorted(value.keys() - {"id", "bounds"})
        if unknown:
            raise InvalidInput(f"{where}: there is {unknown[0]}, but a chunk has an id and bounds only")
        bounds = value.get("bounds")
        if not (bounds is None or isinstance(bounds, dict)):
            raise InvalidInput(f"{where}: bounds are an object with names and values")
        if "\\u0000" in line:
            raise InvalidInput(f"{where}: text can't hold the character NUL")
        yield Listed(number, value["id"], bounds or None)
