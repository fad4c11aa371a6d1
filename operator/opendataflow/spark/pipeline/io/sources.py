"""Files that are read: whether they are there, whether they are text in UTF-8, and whether CSV is whole and has
the columns that are expected. What else the text says is not its subject."""

import bz2
import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, TextIO

from opendataflow.core.pipelines.pipeline_steps import double_column
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.error_report import writable
from opendataflow.spark.pipeline.storage.staging import is_data

_BLOCK = 1 << 20
_OWN_WAYS = {"header", "encoding", "charset", "quote", "escape", "comment"}
"""Options of CSV with which a first line may be anything."""
_STRIPPED = {"ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"}
"""Options of CSV with which spaces around names do not count."""
_UNPACKED_BY: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_NOT_UNPACKED = {".deflate", ".lz4", ".snappy", ".zst"}
"""Readers unpack them too."""
_ENDLESS = re.compile("unexpected end of data|field larger than")


@dataclass(frozen=True)
class Text:
    """A file. `shown`: its name for people. `in_path`: the values of the columns that its path has."""

    file: Path
    shown: str
    in_path: Mapping[str, str]


def existing(path: Path, shown: str, place: str) -> Path:
    """Return the path; StepFailed where nothing is there. `place`: of the source in the project's file."""
    with readable(f"{place}: {shown}"):
        if not path.exists():
            raise StepFailed(f"{place}: there is no {shown}")
    return path


def check_listed(paths: Mapping[str, Path]) -> None:
    """Raise StepFailed where a folder has a file that readers pass by without a word: a link to nothing, or one whose
    name is no UTF-8."""
    for shown, path in paths.items():
        for file in path.rglob("*"):
            where = Path(shown, file.relative_to(path))
            if str(where) != writable(str(where)):
                raise StepFailed(f"{writable(str(where))}: its name is not UTF-8, and nobody would read it: rename it")
            if file.is_symlink() and not file.exists() and is_data(file.name):
                raise StepFailed(f"{where}: it is a link to what is not there")


def check_text(texts: Iterable[Text], quote: str | None = None) -> None:
    """Raise StepFailed where a file is not text in UTF-8: readers would alter it in silence. `quote`: of CSV; one that
    is never closed would make a cell of all that follows."""
    for text in texts:
        with readable(text.shown):
            bad_line, quotes = _looked_through(text.file, quote)
        if bad_line is not None:
            raise StepFailed(f"{text.shown}, line {bad_line}: it is not UTF-8 text; save it as UTF-8")
        if quotes % 2 and (line := _open_cell(text.file, str(quote))) is not None:
            raise StepFailed(
                f"{text.shown}, line {line}: a cell begins with a quote that is never closed; is the file whole?"
            )


def check_names(texts: Iterable[Text], options: Mapping[str, str], columns: Sequence[str] | None) -> None:
    """Raise StepFailed where a CSV file has two columns of one name, as readers give both another one; or other columns
    than `columns`, or, without these, than the first file, as readers go by their places. Says nothing of files that
    are written in a way of their own."""
    wanted, whose = columns, "schema"
    for text in texts:
        header = _header(text.file, options)
        if not header:
            continue
        double = double_column([name for name in header if name])
        if double is not None:
            raise StepFailed(f"{text.shown}, line 1: there are two columns {double}; rename one of them")
        own = header if wanted is None else [name for name in wanted if name not in text.in_path]
        if [name.lower() for name in header] != [name.lower() for name in own]:
            raise StepFailed(
                f"{text.shown}, line 1: its columns are {_listed(header)}, and those of {whose} are {_listed(own)}; "
                "write them alike, in one order"
            )
        if wanted is None:
            wanted, whose = header, text.shown


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name if name and name == name.strip() else f'"{name}"' for name in names)


def _header(file: Path, options: Mapping[str, str]) -> list[str] | None:
    """The names in the first line; None where it may be anything."""
    separator = options.get("sep", options.get("delimiter", ","))
    if _OWN_WAYS & options.keys() or len(separator) != 1:
        return None
    with text_of(file) as opened, suppress(csv.Error):
        names = next(filter(None, csv.reader(opened, delimiter=separator)), [])
        return [name.strip() for name in names] if _STRIPPED & options.keys() else names
    return None


def texts_in(paths: Mapping[str, Path]) -> Iterator[Text]:
    """Yield the files, or those in folders that readers do not pass by. None that is compressed in a way that is not
    known here: who reads it says what is wrong. `paths`: by their names for people."""
    for shown, path in paths.items():
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
        for file in files:
            if file.suffix not in _NOT_UNPACKED:
                inside = file.relative_to(path).parts
                in_path = dict(part.split("=", 1) for part in inside[:-1] if "=" in part)
                yield Text(file, shown if file == path else str(Path(shown, *inside)), in_path)


def _is_data(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)


def unpacked(file: Path) -> IO[bytes]:
    """Open a file, unpacked as readers do by its name."""
    opened: IO[bytes] = _UNPACKED_BY.get(file.suffix, Path.open)(file, "rb")
    return opened


def text_of(file: Path) -> TextIO:
    """Open a text that may be packed; what is no UTF-8 is replaced."""
    return TextIOWrapper(unpacked(file), "utf-8-sig", "replace", newline="")


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Say in one sentence what can't be read or unpacked."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StepFailed(f"{where}: it can't be unpacked: {error}; is the file whole?") from error
    except OSError as error:
        raise StepFailed(f"{where}: can't be read: {error.strerror or f'{error}; is the file whole?'}") from error


def _looked_through(file: Path, quote: str | None) -> tuple[int | None, int]:
    """The first line that is no UTF-8, and the number of quotes."""
    decoder, line, quotes = codecs.getincrementaldecoder("utf-8")(), 1, 0
    with unpacked(file) as opened:
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
    with text_of(file) as opened:
        rows, line = csv.reader(opened, quotechar=quote, strict=True), 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error as error:
            return line if _ENDLESS.search(str(error)) else None
    return None
