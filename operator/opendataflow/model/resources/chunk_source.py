"""The model of a chunk source: a list, days or months, blocks of integers, or buckets of a hash."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from opendataflow.model.fields.field_types import LARGEST_BIGINT, DataIds, Day, InputModel
from opendataflow.model.fields.rules import Rule, exactly_one

Bounds = dict[str, str | int]
"""The bounds of one chunk: `from` (inclusive) and `to` (exclusive), or `bucket` of `buckets`. Dates are text."""

MAX_CHUNKS = 1_000_000
"""The most chunks of one chunk source. More chunks indicate a wrong step."""

_ENOUGH = 2 * LARGEST_BIGINT // MAX_CHUNKS
"""A larger step never makes too many chunks. A smaller step, times half of MAX_CHUNKS, does not overflow."""


class DateRange(InputModel):
    """One chunk for each day or month. `to` is exclusive."""

    rules: ClassVar = (
        Rule(
            "`to` is not included, so it must be later than `from`",
            lambda dates: dates.end > dates.start,
            "self.to > self.from",
        ),
        Rule(
            "with step month it is the first day of a month",
            lambda dates: dates.step != "month" or dates.start.endswith("-01"),
            "self.step != 'month' || self.from.getDate() == 1",
            at="from",
        ),
        Rule(
            "with step month it is the first day of the month after the last one",
            lambda dates: dates.step != "month" or dates.end.endswith("-01"),
            "self.step != 'month' || self.to.getDate() == 1",
            at="to",
        ),
    )

    start: Day = Field(alias="from", description="The first day, such as 2013-01-01.")
    end: Day = Field(alias="to", description="The day after the last day (exclusive).")
    step: Literal["day", "month"] = Field(
        description="`day`: one chunk per day (data id 2013-01-31). `month`: one chunk per month (data id 2013-01)."
    )

    @property
    def count(self) -> int:
        """The number of chunks."""
        first, last = date.fromisoformat(self.start), date.fromisoformat(self.end)
        if self.step == "day":
            return (last - first).days
        return (last.year - first.year) * 12 + last.month - first.month

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order."""
        day, end = date.fromisoformat(self.start), date.fromisoformat(self.end)
        while day < end:
            following = _next_month(day) if self.step == "month" else day + timedelta(days=1)
            name = day.isoformat()[:7] if self.step == "month" else day.isoformat()
            yield name, {"from": day.isoformat(), "to": following.isoformat()}
            day = following


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


BigInteger = Annotated[int, Strict(), Field(ge=-LARGEST_BIGINT - 1, le=LARGEST_BIGINT)]


class IntegerRange(InputModel):
    """One chunk for each block of `step` integers. `to` is exclusive."""

    rules: ClassVar = (
        Rule(
            "`to` is not included, so it must be greater than `from`",
            lambda numbers: numbers.end > numbers.start,
            "self.to > self.from",
        ),
        Rule(
            f"this makes more than {MAX_CHUNKS} chunks; use a larger step",
            lambda numbers: numbers.count <= MAX_CHUNKS,
            # Avoid overflow: a difference if both have the same sign, else half of the blocks from each end.
            f"self.step > {_ENOUGH} || (self.from >= 0 || self.to < 0"
            f" ? (self.to - self.from - 1) / self.step < {MAX_CHUNKS}"
            f" : self.from + {MAX_CHUNKS // 2} * self.step >= self.to - {MAX_CHUNKS // 2} * self.step)",
            detailed=lambda numbers: (
                f"this makes {numbers.count} chunks and {MAX_CHUNKS} are allowed; use a larger step"
            ),
        ),
    )

    start: BigInteger = Field(alias="from", description="The first integer.")
    end: BigInteger = Field(alias="to", description="The integer after the last one (exclusive).")
    step: Annotated[int, Strict(), Field(ge=1, le=LARGEST_BIGINT)] = Field(
        description="The number of integers in a chunk. The last chunk may have fewer."
    )

    @property
    def count(self) -> int:
        """The number of chunks."""
        return -(-(self.end - self.start) // self.step)

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order. The data id names the first and the last integer: "0-999"."""
        for first in range(self.start, self.end, self.step):
            following = min(first + self.step, self.end)
            yield f"{first}-{following - 1}", {"from": first, "to": following}


class HashBuckets(InputModel):
    """One chunk for each value of a hash modulo `buckets`."""

    buckets: Annotated[int, Strict(), Field(ge=1, le=MAX_CHUNKS)] = Field(
        description="The number of chunks. Their data ids are 0-of-16, 1-of-16 and so on."
    )

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order. Ids contain the number of buckets, because it determines the chunks."""
        for bucket in range(self.buckets):
            yield f"{bucket}-of-{self.buckets}", {"bucket": bucket, "buckets": self.buckets}


class ChunkSource(InputModel):
    """The source of the data set's chunks: exactly one of the four fields."""

    rules: ClassVar = (exactly_one("list", "dateRange", "range", "hash"),)

    ids: DataIds | None = Field(default=None, alias="list", description="A list of at most 1000 data ids.")
    date_range: DateRange | None = Field(default=None, description="One chunk for each day or month.")
    integers: IntegerRange | None = Field(
        default=None, alias="range", description="One chunk for each block of integers."
    )
    hash: HashBuckets | None = Field(default=None, description="One chunk for each bucket of a hash.")

    @property
    def count(self) -> int:
        """The number of chunks. None of them is computed."""
        if self.ids is not None:
            return len(self.ids)
        if self.date_range is not None:
            return self.date_range.count
        return self.integers.count if self.integers is not None else self.hash.buckets if self.hash is not None else 0

    def chunks(self) -> Iterator[tuple[str, Bounds | None]]:
        """Yield (data id, bounds) of each chunk in the written order. Chunks of a list have no bounds.

        Postgres computes the same chunks: opendataflow.chunks_of_source().
        """
        for data_id in self.ids or ():
            yield data_id, None
        made: DateRange | IntegerRange | HashBuckets | None = self.date_range or self.integers or self.hash
        if made is not None:
            yield from made.chunks()
