"""Render files of Spark's settings. Pure."""

from collections.abc import Mapping

_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {letter: f"\\{letter}" for letter in "\\ =:#!"}


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings in the syntax of java.util.Properties. Special characters are escaped."""
    return "".join(f"{_escape(key)} {_escape(value)}\n" for key, value in settings.items())


def _escape(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
