"""Plans of chunks: each value is in exactly one of them, whatever order the database has; ids; predicates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from zlib import crc32

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from opendataflow.core.chunks.chunk_bounds import bounds_of
from opendataflow.core.chunks.chunk_plan import Column, Draft, Nulls, PlannedChunk, covers_everything, problems
from opendataflow.core.chunks.chunk_predicates import Value
from opendataflow.core.chunks.natural_order import natural_key
from opendataflow.core.databases.postgres import Postgres
from opendataflow.model.fields.field_types import Id

WORDS = Postgres()
NULLS: tuple[Nulls, ...] = ("own", "first", "last")
COLLATIONS: dict[str, Callable[[str], Any]] = {
    "by bytes": lambda text: text.encode(errors="surrogatepass"),
    "without case first": lambda text: (text.casefold(), text),
    "backwards": lambda text: (text[::-1], len(text)),
    "as a hash has it": lambda text: (crc32(text.encode(errors="surrogatepass")), text),
}
"""Orders that a database could have, of which the plan knows nothing."""

texts = st.text(max_size=8)
drafts = st.builds(
    lambda nullable, nulls, rest: Draft(Column("c", "text", nullable), WORDS, nulls, rest),
    st.booleans(),
    st.sampled_from(NULLS),
    st.booleans(),
)


def has(bounds: Mapping[str, Any], value: Value | None, key: Callable[[Any], Any], listed: Sequence[Value]) -> bool:
    """Whether a value belongs to a chunk, by what its bounds mean."""
    if value is None:
        return bool(bounds.get("nulls"))
    if bounds.get("rest"):
        if "from" in bounds:
            return bool(key(value) < key(bounds["from"]) or key(value) >= key(bounds["to"]))
        return value not in listed
    if "value" in bounds:
        return bool(value == bounds["value"])
    if "bucket" in bounds:
        return bool(hash(value) % bounds["buckets"] == bounds["bucket"])
    if not bounds.keys() & {"from", "to"}:
        return False
    return not ("from" in bounds and key(value) < key(bounds["from"])) and not (
        "to" in bounds and key(value) >= key(bounds["to"])
    )


def times_had(chunks: list[PlannedChunk], value: Any, key: Callable[[Any], Any], listed: Sequence[Value] = ()) -> int:
    return sum(has(chunk.bounds, value, key, listed) for chunk in chunks)


@given(drafts, st.sampled_from(sorted(COLLATIONS)), st.lists(texts, min_size=1, unique=True), st.none() | texts)
def test_in_every_order_of_texts_a_value_is_in_exactly_one_range(
    draft: Draft, collation: str, cuts: list[str], value: str | None
) -> None:
    key = COLLATIONS[collation]
    ordered: list[Value] = [*sorted(cuts, key=key)]
    chunks = draft.by_range(ordered)
    assert problems(chunks, nullable=draft.column.nullable) == []
    assert covers_everything(chunks)
    assume(value is not None or draft.column.nullable)
    assert times_had(chunks, value, key) == 1


@given(drafts, st.sets(st.integers(), min_size=1), st.none() | st.integers())
def test_a_number_is_in_exactly_one_range(draft: Draft, cuts: set[int], value: int | None) -> None:
    chunks = draft.by_range(sorted(cuts))
    assert problems(chunks, nullable=draft.column.nullable) == []
    assume(value is not None or draft.column.nullable)
    assert times_had(chunks, value, int) == 1


@given(drafts, st.lists(texts, min_size=2, unique=True).map(sorted), st.none() | texts)
def test_by_date_a_value_is_in_one_chunk_or_outside_and_the_rest_has_what_is_outside(
    draft: Draft, edges: list[str], value: str | None
) -> None:
    chunks = draft.by_date(edges, "day", None)
    assert problems(chunks, nullable=draft.column.nullable) == []
    assert covers_everything(chunks) == draft.rest
    outside = value is not None and not edges[0] <= value < edges[-1]
    assume(value is not None or draft.column.nullable)
    assert times_had(chunks, value, str) == (0 if outside and not draft.rest else 1)


@given(drafts, st.lists(texts, min_size=1, unique=True), st.none() | texts)
def test_by_list_a_value_is_in_one_chunk_or_outside_and_the_rest_has_what_is_outside(
    draft: Draft, values: list[str], value: str | None
) -> None:
    chunks = draft.by_list(values)
    assert problems(chunks, nullable=draft.column.nullable) == []
    outside = value is not None and value not in values
    assume(value is not None or draft.column.nullable)
    assert times_had(chunks, value, str, values) == (0 if outside and not draft.rest else 1)


@given(drafts, st.integers(1, 20), st.none() | texts)
def test_by_hash_a_value_is_in_exactly_one_bucket(draft: Draft, buckets: int, value: str | None) -> None:
    chunks = draft.by_hash(buckets)
    assert problems(chunks, nullable=draft.column.nullable) == []
    assert covers_everything(chunks)
    assume(value is not None or draft.column.nullable)
    assert times_had(chunks, value, str) == 1


def every_kind(draft: Draft, number: int) -> list[list[PlannedChunk]]:
    edges = [f"2013-01-{day:02}" for day in range(1, number + 2)]
    return [
        draft.by_range(list(range(1, number))),
        draft.by_date(edges, "day", None),
        draft.by_list([f"v{n}" for n in range(number)]),
        draft.by_hash(number),
    ]


@given(drafts, st.integers(3, 9), st.integers(0, 8), st.integers(0, 3))
def test_a_range_or_bucket_that_is_missing_is_a_problem(draft: Draft, number: int, which: int, kind: int) -> None:
    chunks = every_kind(draft, number)[kind]
    assume(kind != 2)  # a value that is not listed is outside, which is counted
    inner = chunks[1 + which % (number - 2)]
    left = [chunk for chunk in chunks if chunk is not inner]
    assert problems(left, nullable=draft.column.nullable)


@given(drafts, st.integers(2, 9), st.integers(0, 8), st.integers(0, 3))
def test_a_chunk_that_is_there_twice_is_a_problem(draft: Draft, number: int, which: int, kind: int) -> None:
    chunks = every_kind(draft, number)[kind]
    again = replace(chunks[which % number], id="again")
    assert problems([*chunks, again], nullable=draft.column.nullable)


def test_a_boundary_of_one_chunk_alone_is_a_problem() -> None:
    chunks = Draft(Column("c", "integer", nullable=False), WORDS).by_range([10, 20])
    moved = replace(chunks[1], bounds={**chunks[1].bounds, "from": 11})
    assert problems([chunks[0], moved, chunks[2]], nullable=False) == ["10-19 does not begin where ..9 ends"]


def test_nulls_without_a_chunk_and_in_two_are_problems() -> None:
    nowhere = Draft(Column("c", "integer", nullable=False), WORDS).by_hash(2)
    assert problems(nowhere, nullable=True) == ["NULLs are in 0 chunks"]
    first = Draft(Column("c", "integer", nullable=True), WORDS, "first").by_hash(2)
    own = Draft(Column("c", "integer", nullable=True), WORDS, "own").by_hash(2)[-1]
    assert problems([*first, own], nullable=True) == ["NULLs are in 2 chunks"]


@given(drafts, st.lists(texts, min_size=1, max_size=12, unique=True), st.booleans())
def test_ids_can_be_ids_and_those_of_ranges_are_in_natural_order(draft: Draft, values: list[str], ranges: bool) -> None:
    chunks = draft.by_range(values) if ranges else draft.by_list(values)
    for chunk in chunks:
        TypeAdapter(Id).validate_python(chunk.id)
    if ranges:
        keys = [natural_key(chunk.id) for chunk in chunks if not chunk.is_null]
        assert all(one < two for one, two in pairwise(keys))


@pytest.mark.parametrize(
    ("cuts", "ids"),
    [
        ([250, 1000], ["..249", "250-999", "1000..", "null"]),
        ([-20, 5], ["1_..-21", "2_-20-4", "3_5..", "null"]),
        (["b", "m"], ["..b", "b..m", "m..", "null"]),
        (["B", "a", "Z"], ["1_..B", "2_B..a", "3_a..Z", "4_Z..", "null"]),
        (["2013-01-01 10:00:00+00"], ["..2013-01-01T10:00:00+00", "2013-01-01T10:00:00+00..", "null"]),
        (["a/b c", "a/b d"], ["..a_b_c", "a_b_c..a_b_d", "a_b_d..", "null"]),
    ],
)
def test_ids_of_ranges_say_what_they_have(cuts: list[Value], ids: list[str]) -> None:
    chunks = Draft(Column("c", "text", nullable=True), WORDS).by_range(cuts)
    assert [chunk.id for chunk in chunks] == ids


@given(st.sets(st.integers(), min_size=1).map(sorted))
def test_ids_of_ranges_of_numbers_say_their_bounds(cuts: list[int]) -> None:
    for chunk in Draft(Column("c", "integer", nullable=True), WORDS).by_range(cuts):
        kept = {name: chunk.bounds[name] for name in ("from", "to", "nulls") if name in chunk.bounds}
        assert bounds_of(chunk.id, "range") == kept


def test_ids_of_values_are_the_values_where_these_can_be_ids() -> None:
    values = ["null", "rest", "it's", "", " a", "a", "x" * 300, "x" * 299]
    chunks = Draft(Column("c", "text", nullable=True), WORDS, rest=True).by_list(values)
    assert [chunk.id for chunk in chunks] == [
        *("null", "rest", "it's", "_", "a", "a~2", "x" * 40, f"{'x' * 40}~2"),
        *("rest~2", "null~2"),
    ]


@pytest.mark.parametrize(
    ("nulls", "predicates"),
    [
        ("own", ['"c" < 5', '"c" >= 5 AND "c" < 9', '"c" >= 9', '"c" IS NULL']),
        ("first", ['("c" < 5 OR "c" IS NULL)', '"c" >= 5 AND "c" < 9', '"c" >= 9']),
        ("last", ['"c" < 5', '"c" >= 5 AND "c" < 9', '("c" >= 9 OR "c" IS NULL)']),
    ],
)
def test_nulls_are_named_in_one_predicate(nulls: Nulls, predicates: list[str]) -> None:
    chunks = Draft(Column("c", "integer", nullable=True), WORDS, nulls).by_range([5, 9])
    assert [chunk.predicate for chunk in chunks] == predicates


def test_names_and_values_are_quoted() -> None:
    column = Column('he"llo', "text", nullable=False)
    [chunk, rest] = Draft(column, WORDS, rest=True).by_list(["it's \\ a\nb"])
    assert chunk.predicate == "\"he\"\"llo\" = E'it''s \\\\ a\nb'"
    assert rest.predicate == "\"he\"\"llo\" NOT IN (E'it''s \\\\ a\nb')"
