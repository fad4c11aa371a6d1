"""Times and rates for people. Pure. All texts have the local time zone, with its offset."""

from datetime import datetime


def shown(moment: datetime | str) -> str:
    """Return a time, such as `2013-02-01 04:00:00 +01:00`. `moment`: with its time zone, perhaps in ISO format."""
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    text = found.astimezone().isoformat(sep=" ", timespec="seconds")
    return f"{text[:-6]} {text[-6:]}"


def rate(per_minute: float) -> str:
    """Return a rate in plain digits: `1811 a minute`, `2.3 a minute`, or `1.5 an hour` if it is slow."""
    if per_minute < 1:
        return f"{_number(per_minute * 60)} an hour"
    return f"{_number(per_minute)} a minute"


def _number(value: float) -> str:
    text = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
