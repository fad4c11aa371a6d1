"""Evaluation of expectations from measures."""

from datetime import UTC, datetime
from decimal import Decimal
from math import nan
from typing import Any

import pytest
from pydantic import ValidationError

from opendataflow.core.pipelines.expectations import Measure, evaluate, required_measures
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.projects.expectations import Expectation

NOW = datetime(2013, 1, 2, 12, tzinfo=UTC)


def expectation(**written: Any) -> Expectation:
    return Expectation.model_validate(written)


def micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6)


@pytest.mark.parametrize(
    ("written", "values", "held", "found"),
    [
        ({"notNull": ["a", "b"]}, [0, 0], True, "none"),
        ({"notNull": ["a", "b"]}, [0, 2], False, "NULL: b in 2 rows"),
        ({"range": {"column": "a", "min": 1}}, [0], True, "0 rows with others"),
        ({"range": {"column": "a", "min": 1}}, [1], False, "1 row with others"),
        ({"values": {"column": "a", "in": ["x"]}}, [3], False, "3 rows with others"),
        ({"fresh": {"column": "t", "within": "24h"}}, [micros(datetime(2013, 1, 2, tzinfo=UTC))], True, None),
        ({"fresh": {"column": "t", "within": "1h"}}, [micros(datetime(2013, 1, 2, tzinfo=UTC))], False, None),
        ({"fresh": {"column": "t", "within": "1h"}}, [None], False, "the newest is missing"),
        ({"sql": "count(*) > 0"}, [True], True, "it is true"),
        ({"sql": "sum(a) > 0"}, [None], False, "it is NULL"),
        ({"same": {"source": "s"}}, [3, 3], True, "rows"),
        ({"same": {"source": "s", "sums": ["a"]}}, [3, 4, 7, None], False,
         "different: rows 3, of s 4; sum of a 7, of s 0"),
        ({"same": {"source": "s", "rows": False, "sums": ["a"]}}, [91175175012087.3, 91175175012087.48], True, None),
        ({"same": {"source": "s", "rows": False, "sums": ["a"]}}, [Decimal("100.3"), 100.3], True, None),
        ({"same": {"source": "s", "rows": False, "sums": ["a"]}}, [nan, nan], True, None),
        ({"same": {"source": "s", "rows": False, "sums": ["a"]}}, [nan, 1.0], False, None),
        ({"same": {"source": "s", "rows": False, "sums": ["a"]}}, [1.00000001, 1.0], False, None),
        ({"fresh": {"column": "t", "within": "1h"}}, [2**63 - 1], False,
         "the newest is after all days of the calendar, which is to come"),
        ({"fresh": {"column": "t", "within": "1h"}}, [micros(datetime(2013, 1, 3, 12, tzinfo=UTC))], True, None),
        ({"fresh": {"column": "t", "within": "72h"}}, [micros(datetime(2013, 1, 3, 13, tzinfo=UTC))], False,
         "the newest is 2013-01-03 13:00:00+00:00, which is to come"),
        ({"fresh": {"column": "t", "within": "1h"}}, [-(2**63)], False,
         "the newest is before all days of the calendar"),
        ({"same": {"source": "s", "rows": False, "checksum": ["a"]}}, [1, 1, 2, 3], False, "different: checksum"),
    ],
)  # fmt: skip
def test_measures_are_evaluated(written: dict[str, Any], values: list[Any], held: bool, found: str | None) -> None:
    it = expectation(**written)
    result = evaluate(it, dict(zip(required_measures(it), values, strict=True)), None, NOW)
    assert result.held is held
    assert found in (None, result.found)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"values": {"column": "a", "in": [1, None]}}, "values.in[1]: a number or text is wanted, found nothing"),
        ({"range": {"column": "a", "min": 2, "max": 1}}, "range: no number is in a range whose min is above its max"),
    ],
)
def test_a_meaningless_expectation_is_one_sentence(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as error:
        expectation(**written)
    assert sentences(Expectation, error.value) == [sentence]


def test_doubles_are_counted_by_the_destination() -> None:
    it = expectation(unique=["a", "b"], severity="warn")
    assert required_measures(it) == []
    assert evaluate(it, {}, 0, NOW).held
    double = evaluate(it, {}, 2, NOW)
    assert (double.name, double.held, double.fails, double.found) == (
        "unique: a, b",
        False,
        False,
        "2 values more than once",
    )


def test_sources_are_measured_apart_from_the_result() -> None:
    assert required_measures(expectation(same={"source": "s"})) == [Measure("rows"), Measure("rows", frame="s")]
