"""Files that are read: whether they are there, whether they are text in UTF-8, and whether CSV is whole and has
the columns that are expected. What else the text says is not its subject."""

import codecs
import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from opendataflow.core.pipeline_steps import double_column
from opendataflow.errors import StepFailed

_BLOCK = 1 << 20
_OWN_WAYS = {"header", "encoding", "charset", "quote", "escape", "comment"}
"""Options of CSV with which a first line may be anything."""
_COMPRESSED = {".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy"}
_ENDLESS = re.compile("unexpected end of data|field larger than")


def existing(path: Path, shown: str, place: str) -> Path:
    """Return the path; StepFailed where nothing is there. `place`: of the source in the project's file."""
    if not path.exists():
        raise StepFailed(f"{place}: there is no {shown}")
    return path


def check_text(path: Path, shown: str, quote: str | None = None) -> None:
    """Raise StepFailed where a file, or one in a folder, is not text in UTF-8: readers would alter it in silence.
    `quote`: of CSV; one that is never closed would make a cell of all that follows."""
    for file, where in _texts(path, shown):
        bad_line, quotes = _looked_through(file, quote)
        if bad_line is not None:
            raise StepFailed(f"{where}, line {bad_line}: it is not UTF-8 text; save it as UTF-8")
        if quotes % 2 and (line := _open_cell(file, str(quote))) is not None:
            raise StepFailed(
                f"{where}, line {line}: a cell begins with a quote that is never closed; is the file whole?"
            )


def check_names(path: Path, shown: str, options: Mapping[str, str]) -> None:
    """Raise StepFailed where a CSV file, or one in a folder, has two columns of one name: readers give both another
    one. Says nothing of files that are written in a way of their own."""
    for file, where in _texts(path, shown):
        double = double_column([name for name in _header(file, options) or () if name])
        if double is not None:
            raise StepFailed(f"{where}, line 1: there are two columns {double}; rename one of them")


def check_header(path: Path, shown: str, columns: list[str], options: Mapping[str, str]) -> None:
    """Raise StepFailed where the first line of a CSV file names other columns than these. Says nothing of folders, and
    of files that are written in a way of their own."""
    header = next((_header(file, options) for file, _ in _texts(path, shown)), None) if path.is_file() else None
    if header is None:
        return
    found = [name.strip() for name in header]
    if [name.lower() for name in found] != [name.lower() for name in columns]:
        raise StepFailed(
            f"{shown}, line 1: its columns are {', '.join(found)}, and those of schema are {', '.join(columns)}; write "
            "them alike, in one order"
        )


def _header(file: Path, options: Mapping[str, str]) -> list[str] | None:
    """The names in the first line; None where it may be anything."""
    separator = options.get("sep", options.get("delimiter", ","))
    if _OWN_WAYS & options.keys() or len(separator) != 1:
        return None
    with file.open(encoding="utf-8-sig", newline="") as opened, suppress(csv.Error):
        return next(csv.reader(opened, delimiter=separator), [])
    return None


def _texts(path: Path, shown: str) -> Iterator[tuple[Path, str]]:
    """The file, or those in a folder that readers do not pass by, each with its name for people. None that is
    compressed: who reads it says what is wrong."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
    for file in files:
        if file.suffix not in _COMPRESSED:
            yield file, shown if file == path else f"{shown}/{file.relative_to(path)}"


def _is_data(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)


def _looked_through(file: Path, quote: str | None) -> tuple[int | None, int]:
    """The first line that is no UTF-8, and the number of quotes."""
    decoder, line, quotes = codecs.getincrementaldecoder("utf-8")(), 1, 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            quotes += block.count(quote.encode()) if quote else 0
            try:
                line += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                return line + error.object[: error.start].count(b"\n"), quotes
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return line, quotes
    return None, quotes


def _open_cell(file: Path, quote: str) -> int | None:
    """The line in which a row begins that has a cell without an end; None where there is none."""
    with file.open(encoding="utf-8", newline="") as opened:
        rows, line = csv.reader(opened, quotechar=quote, strict=True), 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error as error:
            return line if _ENDLESS.search(str(error)) else None
    return None
