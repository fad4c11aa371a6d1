"""Items of a pipeline: what comes one at a time, and is a chunk of its own kind. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from opendataflow.errors import InvalidInput

NAMED = "data_id"
"""What an item may have, to say which chunk it is."""

_DIGITS = 12


def data_id_of(item: Mapping[str, Any]) -> str:
    """Return the data id of the chunk that an item is: its own, or one that equal items share, so that doing an item
    twice equals doing it once."""
    own = item.get(NAMED)
    if own is not None and str(own):
        return str(own)
    text = json.dumps(item, sort_keys=True, default=str)
    return f"item-{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def check_apart(items: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidInput where two items are one chunk, and not the same: the second would replace the first."""
    seen: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, item in enumerate(items, 1):
        before, first = seen.setdefault(data_id_of(item), (number, item))
        if first != item:
            raise InvalidInput(
                f"the items {before} and {number} have the {NAMED} {data_id_of(item)}, and are not the same: an item "
                "is a chunk, so give each its own"
            )
