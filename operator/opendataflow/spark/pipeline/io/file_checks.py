"""Check local source files: presence, UTF-8 encoding, complete CSV, and expected CSV columns."""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.pipelines.pipeline_steps import find_duplicate
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.error_report import replace_surrogates
from opendataflow.spark.pipeline.errors.text_files import open_text, open_unpacked
from opendataflow.spark.pipeline.storage.spark_paths import is_data_file

_BLOCK = 1 << 20
_HEADER_OPTIONS = {"header", "encoding", "charset", "quote", "escape", "comment"}
"""Options of CSV that make the content of the first line unpredictable."""
_ROW_OPTIONS = {"lineSep", "encoding", "charset", "quote", "escape", "comment"}
"""Options of CSV with which the rows end elsewhere."""
_STRIP_OPTIONS = {"ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"}
"""Options of CSV that ignore spaces around names."""
_OTHER_COMPRESSIONS = {".deflate", ".lz4", ".snappy", ".zst"}
"""Suffixes that readers unpack, and this module does not."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_QUOTED = re.compile(rb'"[^"]*("|$)')
_UNCLOSED_QUOTE = re.compile("unexpected end of data|field larger than")


@dataclass(frozen=True)
class SourceFile:
    """A text file. `shown`: the path as the user would write it. `in_path`: column values in the path, by column."""

    file: Path
    shown: str
    in_path: Mapping[str, str]


def require_path(path: Path, shown: str, place: str) -> Path:
    """Return an existing path. Raises StepFailed if missing. `place`: of the source in the project's file."""
    with explain_read_errors(f"{place}: {shown}"):
        if not path.exists():
            raise StepFailed(f"{place}: there is no {shown}")
    return path


def check_file_names(paths: Mapping[str, Path]) -> None:
    """Raise StepFailed for a file that readers skip silently: a broken link, or a name that is not UTF-8."""
    for shown, path in paths.items():
        for file in path.rglob("*"):
            where = Path(shown, file.relative_to(path))
            printable = replace_surrogates(str(where))
            if str(where) != printable:
                raise StepFailed(f"{printable}: its name is not UTF-8, and nobody would read it: rename it")
            if file.is_symlink() and not file.exists() and is_data_file(file.name):
                raise StepFailed(f"{where}: it is a link to what is not there")


def check_encoding(texts: Iterable[SourceFile], quote: str | None = None) -> None:
    """Raise StepFailed if a file is not UTF-8 text. Readers would replace the bytes silently.

    `quote`: CSV's quote character. An unclosed quote raises StepFailed too.
    """
    for text in texts:
        with explain_read_errors(text.shown):
            bad_line, quotes = _scan(text.file, quote)
        if bad_line is not None:
            raise StepFailed(f"{text.shown}, line {bad_line}: it is not UTF-8 text; save it as UTF-8")
        if quotes % 2 and (line := _find_unclosed_cell(text.file, str(quote))) is not None:
            raise StepFailed(
                f"{text.shown}, line {line}: a cell begins with a quote that is never closed; is the file whole?"
            )


def check_headers(texts: Iterable[SourceFile], options: Mapping[str, str], columns: Sequence[str] | None) -> None:
    """Raise StepFailed if a CSV file has duplicate columns, or other columns than expected.

    The expected columns are `columns`, or those of the first file. Readers match columns by position, and rename
    duplicates. Files with unusual CSV options are not checked.
    """
    wanted, whose = columns, "schema"
    for text in texts:
        header = _read_header(text.file, options)
        if not header:
            continue
        duplicate = find_duplicate([name for name in header if name])
        if duplicate is not None:
            raise StepFailed(f"{text.shown}, line 1: there are two columns {duplicate}; rename one of them")
        own = header if wanted is None else [name for name in wanted if name not in text.in_path]
        if [name.lower() for name in header] != [name.lower() for name in own]:
            raise StepFailed(
                f"{text.shown}, line 1: its columns are {_join_names(header)}, and those of {whose} are "
                f"{_join_names(own)}; write them alike, in one order"
            )
        if wanted is None:
            wanted, whose = header, text.shown


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(name if name and name == name.strip() else f'"{name}"' for name in names)


def _read_header(file: Path, options: Mapping[str, str]) -> list[str] | None:
    """Return the names in the first line, or None if the options make the line unpredictable."""
    separator = options.get("sep", options.get("delimiter", ","))
    if _HEADER_OPTIONS & options.keys() or len(separator) != 1:
        return None
    with open_text(file) as opened, suppress(csv.Error):
        names = next(filter(None, csv.reader(opened, delimiter=separator)), [])
        return [name.strip() for name in names] if _STRIP_OPTIONS & options.keys() else names
    return None


def find_line_end(texts: Sequence[SourceFile], options: Mapping[str, str]) -> str | None:
    r"""Return the line end of the rows of CSV files, or None if it is not known.

    Without it, Spark reads a line end inside a cell as \n if the rows end in the same way. Raises StepFailed for such a
    cell if the files have different line ends: Spark has one for all files.
    """
    if _ROW_OPTIONS & options.keys() or options.get("multiLine", "").lower() == "false":
        return None
    ends = [_read_line_end(text) for text in texts]
    different = {end for end in ends if end is not None}
    if len(different) < 2:
        return next(iter(different), None)
    for text, end in zip(texts, ends, strict=True):
        line = None if end is None or end == "\n" else _find_cell_with(text, end)
        if line is not None:
            raise StepFailed(
                f"{text.shown}, line {line}: a cell has the line end of the rows inside, and other files have other "
                "line ends, so that Spark would change it: save all files with the same line ends"
            )
    return None


def _read_line_end(text: SourceFile) -> str | None:
    with explain_read_errors(text.shown), open_unpacked(text.file) as opened:
        found = _LINE_END.search(_QUOTED.sub(b"", opened.read(_BLOCK)))
    return None if found is None else found[0].decode()


def _find_cell_with(text: SourceFile, end: str) -> int | None:
    """Return the line of the first row with a cell that contains this line end."""
    with open_text(text.file) as opened, suppress(csv.Error):
        rows, line = csv.reader(opened), 1
        for row in rows:
            if any(end in cell for cell in row):
                return line
            line = rows.line_num + 1
    return None


def list_files(paths: Mapping[str, Path]) -> Iterator[SourceFile]:
    """Yield the files, and the data files in folders. Skip files with a compression that this module does not know.

    `paths`: by the path as the user would write it.
    """
    for shown, path in paths.items():
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
        for file in files:
            if file.suffix not in _OTHER_COMPRESSIONS:
                inside = file.relative_to(path).parts
                in_path = dict(part.split("=", 1) for part in inside[:-1] if "=" in part)
                yield SourceFile(file, shown if file == path else str(Path(shown, *inside)), in_path)


def _is_data(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part[0] in "._" for part in file.relative_to(folder).parts)


@contextmanager
def explain_read_errors(where: str) -> Iterator[None]:
    """Raise StepFailed with one sentence for a file that can't be read or unpacked."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StepFailed(f"{where}: it can't be unpacked: {error}; is the file whole?") from error
    except OSError as error:
        raise StepFailed(f"{where}: can't be read: {error.strerror or f'{error}; is the file whole?'}") from error


def _scan(file: Path, quote: str | None) -> tuple[int | None, int]:
    """Return the first line that is not UTF-8, if any, and the number of quotes."""
    decoder, line, quotes = codecs.getincrementaldecoder("utf-8")(), 1, 0
    with open_unpacked(file) as opened:
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


def _find_unclosed_cell(file: Path, quote: str) -> int | None:
    """Return the first line of a row with an unclosed quote, or None."""
    with open_text(file) as opened:
        rows, line = csv.reader(opened, quotechar=quote, strict=True), 1
        try:
            for _ in rows:
                line = rows.line_num + 1
        except csv.Error as error:
            return line if _UNCLOSED_QUOTE.search(str(error)) else None
    return None
