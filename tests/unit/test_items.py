"""Items are chunks of their own kind: which data id they have."""

from typing import Any

import pytest

from opendataflow.core.chunks.items import check_distinct, data_id_of
from opendataflow.errors import InvalidInput


def test_an_item_may_say_which_chunk_it_is() -> None:
    assert data_id_of({"data_id": "2013-01-01", "n": 1}) == "2013-01-01"
    assert data_id_of({"data_id": 7}) == "7"


@pytest.mark.parametrize("item", [{"n": 1, "t": None}, {"n": 1, "data_id": None}, {}])
def test_equal_items_are_one_chunk_whatever_their_order(item: dict[str, Any]) -> None:
    assert data_id_of(item) == data_id_of(dict(reversed(item.items())))
    assert data_id_of(item).startswith("item-")
    assert data_id_of(item) != data_id_of({**item, "n": 2})


def test_two_items_that_would_replace_each_other_are_refused() -> None:
    check_distinct([{"data_id": "a", "n": 1}, {"data_id": "a", "n": 1}, {"data_id": "b", "n": 1}])
    with pytest.raises(InvalidInput, match="the items 1 and 3 have the data_id a, and are not the same"):
        check_distinct([{"data_id": "a", "n": 1}, {"data_id": "b"}, {"data_id": "a", "n": 2}])
