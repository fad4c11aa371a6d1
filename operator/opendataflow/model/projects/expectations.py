"""What users write about what must be true of a pipeline's result, in project.yml."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from opendataflow.model.fields.field_types import Duration, Flag, NonEmpty, Text, Written
from opendataflow.model.fields.rules import Rule, exactly_one

Columns = Annotated[tuple[NonEmpty, ...], Field(min_length=1, max_length=1000)]
Number = Annotated[int, Strict()] | Annotated[float, Strict()]


def _number_or_text(value: Any, known: ValidatorFunctionWrapHandler) -> Any:
    try:
        return known(value)
    except ValidationError:  # of each kind that it is not
        raise PydanticCustomError("refused", "{sentence}", {"sentence": "a number or text is wanted"}) from None


Value = Annotated[Number | Text, WrapValidator(_number_or_text)]


def _rise(lowest: Any, highest: Any) -> bool:
    return not all(isinstance(end, int | float) for end in (lowest, highest)) or lowest <= highest


class Within(Written):
    """A column whose values lie between two ends."""

    rules: ClassVar = (
        Rule("a range has min, max or both", lambda it: it.lowest is not None or it.highest is not None),
        Rule("no number is in a range whose min is above its max", lambda it: _rise(it.lowest, it.highest)),
    )

    column: NonEmpty = Field(description="The column; a NULL is allowed.")
    lowest: Value | None = Field(default=None, alias="min", description="The lowest value that is right.")
    highest: Value | None = Field(default=None, alias="max", description="The highest value that is right.")


class Accepted(Written):
    """A column with some values only."""

    column: NonEmpty = Field(description="The column; a NULL is allowed.")
    accepted: Annotated[tuple[Value, ...], Field(min_length=1, max_length=1000)] = Field(
        alias="in", description="The values."
    )


class Fresh(Written):
    """A column of times whose newest is not old."""

    column: NonEmpty = Field(description="The column, of days or times.")
    within: Duration = Field(description="How old the newest one may be, such as 24h.")


class Same(Written):
    """The rows of the chunk in a source, and those of the result."""

    rules: ClassVar = (
        Rule("it compares something: rows, sums or checksum", lambda it: it.rows or it.sums or it.checksum),
    )

    source: NonEmpty = Field(description="The name of the source.")
    rows: Flag = Field(default=True, description="Whether there are as many rows.")
    sums: tuple[NonEmpty, ...] = Field(default=(), description="Columns of numbers with the same sums.")
    checksum: tuple[NonEmpty, ...] = Field(
        default=(), description="Columns that have the same values, of the same types, together and in any order."
    )


class Expectation(Written):
    """What must be true of the rows that a run writes. Exactly one kind of it."""

    rules: ClassVar = (exactly_one("notNull", "unique", "range", "values", "fresh", "sql", "same"),)

    name: NonEmpty | None = Field(
        default=None, description="What it is called in reports. The default says what it is."
    )
    severity: Literal["fail", "warn"] = Field(
        default="fail", description="What follows where it is not true: `fail` writes nothing, `warn` only says so."
    )
    not_null: Columns | None = Field(default=None, description="Columns without any NULL.")
    unique: Columns | None = Field(
        default=None, description="Columns that together have no value twice in the chunk; with a NULL they may."
    )
    range: Within | None = Field(default=None, description="A column whose values lie between two ends.")
    values: Accepted | None = Field(default=None, description="A column with some values only.")
    fresh: Fresh | None = Field(default=None, description="A column of times whose newest is not old.")
    sql: NonEmpty | None = Field(
        default=None, description="An expression of Spark's SQL over all rows, such as `sum(paid) <= sum(amount)`."
    )
    same: Same | None = Field(
        default=None, description="A source whose rows of the chunk are compared with the result."
    )

    @property
    def title(self) -> str:
        """Its name, or what it says."""
        return self.name or _title(self)


def _title(it: Expectation) -> str:
    if it.not_null is not None:
        return f"not null: {', '.join(it.not_null)}"
    if it.unique is not None:
        return f"unique: {', '.join(it.unique)}"
    if it.range is not None:
        ends = (it.range.lowest, it.range.highest)
        return f"range of {it.range.column}: {' to '.join(_shown(end) for end in ends)}"
    if it.values is not None:
        return f"values of {it.values.column}"
    if it.fresh is not None:
        return f"{it.fresh.column} within {it.fresh.within}"
    if it.same is not None:
        return f"same as {it.same.source}"
    return str(it.sql)


def _shown(end: Any) -> str:
    return "any" if end is None else str(end)
