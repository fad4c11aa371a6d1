"""Read `dataflow.properties`, the old framework's file with its database: url, user, encrypted, and more.

    url=jdbc:postgresql://host:5432/database
    user=loader
    encrypted=<ciphertext of the password, opened with the passkey>
    schema, platform: ignored

The syntax is that of java.util.Properties. No message contains a value that may be a secret.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.chunks.postgres_address import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    host_parameters,
    parse_jdbc_url,
)
from opendataflow.errors import DataflowError, InvalidInput, Refused

_SAME_AS_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Line:
    """The value of one line. `place`: its file and number, for messages."""

    place: str
    value: str


def read_connection_parameters(path: Path, passkey: Callable[[], str | None]) -> dict[str, str]:
    """Return the parameters for libpq, with the decrypted password.

    Raises InvalidInput if the file or a line is invalid, Refused if the password does not decrypt.
    """
    lines = _read_lines(path)
    found = _parse_url(_require(lines, "url", path, "jdbc:postgresql://host:5432/database"))
    found["user"] = _require(lines, "user", path, "the database's user").value
    if "encrypted" in lines:
        found["password"] = _decrypt(lines["encrypted"], passkey)
    return found


def _require(lines: Mapping[str, Line], key: str, path: Path, example: str) -> Line:
    if key not in lines or not lines[key].value:
        raise InvalidInput(f"{path}: there is no line {key}=: write {key}={example}, or set DATAFLOW_DSN")
    return lines[key]


def _decrypt(line: Line, passkey: Callable[[], str | None]) -> str:
    from opendataflow.crypto.sealed import open_sealed  # slow to import, and rarely needed

    key = passkey()
    if key is None:
        raise InvalidInput(f"{line.place}: encrypted needs the passkey: set PASSKEY or DATAFLOW_KEY_FILE")
    try:
        return open_sealed(line.value, key)
    except DataflowError as error:
        kind = Refused if isinstance(error, Refused) else InvalidInput
        raise kind(f"{line.place}: encrypted can't be opened: {error}") from None


def _parse_url(line: Line) -> dict[str, str]:
    try:
        url = parse_jdbc_url(line.value)
    except InvalidInput as error:
        raise InvalidInput(f"{line.place}: {error}: fix it") from None
    if url is None or not url.is_strict:
        kind = re.match(r"jdbc:([a-z0-9]+):", line.value)
        if kind and kind[1] != "postgresql":
            raise InvalidInput(
                f"{line.place}: url is the address of another database ({kind[1]}): the state is kept in Postgres, "
                "jdbc:postgresql://host:5432/database"
            )
        raise InvalidInput(f"{line.place}: url is not like jdbc:postgresql://host:5432/database: fix it")
    found = _convert_parameters(line, url.parameters)
    found |= host_parameters(url.hosts or ((DEFAULT_HOST, DEFAULT_PORT),))
    if url.database:
        found["dbname"] = url.database
    return found


def _convert_parameters(line: Line, parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters after the `?` that libpq has under the same name."""
    found: dict[str, str] = {}
    for name, value in parameters.items():
        if name == "ssl" and value in ("true", ""):
            found.setdefault("sslmode", "verify-full")
        elif name in _SAME_AS_LIBPQ:
            found[name] = value
        elif name == "password":
            raise InvalidInput(f"{line.place}: url has a password: write it, encrypted, into the line encrypted=")
        elif name not in ("user", "currentSchema", "ApplicationName"):
            raise InvalidInput(f"{line.place}: url has the parameter {name}, which is not known here: remove it")
    return found


def _read_lines(path: Path) -> dict[str, Line]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # as java.util.Properties does
    lines: dict[str, Line] = {}
    for number, logical in _join_lines(text):
        place = f"{path}, line {number}"
        key, value = _split_key(logical)
        lines[_unescape(key, place)] = Line(place, _unescape(value, place).strip())
    return lines


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


def _unescape(text: str, place: str) -> str:
    def letter(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise InvalidInput(f"{place}: after \\u there have to be four hexadecimal digits")
        return _UNESCAPED.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", letter, text, flags=re.DOTALL)
