"""Find cuts that divide a column into parts with equal numbers of rows, from the statistics of its database. Pure.

The statistics are a histogram and the most common values, in the order of the database. This module interpolates
between whole numbers only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from opendataflow.core.chunks.chunk_predicates import Value

_BUCKETS_A_CHUNK = 8
"""The least number of histogram buckets per chunk, if the bounds of chunks can only be those of buckets."""

_CHUNKS_A_BUCKET = 2
"""The most chunks that are interpolated inside one bucket, because its numbers may be unevenly distributed."""


@dataclass(frozen=True)
class Entry:
    """A value of the statistics. `frequency`: its share of all rows; None for a bound of the histogram.

    The numbers of rows between neighbouring bounds of the histogram are equal.
    """

    value: Value
    frequency: float | None


@dataclass(frozen=True)
class Statistics:
    """The database's statistics of a column. `entries`: in the order of the database."""

    entries: Sequence[Entry]
    nulls: float
    """The share of rows that have NULL."""


@dataclass(frozen=True)
class Cuts:
    """The cuts, and the lowest and highest known value. `shares`: of each part in the rows with a value; sum 1."""

    at: Sequence[Value]
    lowest: Value
    highest: Value
    shares: Sequence[float] = ()


def fine_enough(statistics: Statistics, parts: int) -> bool:
    """Return whether the statistics are detailed enough for this number of parts."""
    bounds = [entry for entry in statistics.entries if entry.frequency is None]
    if all(isinstance(entry.value, int) for entry in statistics.entries):
        return len(statistics.entries) * _CHUNKS_A_BUCKET >= parts
    return len(bounds) > parts * _BUCKETS_A_CHUNK


def cuts_of(statistics: Statistics, parts: int) -> Cuts:
    """Return the cuts for at most `parts` parts; fewer if a single value has more rows than a part."""
    entries = statistics.entries
    weights = _weights(statistics)
    until = list(accumulate(weights))
    total = until[-1]
    cuts: list[tuple[Value, float]] = []
    place = 0
    for number in range(1, parts):
        target = total * number / parts
        while until[place] < target and place < len(entries) - 1:
            place += 1
        value, rows = _cut(entries, place, weights[place], until[place], target)
        if value != (cuts[-1][0] if cuts else entries[0].value):
            cuts.append((value, rows))
    cuts = [cut for cut in cuts if not _is_above(cut[0], entries[-1].value)]
    edges = [0.0, *(rows / total for _, rows in cuts), 1.0]
    shares = [two - one for one, two in pairwise(edges)]
    return Cuts([value for value, _ in cuts], entries[0].value, entries[-1].value, shares)


def _weights(statistics: Statistics) -> list[float]:
    """Return the share of each entry. A histogram bucket counts at its upper bound, so the first bound has no share."""
    entries = statistics.entries
    common = sum(entry.frequency or 0.0 for entry in entries)
    first = next((n for n, entry in enumerate(entries) if entry.frequency is None), -1)
    buckets = max(sum(entry.frequency is None for entry in entries) - 1, 1)
    bucket = max(1.0 - statistics.nulls - common, 0.0) / buckets
    return [
        entry.frequency if entry.frequency is not None else (0.0 if n == first else bucket)
        for n, entry in enumerate(entries)
    ]


def _cut(entries: Sequence[Entry], place: int, weight: float, until: float, target: float) -> tuple[Value, float]:
    """Return the boundary nearest to `target`, and the share of rows below the boundary."""
    entry, before = entries[place], until - weight
    if entry.frequency is not None:
        if isinstance(entry.value, int) and target - before > until - target:
            return entry.value + 1, until
        return entry.value, before
    previous = entries[place - 1].value if place else entry.value
    if isinstance(entry.value, int) and isinstance(previous, int) and weight:
        inside = round((entry.value - previous) * (target - before) / weight)
        return previous + inside + 1, before + weight * inside / max(entry.value - previous, 1)
    return entry.value, until


def _is_above(value: Value, highest: Value) -> bool:
    return isinstance(value, int) and isinstance(highest, int) and value > highest
