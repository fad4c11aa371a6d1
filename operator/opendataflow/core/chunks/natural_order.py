"""The natural order of data ids, the same as `sort_key` in sql/functions/10_order.sql. Pure."""

import re


def natural_key(data_id: str) -> bytes:
    """Return a sort key for the natural order of ids: "1.2" comes before "1.10", and dates are in order."""
    parts = (_number(part) if part[0] in "0123456789" else part for part in re.findall(r"[0-9]+|[^0-9]+", data_id))
    return f"{''.join(parts)}\x01{data_id}".encode()


def _number(digits: str) -> str:
    digits = digits.lstrip("0")
    return f"{len(digits):04}{digits}"
