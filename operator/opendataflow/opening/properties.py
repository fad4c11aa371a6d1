"""Reads `dataflow.properties`, the file in which the old framework has its database: url, user, encrypted, and more.

    url=jdbc:postgresql://host:5432/database
    user=loader
    encrypted=<ciphertext of the password, opened with the passkey>
    schema, platform: read over; the schemas here have names of their own, and the url says which database it is

The syntax is that of java.util.Properties. No sentence here shows a value that may be a secret.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from opendataflow.errors import DataflowError, InvalidInput, Refused

_SAME_AS_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_POSTGRES = re.compile(r"jdbc:postgresql:(?://(?P<hosts>[^/?]*)/)?(?P<database>[^/?]*)(?:\?(?P<parameters>.*))?")
_HOST = re.compile(r"(?P<name>\[[^\]]+\]|[^:]*)(?::(?P<port>[0-9]+))?")


@dataclass(frozen=True)
class Line:
    """What one line says. `place`: its file and number, for sentences."""

    place: str
    value: str


def parameters(path: Path, passkey: Callable[[], str | None]) -> dict[str, str]:
    """Return how to connect, in the words of libpq, the opened password among them.

    InvalidInput where the file or a line can't be used; Refused where the password does not open.
    """
    lines = _read(path)
    found = _address(_needed(lines, "url", path, "jdbc:postgresql://host:5432/database"))
    found["user"] = _needed(lines, "user", path, "the database's user").value
    if "encrypted" in lines:
        found["password"] = _opened(lines["encrypted"], passkey)
    return found


def _needed(lines: Mapping[str, Line], key: str, path: Path, example: str) -> Line:
    if key not in lines or not lines[key].value:
        raise InvalidInput(f"{path}: there is no line {key}=: write {key}={example}, or set DATAFLOW_DSN")
    return lines[key]


def _opened(line: Line, passkey: Callable[[], str | None]) -> str:
    from opendataflow.crypto.sealed import open_sealed  # its import takes time, and most have DATAFLOW_DSN

    key = passkey()
    if key is None:
        raise InvalidInput(f"{line.place}: encrypted needs the passkey: set PASSKEY or DATAFLOW_KEY_FILE")
    try:
        return open_sealed(line.value, key)
    except DataflowError as error:
        kind = Refused if isinstance(error, Refused) else InvalidInput
        raise kind(f"{line.place}: encrypted can't be opened: {error}") from None


def _address(line: Line) -> dict[str, str]:
    match = _POSTGRES.fullmatch(line.value)
    if match is None:
        kind = re.match(r"jdbc:([a-z0-9]+):", line.value)
        if kind and kind[1] != "postgresql":
            raise InvalidInput(
                f"{line.place}: url is the address of another database ({kind[1]}): the state is kept in Postgres, "
                "jdbc:postgresql://host:5432/database"
            )
        raise InvalidInput(f"{line.place}: url is not like jdbc:postgresql://host:5432/database: mend it")
    found = _further(line, match["parameters"] or "")
    hosts = [_HOST.fullmatch(host) for host in (match["hosts"] or "localhost").split(",")]
    if not all(hosts):
        raise InvalidInput(f"{line.place}: url has a host that is not like host:5432: mend it")
    found["host"] = ",".join((host and host["name"].strip("[]")) or "localhost" for host in hosts)
    found["port"] = ",".join((host and host["port"]) or "5432" for host in hosts)
    if match["database"]:
        found["dbname"] = unquote(match["database"])
    return found


def _further(line: Line, text: str) -> dict[str, str]:
    """The parameters after the `?`: those that libpq has under the same name."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "ssl" and value in ("true", ""):
            found.setdefault("sslmode", "verify-full")
        elif name in _SAME_AS_LIBPQ:
            found[name] = value
        elif name == "password":
            raise InvalidInput(f"{line.place}: url has a password: write it, encrypted, into the line encrypted=")
        elif name not in ("user", "currentSchema", "ApplicationName"):
            raise InvalidInput(f"{line.place}: url has the parameter {name}, which is not known here: remove it")
    return found


def _read(path: Path) -> dict[str, Line]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # what java.util.Properties reads
    lines: dict[str, Line] = {}
    for number, logical in _logical_lines(text):
        place = f"{path}, line {number}"
        key, value = _split(logical)
        lines[_unescaped(key, place)] = Line(place, _unescaped(value, place).strip())
    return lines


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, each with the number of its first one; a backslash at the end goes on in the next."""
    found: list[tuple[int, str]] = []
    going_on = False
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        stripped = line.lstrip(" \t\f")
        if not going_on and (not stripped or stripped[0] in "#!"):
            continue
        if going_on:
            found[-1] = (found[-1][0], found[-1][1][:-1] + stripped)
        else:
            found.append((number, stripped))
        going_on = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return found


def _split(line: str) -> tuple[str, str]:
    match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None  # each part may be empty
    return match[1], match[2]


def _unescaped(text: str, place: str) -> str:
    def letter(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise InvalidInput(f"{place}: after \\u there have to be four hexadecimal digits")
        return _UNESCAPED.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", letter, text, flags=re.DOTALL)
