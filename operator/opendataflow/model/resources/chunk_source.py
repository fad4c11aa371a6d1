"""Which chunks a data set has, known beforehand: a list, days or months, blocks of integers, or buckets of a hash."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from opendataflow.model.fields.field_types import LARGEST_BIGINT, DataIds, Day, Written
from opendataflow.model.fields.rules import Rule, exactly_one

Bounds = dict[str, str | int]
"""What one chunk covers: `from` is inside, `to` is not; or `bucket` of `buckets`. Dates are text, the rest numbers."""

MAX_CHUNKS = 1_000_000
"""The most chunks that one chunk source may make; more is a mistake in its step."""

_ENOUGH = 2 * LARGEST_BIGINT // MAX_CHUNKS
"""A step with which no range of big integers makes more chunks; smaller ones, times half of them, are integers."""


class DateRange(Written):
    """One chunk for each day or month. `to` is outside."""

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
    end: Day = Field(alias="to", description="The day after the last one; it is not included.")
    step: Literal["day", "month"] = Field(
        description="One chunk a day (data id 2013-01-31) or a month (data id 2013-01)."
    )

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


class IntegerRange(Written):
    """One chunk for each block of `step` integers. `to` is outside."""

    rules: ClassVar = (
        Rule(
            "`to` is not included, so it must be greater than `from`",
            lambda numbers: numbers.end > numbers.start,
            "self.to > self.from",
        ),
        Rule(
            f"this makes more than {MAX_CHUNKS} chunks; use a larger step",
            lambda numbers: numbers.count <= MAX_CHUNKS,
            # Without overflow: a difference where both have the same sign, else half of the blocks from each end.
            f"self.step > {_ENOUGH} || (self.from >= 0 || self.to < 0"
            f" ? (self.to - self.from - 1) / self.step < {MAX_CHUNKS}"
            f" : self.from + {MAX_CHUNKS // 2} * self.step >= self.to - {MAX_CHUNKS // 2} * self.step)",
            told=lambda numbers: f"this makes {numbers.count} chunks and {MAX_CHUNKS} are allowed; use a larger step",
        ),
    )

    start: BigInteger = Field(alias="from", description="The first integer.")
    end: BigInteger = Field(alias="to", description="The integer after the last one; it is not included.")
    step: Annotated[int, Strict(), Field(ge=1, le=LARGEST_BIGINT)] = Field(
        description="How many integers a chunk has; the last chunk may have fewer."
    )

    @property
    def count(self) -> int:
        """How many chunks it makes."""
        return -(-(self.end - self.start) // self.step)

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order; the data id names the first and the last integer: "0-999"."""
        for first in range(self.start, self.end, self.step):
            following = min(first + self.step, self.end)
            yield f"{first}-{following - 1}", {"from": first, "to": following}


class HashBuckets(Written):
    """One chunk for each value of a hash modulo `buckets`."""

    buckets: Annotated[int, Strict(), Field(ge=1, le=MAX_CHUNKS)] = Field(
        description="How many chunks there are; their data ids are 0-of-16, 1-of-16 and so on."
    )

    def chunks(self) -> Iterator[tuple[str, Bounds]]:
        """Yield (data id, bounds) in order. The id names the number of buckets: other numbers are other chunks."""
        for bucket in range(self.buckets):
            yield f"{bucket}-of-{self.buckets}", {"bucket": bucket, "buckets": self.buckets}


class ChunkSource(Written):
    """Which chunks the data set has: exactly one of the four."""

    rules: ClassVar = (exactly_one("list", "dateRange", "range", "hash"),)

    ids: DataIds | None = Field(default=None, alias="list", description="The data ids, at most 1000.")
    date_range: DateRange | None = Field(default=None, description="A chunk for each day or month.")
    integers: IntegerRange | None = Field(
        default=None, alias="range", description="A chunk for each block of integers."
    )
    hash: HashBuckets | None = Field(default=None, description="A chunk for each bucket of a hash.")

    def chunks(self) -> Iterator[tuple[str, Bounds | None]]:
        """Yield (data id, bounds) of each chunk in the order written; a list knows no bounds."""
        for data_id in self.ids or ():
            yield data_id, None
        made: DateRange | IntegerRange | HashBuckets | None = self.date_range or self.integers or self.hash
        if made is not None:
            yield from made.chunks()
