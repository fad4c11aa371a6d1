"""Check that the keys of local JSON files are written as in the schema of their source.

Spark compares keys exactly, and reads NULL for a column whose key is written in another way.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.text_files import open_unpacked
from opendataflow.spark.pipeline.io.file_checks import SourceFile, explain_read_errors
from opendataflow.spark.pipeline.io.row_checks import OWN_ROWS

_BLOCK = 1 << 20
_FIRST_OBJECTS = 100
"""Objects whose keys may be meant where no object has a key of the schema."""
_ALIKE = 0.85
"""`amout` and `amount` have 0.92, `created_at` and `updated_at` 0.7."""


def check_json_keys(files: Iterable[SourceFile], options: Mapping[str, str], schema: StructType) -> None:
    """Raise StepFailed if an object has a key of the schema in another case only, or if all have a similar key.

    A key may be missing, in some objects or in all.
    """
    if OWN_ROWS & options.keys():
        return
    whole = options.get("multiLine", "").lower() == "true"
    keys, last = _Keys(schema), ""
    for file in files:
        with explain_read_errors(file.shown):
            for number, lines in _read_blocks(file, whole=whole):
                keys.check(lines, number, file)
        last = file.shown
    keys.check_missing(last)


def _read_blocks(file: SourceFile, *, whole: bool) -> Iterator[tuple[int, list[bytes]]]:
    """Yield lists of lines with the number of their first line. `whole`: the file is one value, so it is one line."""
    number = 1
    with open_unpacked(file.file) as opened:
        while lines := [opened.read()] if whole else opened.readlines(_BLOCK):
            if lines == [b""]:
                return
            yield number, lines
            number += len(lines)


@dataclass
class _Keys:
    """The keys of a schema, and what the files have of them. `missing`: keys of the schema that no line has."""

    schema: StructType
    missing: set[str] = field(init=False)
    others: set[str] = field(default_factory=set)
    objects: int = 0

    def __post_init__(self) -> None:
        self.missing = set(self.schema.names)
        self._names = {name: _quoted(name) for name in _all_names(self.schema)}

    def check(self, lines: list[bytes], number: int, file: SourceFile) -> None:
        """Raise StepFailed if a key differs in case. The search for bytes is fast, so that few lines are parsed."""
        self.missing -= file.in_path.keys()
        block = b"".join(lines)
        self.missing -= {name for name in self.missing if self._names[name] in block}
        for line in lines[: _FIRST_OBJECTS - self.objects]:
            for value in _objects(line):
                self.objects += 1
                self.others |= value.keys() - set(self.schema.names)
        suspects = self._suspects(self._names.values(), block)
        for offset, line in enumerate(lines if suspects else ()):
            if self._suspects(suspects, line):
                for value in _objects(line):
                    self._compare(value, self.schema, f"{file.shown}, line {number + offset}")

    def check_missing(self, shown: str) -> None:
        """Raise StepFailed if no object has a key of the schema, and a similar key is there instead."""
        for name in sorted(self.missing):
            for other in difflib.get_close_matches(name, sorted(self.others), n=1, cutoff=_ALIKE):
                raise StepFailed(
                    f"{shown}: no object has the key {name}, but some have {other}: did you mean {other}? Where both "
                    "may come, name both in schema"
                )

    @staticmethod
    def _suspects(names: Iterable[bytes], text: bytes) -> list[bytes]:
        """Return the quoted names that the text also has in another case."""
        lowered = text.lower()
        return [name for name in names if lowered.count(name.lower()) != text.count(name)]

    def _compare(self, value: Any, kind: DataType, where: str) -> None:
        if isinstance(value, dict) and isinstance(kind, StructType):
            for it in kind:
                if it.name in value:
                    self._compare(value[it.name], it.dataType, where)
                    continue
                other = next((key for key in value if key.lower() == it.name.lower()), None)
                if other is not None:
                    raise StepFailed(f"{where}: the key {other} is {it.name} in the schema: write both in one way")
        elif isinstance(kind, ArrayType | MapType) and isinstance(value, list | dict):
            below = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
            for item in value if isinstance(value, list) else value.values():
                self._compare(item, below, where)


def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


def _all_names(kind: DataType) -> Iterator[str]:
    """Yield the names of the fields of a type, at all depths."""
    if isinstance(kind, StructType):
        for it in kind:
            yield it.name
            yield from _all_names(it.dataType)
    elif isinstance(kind, ArrayType):
        yield from _all_names(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _all_names(kind.valueType)


def _objects(text: bytes) -> list[dict[str, Any]]:
    """Return the objects of a line. Spark reports lines that are no JSON."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text.decode("utf-8-sig"), strict=False)
        return [it for it in (value if isinstance(value, list) else [value]) if isinstance(it, dict)]
    return []
