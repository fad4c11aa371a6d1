"""Parse the bounds of a chunk from its data id, and name its partition folder. Pure.

Chunk sources make ids like "2013-01-31", "2013-01", "0-999" and "3-of-16". Plans also make "..999", "1000.." and
"null". The ids are parsed only for chunks without stored bounds.
"""

import re
from datetime import date, timedelta
from typing import Literal

from opendataflow.errors import InvalidInput
from opendataflow.model.resources.chunk_source import Bounds

Kind = Literal["date", "range", "list", "hash"]

_SHAPES: dict[Kind, str] = {
    "date": 'a day like "2013-01-31" or a month like "2013-01"',
    "range": 'the first and the last number like "0-999"',
    "hash": 'a bucket like "3-of-16"',
}


def bounds_of(data_id: str, kind: Kind) -> Bounds:
    """Return the bounds of a chunk.

    They are `from` (inclusive) and `to` (exclusive), where an open end is left out; or `bucket` of `buckets`; or the
    one `value`; or `nulls`, which is true.

    Raise InvalidInput if the data id does not have the form of this kind.
    """
    if data_id == "null" and kind in ("date", "range"):
        return {"nulls": True}
    bounds = {"date": _days, "range": _numbers, "hash": _bucket, "list": _value}[kind](data_id)
    if bounds is None:
        raise InvalidInput(
            f'the data id "{data_id}" contains no bounds: with partitioning by {kind} it is {_SHAPES[kind]}'
        )
    return bounds


def _days(data_id: str) -> Bounds | None:
    found = re.fullmatch(r"\d{4}-\d{2}(-\d{2})?", data_id, re.ASCII)
    if found is None:  # Python would read 2013-W13 as its Monday
        return None
    month = not found[1]
    try:
        first = date.fromisoformat(f"{data_id}-01" if month else data_id)
        following = (first.replace(day=28) + timedelta(days=4)).replace(day=1) if month else first + timedelta(days=1)
    except (ValueError, OverflowError):  # the end of the year 9999 has no day after it
        return None
    return {"from": first.isoformat(), "to": following.isoformat()}


def _numbers(data_id: str) -> Bounds | None:
    match = re.fullmatch(r"(?:\d+_)?(?:(-?\d+)-(-?\d+)|\.\.(-?\d+)|(-?\d+)\.\.)", data_id, re.ASCII)
    if match is None or (match[1] and int(match[1]) > int(match[2])):
        return None
    first, last = match[1] or match[4], match[2] or match[3]
    return {**({"from": int(first)} if first else {}), **({"to": int(last) + 1} if last else {})}


def _bucket(data_id: str) -> Bounds | None:
    match = re.fullmatch(r"(\d+)-of-(\d+)", data_id, re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return {"bucket": int(match[1]), "buckets": int(match[2])}


def _value(data_id: str) -> Bounds | None:
    return {"value": data_id}


def partition_folder(column: str, data_id: str) -> str:
    """Return the name of a chunk's folder, such as `month=2013-01`, escaped like Spark and Hive do."""
    return f"{_escaped(column)}={_escaped(data_id)}"


def _escaped(text: str) -> str:
    return re.sub(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""", lambda found: f"%{ord(found[0]):02X}", text)
