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

from opendataflow.core.databases.postgres_address import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    host_parameters,
    parse_jdbc_url,
)
from opendataflow.errors import DataflowError, InvalidInput, Refused
from opendataflow.spark.properties import parse_properties

_SAME_AS_LIBPQ = ("sslmode", "sslrootcert", "sslcert", "sslkey")


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
    try:
        return {it.key: Line(f"{path}, line {it.number}", it.value.strip()) for it in parse_properties(text)}
    except ValueError as error:
        raise InvalidInput(f"{path}, {error}") from None
