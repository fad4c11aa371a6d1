"""The models of expectations in project.yml: conditions that the result of a pipeline must meet."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from opendataflow.model.fields.field_types import Duration, Flag, InputModel, NonEmpty, Text
from opendataflow.model.fields.rules import Rule, exactly_one

Columns = Annotated[tuple[NonEmpty, ...], Field(min_length=1, max_length=1000)]
Number = Annotated[int, Strict()] | Annotated[float, Strict()]


def _number_or_text(value: Any, known: ValidatorFunctionWrapHandler) -> Any:
    try:
        return known(value)
    except ValidationError:  # it has one error for each type of the union
        raise PydanticCustomError("refused", "{sentence}", {"sentence": "a number or text is wanted"}) from None


Value = Annotated[Number | Text, WrapValidator(_number_or_text)]


def _is_ordered(lowest: Any, highest: Any) -> bool:
    return not all(isinstance(end, int | float) for end in (lowest, highest)) or lowest <= highest


class Within(InputModel):
    """A column whose values are within a range."""

    rules: ClassVar = (
        Rule("a range has min, max or both", lambda it: it.lowest is not None or it.highest is not None),
        Rule("no number is in a range whose min is above its max", lambda it: _is_ordered(it.lowest, it.highest)),
    )

    column: NonEmpty = Field(description="The column; a NULL is allowed.")
    lowest: Value | None = Field(default=None, alias="min", description="The lowest valid value.")
    highest: Value | None = Field(default=None, alias="max", description="The highest valid value.")


class Accepted(InputModel):
    """A column whose values are in a list."""

    column: NonEmpty = Field(description="The column; a NULL is allowed.")
    accepted: Annotated[tuple[Value, ...], Field(min_length=1, max_length=1000)] = Field(
        alias="in", description="The valid values."
    )


class Fresh(InputModel):
    """A column of times whose newest value is recent."""

    column: NonEmpty = Field(description="A column of days or times.")
    within: Duration = Field(description="The maximum age of the newest value, such as 24h.")


class Same(InputModel):
    """A comparison of the chunk's rows in a source with the rows of the result."""

    rules: ClassVar = (Rule("a comparison needs rows, sums or checksum", lambda it: it.rows or it.sums or it.checksum),)

    source: NonEmpty = Field(description="The name of the source.")
    rows: Flag = Field(default=True, description="Whether to compare the number of rows.")
    sums: tuple[NonEmpty, ...] = Field(default=(), description="Columns of numbers whose sums are compared.")
    checksum: tuple[NonEmpty, ...] = Field(
        default=(),
        description="Columns whose values are compared together, in any row order. Their types must be the same.",
    )


class Expectation(InputModel):
    """A condition for the rows that a run writes. Exactly one kind of condition is written."""

    rules: ClassVar = (exactly_one("notNull", "unique", "range", "values", "fresh", "sql", "same"),)

    name: NonEmpty | None = Field(default=None, description="The name in reports. The default describes the condition.")
    severity: Literal["fail", "warn"] = Field(
        default="fail",
        description="The effect if the condition is false. `fail`: the run fails and writes nothing. `warn`: the run "
        "only reports it.",
    )
    not_null: Columns | None = Field(default=None, description="Columns without NULL.")
    unique: Columns | None = Field(
        default=None,
        description="Columns whose combined values are unique in the chunk. Rows with a NULL are ignored.",
    )
    range: Within | None = Field(default=None, description="A column whose values are within a range.")
    values: Accepted | None = Field(default=None, description="A column whose values are in a list.")
    fresh: Fresh | None = Field(default=None, description="A column of times whose newest value is recent.")
    sql: NonEmpty | None = Field(
        default=None, description="A Spark SQL expression over all rows, such as `sum(paid) <= sum(amount)`."
    )
    same: Same | None = Field(
        default=None, description="A source whose rows of the chunk are compared with the result."
    )

    @property
    def title(self) -> str:
        """The name of the expectation, or a description of its condition."""
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
