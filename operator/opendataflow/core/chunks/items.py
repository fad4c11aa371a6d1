"""Items of a pipeline. A pipeline processes items one at a time, and each item is one chunk. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from opendataflow.errors import InvalidInput

ITEM_DATA_ID = "data_id"
"""The optional field of an item that names its chunk."""

_DIGITS = 12


def data_id_of(item: Mapping[str, Any]) -> str:
    """Return the data id of an item: its own, else a digest of its content.

    Equal items have the same data id, so that processing an item twice has the effect of processing it once.
    """
    own = item.get(ITEM_DATA_ID)
    if own is not None and str(own):
        return str(own)
    text = json.dumps(item, sort_keys=True, default=str)
    return f"item-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def check_distinct(items: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidInput if two different items have the same data id: the second would replace the first."""
    seen: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, item in enumerate(items, 1):
        before, first = seen.setdefault(data_id_of(item), (number, item))
        if first != item:
            raise InvalidInput(
                f"the items {before} and {number} have the {ITEM_DATA_ID} {data_id_of(item)}, and are not the same: an "
                "item is a chunk, so give each its own"
            )
