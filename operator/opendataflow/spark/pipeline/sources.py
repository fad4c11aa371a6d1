"""Files that are read: whether they are there, and whether they are text in UTF-8. What the text says is not its
subject."""

import codecs
from pathlib import Path

from opendataflow.errors import StepFailed

_BLOCK = 1 << 20


def existing(path: Path, shown: str, place: str) -> Path:
    """Return the path; StepFailed where nothing is there. `place`: of the source in the project's file."""
    if not path.exists():
        raise StepFailed(f"{place}: there is no {shown}")
    return path


def check_text(path: Path, shown: str) -> None:
    """Raise StepFailed where a file, or one in a folder, is not text in UTF-8: readers would alter it in silence."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_data(file, path))
    for file in files:
        line = _first_bad_line(file)
        if line is not None:
            inside = "" if file == path else f"/{file.relative_to(path)}"
            raise StepFailed(f"{shown}{inside}, line {line}: it is not UTF-8 text; save it as UTF-8")


def _is_data(file: Path, folder: Path) -> bool:
    hidden = any(part[0] in "._" for part in file.relative_to(folder).parts)
    return file.is_file() and not hidden and file.suffix not in (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy")


def _first_bad_line(file: Path) -> int | None:
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            try:
                line += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                return line + error.object[: error.start].count(b"\n")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return line
    return None
