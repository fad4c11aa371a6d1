"""Read and write files in the syntax of java.util.Properties, such as those of Spark's settings. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_ESCAPED = {meant: f"\\{letter}" for letter, meant in _LETTERS.items()} | {it: f"\\{it}" for it in "\\ =:#!"}


@dataclass(frozen=True)
class Property:
    """One property, and the number of its first line."""

    number: int
    key: str
    value: str


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as a text. Special characters are escaped."""
    return "".join(f"{_escape(key)} {_escape(value)}\n" for key, value in settings.items())


def parse_properties(text: str) -> Iterator[Property]:
    """Yield the properties of a text. Raises ValueError, with the line, for an incomplete escape sequence."""
    for number, line in _join_lines(text):
        key, value = _split_key(line)
        yield Property(number, _unescape(key, number), _unescape(value, number))


def _escape(text: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in text)


def _join_lines(text: str) -> list[tuple[int, str]]:
    """Return logical lines without comments, each with its first number. A backslash at the end continues a line."""
    found: list[tuple[int, str]] = []
    is_continued = False
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        stripped = line.lstrip(" \t\f")
        if not is_continued and (not stripped or stripped[0] in "#!"):
            continue
        if is_continued:
            found[-1] = (found[-1][0], found[-1][1][:-1] + stripped)
        else:
            found.append((number, stripped))
        is_continued = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return found


def _split_key(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None  # all parts are optional
    return match[1], match[2]


def _unescape(text: str, number: int) -> str:
    def letter(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise ValueError(f"line {number}: after \\u there have to be four hexadecimal digits")
        return _LETTERS.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", letter, text, flags=re.DOTALL)
