"""Opens the database that a data set is in: by an address that was given, else by the data set's location.

The password comes from the address in a variable such as DATAFLOW_SOURCE_DSN, from `D_password` as runs have it, from
the data set's ciphertext and the passkey, or from where libpq looks (PGPASSWORD, ~/.pgpass). It is never an argument,
and no sentence shows it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opendataflow.core.runs.environment import password_variable
from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.opening.passkey import Passkey
from opendataflow.sources.postgres import PostgresSource, parts_of
from opendataflow.sources.source import Source

VARIABLE = "DATAFLOW_SOURCE_DSN"
TARGET_VARIABLE = "DATAFLOW_TARGET_DSN"
"""Of the second one, where two data sets are compared."""


@contextmanager
def open_source(
    dataset: Mapping[str, Any],
    argument: str | None,
    environ: Mapping[str, str],
    passkey: Passkey,
    variable: str = VARIABLE,
) -> Iterator[Source]:
    """Connect. `dataset`: its row. `argument`: an address from the command line, without a password. `variable`: that
    of the environment which may have another one."""
    parameters = _parameters(dataset, argument, environ, passkey, variable)
    try:
        with PostgresSource.open(parameters) as source:
            yield source
    except NoAccess as error:
        if not dataset["secret_ref"] or "password" in parameters:
            raise
        raise NoAccess(
            f"{error}; the password of {dataset['id']} is in a Secret, which only run pods can read: set {variable}, "
            f"{password_variable(dataset['id'])} or PGPASSWORD"
        ) from error


def _parameters(
    dataset: Mapping[str, Any], argument: str | None, environ: Mapping[str, str], passkey: Passkey, variable: str
) -> dict[str, str]:
    if argument is not None:
        given = parts_of(argument)
        if "password" in given:
            raise InvalidInput(
                f"the address has a password, and every user of the machine can read arguments: set {variable}, or "
                "leave the password out and set PGPASSWORD"
            )
        return given
    if environ.get(variable):
        return parts_of(environ[variable])
    return _of_location(dataset) | _password(dataset, environ, passkey)


def _of_location(dataset: Mapping[str, Any]) -> dict[str, str]:
    where = f"data set {dataset['id']}"
    found: dict[str, str] = {}
    if dataset["url"]:
        url = dataset["url"].removeprefix("jdbc:")
        if not re.match(r"postgres(ql)?://", url):
            raise InvalidInput(f"{where}: only Postgres can be looked at, and its url is of something else")
        found = parts_of(url)
    elif not dataset["hostname"] and not dataset["database"]:
        raise InvalidInput(
            f"{where} does not say where it is: write location.hostname and location.database, or give --dsn"
        )
    if dataset["hostname"]:
        host, _, port = dataset["hostname"].partition(":")
        found |= {"host": host} | ({"port": port} if port else {})
    for name, column in (("dbname", "database"), ("user", "username")):
        if dataset[column]:
            found[name] = dataset[column]
    return found


def _password(dataset: Mapping[str, Any], environ: Mapping[str, str], passkey: Passkey) -> dict[str, str]:
    plain = environ.get(password_variable(dataset["id"]))
    if plain:
        return {"password": plain}
    if not dataset["encryptedpass"] or environ.get("PGPASSWORD"):
        return {}
    from opendataflow.crypto.sealed import open_sealed  # most have no ciphertext, and its import takes time

    key = passkey.get()
    if key is None:
        raise InvalidInput(
            f"the password of data set {dataset['id']} is encrypted: set PASSKEY or DATAFLOW_KEY_FILE, or PGPASSWORD"
        )
    try:
        return {"password": open_sealed(dataset["encryptedpass"], key)}
    except DataflowError as error:
        raise Refused(f"the password of data set {dataset['id']} can't be opened: {error}") from error
