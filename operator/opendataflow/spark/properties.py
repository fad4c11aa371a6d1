"""Writes files of Spark's settings. Pure."""

from collections.abc import Mapping

_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {letter: f"\\{letter}" for letter in "\\ =:#!"}


def properties_text(settings: Mapping[str, str]) -> str:
    """Return the text that java.util.Properties reads these settings from, whatever letters they have."""
    return "".join(f"{_escaped(key)} {_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
