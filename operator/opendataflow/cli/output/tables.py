"""Lays out tables. Pure.

A key or a number is never shortened. What does not fit goes below its row, if it is a sentence; other columns of low
value are left out as a whole. The rest is wrapped by the terminal.
"""

import textwrap
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from opendataflow.cli.output.screen import Text

_SENTENCES = ("message", "reason", "found", "sources", "transformations")
"""Columns that go below their row on a narrow terminal."""

_LOW_VALUE = (
    *("kind", "due_at", "place", "inputs", "outputs", "consumers", "producer", "parallelism", "stale", "attempts"),
    *("published_at", "attempt", "claimed_at", "seconds", "rows", "destination"),
)
"""Columns that are left out on a narrow terminal, the first one first."""

_INDENT = " " * 4
_MOST_LINES = 2
_GAP = "  "
_MORE = " …"

Cells = Mapping[str, Text]


@dataclass(frozen=True)
class Table:
    """Lines of a table. `left_out`: titles of columns that do not fit. `shortened`: whether a sentence was cut."""

    lines: Sequence[Text]
    left_out: Sequence[str] = field(default=())
    shortened: bool = False

    @property
    def note(self) -> str | None:
        """Return the sentence about what is missing."""
        missing = [*self.left_out, *(["the ends of long lines"] if self.shortened else [])]
        return f"not shown: {', '.join(missing)}; -o wide shows all" if missing else None


def lay_out(
    columns: Sequence[str],
    rows: Sequence[Cells],
    width: int | None,
    right: Collection[str] = (),
    low_value: Sequence[str] = _LOW_VALUE,
) -> Table:
    """Return the table of rows. `width`: None for any width. `right`: columns of numbers that are aligned there."""
    widths = {name: max([_width(title(name)), *(_width(row[name].plain) for row in rows)]) for name in columns}
    shown, below, left_out = list(columns), [], []
    if width is not None and _sum(shown, widths) > width:
        below = [name for name in shown if name in _SENTENCES]
        empty = [name for name in shown if rows and all(row[name].plain in ("-", "") for row in rows)]
        shown = [name for name in shown if name not in below and (name not in empty or name not in low_value)]
        for name in low_value:
            if name in shown and _sum(shown, widths) > width:
                shown.remove(name)
                left_out.append(title(name))
    lines = [_line({name: Text(title(name), "bold") for name in shown}, shown, widths, right)]
    shortened = False
    for row in rows:
        lines.append(_line(row, shown, widths, right))
        for name in below:
            text = row[name].plain
            if width is not None and text not in ("-", ""):
                under = _below(f"{title(name).lower()}: {text}", width)
                shortened |= under[-1].endswith(_MORE) and not text.endswith(_MORE)
                lines += [Text(f"{_INDENT}{line}") for line in under]
    return Table(lines, left_out, shortened)


def title(column: str) -> str:
    """Return the heading of a column."""
    return column.upper().replace("_", " ")


def _below(sentence: str, width: int) -> list[str]:
    return textwrap.wrap(
        sentence,
        max(width - len(_INDENT), 1),
        max_lines=_MOST_LINES,
        placeholder=_MORE,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _line(row: Cells, shown: Sequence[str], widths: Mapping[str, int], right: Collection[str]) -> Text:
    made = Text()
    for number, name in enumerate(shown):
        pad = " " * (widths[name] - _width(row[name].plain))
        made.append(_GAP if number else "")
        if name in right:
            made.append(pad).append(row[name])
        else:
            made.append(row[name]).append(pad if number < len(shown) - 1 else "")
    return made


def _sum(shown: Sequence[str], widths: Mapping[str, int]) -> int:
    return sum(widths[name] for name in shown) + len(_GAP) * (len(shown) - 1)


def _width(text: str) -> int:
    """Return the columns that a terminal needs for a text: two for a wide letter, none for an accent."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )
