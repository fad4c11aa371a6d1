"""Check that local files hold all the rows and columns that Spark will read from them: JSON, Parquet and ORC.

Spark reads the first of several values on a line of JSON, and drops the others. It reads NULL for a column that a
Parquet or ORC file lacks.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.text_files import open_unpacked
from opendataflow.spark.pipeline.io.file_checks import SourceFile, explain_read_errors

COLUMN_FORMATS = ("parquet", "orc")

OWN_ROWS = {"lineSep", "encoding", "charset"}
"""Options of JSON with which lines are not those of this module."""
_NEXT_VALUE = re.compile(rb"[}\]]\s*[^\s,}\]:]")
"""Something behind the end of an object or list. It is inside a text, or another value."""
_SECOND_IN_LINE = "there is more than one value, and Spark would read only the first: write one object a line"
_SECOND_IN_FILE = (
    "another value begins, and Spark would read only the first of the file: write one list of objects, or one object a "
    "line without multiLine"
)
_MERGE = 'where some files lack a column, write options: {mergeSchema: "true"}'


def check_json_values(files: Iterable[SourceFile], options: Mapping[str, str]) -> None:
    """Raise StepFailed if a line, or with multiLine a file, has more than one value."""
    if OWN_ROWS & options.keys():
        return
    whole = options.get("multiLine", "").lower() == "true"
    for file in files:
        with explain_read_errors(file.shown), open_unpacked(file.file) as opened:
            for number, line in enumerate([opened.read()] if whole else opened, 1):
                end = _find_second_value(line) if _NEXT_VALUE.search(line) else None
                if end is None:
                    continue
                line_number = line.count(b"\n", 0, end) + number
                raise StepFailed(f"{file.shown}, line {line_number}: {_SECOND_IN_FILE if whole else _SECOND_IN_LINE}")


def _find_second_value(text: bytes) -> int | None:
    """Return where a second value begins, or None. Errors in the first one are Spark's to report."""
    with suppress(ValueError):
        decoded = text.decode("utf-8-sig")
        start = len(decoded) - len(decoded.lstrip())
        _, end = json.JSONDecoder(strict=False).raw_decode(decoded, start)
        rest = decoded[end:]
        if rest.strip():
            return len(decoded[: end + len(rest) - len(rest.lstrip())].encode())
    return None


def check_columns(
    files: Iterable[SourceFile], kind: str, options: Mapping[str, str], columns: Sequence[str] | None
) -> None:
    """Raise StepFailed if a Parquet or ORC file lacks one of the columns, or has others than the first file.

    `kind`: parquet or orc. `columns`: those of the source's schema, or None. With the option mergeSchema, Spark fills
    the gaps, so nothing is checked.
    """
    if options.get("mergeSchema", "").lower() == "true":
        return
    first: tuple[str, list[str]] | None = None
    for file in files:
        own = _read_columns(file, kind)
        known = {name.lower() for name in own} | {name.lower() for name in file.in_path}
        for name in columns or ():
            if name.lower() not in known:
                close = difflib.get_close_matches(name, own, n=1)
                meant = f"did you mean {close[0]}?" if close else _MERGE
                raise StepFailed(f"{file.shown}: it has no column {name}, but {', '.join(own)}; {meant}")
        if columns is not None:
            continue
        if first is None:
            first = (file.shown, own)
        elif {name.lower() for name in own} != {name.lower() for name in first[1]}:
            raise StepFailed(
                f"{file.shown}: its columns are {', '.join(own)}, and those of {first[0]} are {', '.join(first[1])}; "
                f"{_MERGE}"
            )


def _read_columns(file: SourceFile, kind: str) -> list[str]:
    """Return the names of a file's columns, which are at its end."""
    import pyarrow  # slow to import
    from pyarrow import orc, parquet  # see above

    try:
        schema = parquet.read_schema(file.file) if kind == "parquet" else orc.ORCFile(file.file).schema
    except (pyarrow.ArrowException, OSError) as error:
        raise StepFailed(
            f"{file.shown}: it is no {kind} file that can be read: {str(error).splitlines()[0]}"
        ) from error
    return list(schema.names)
