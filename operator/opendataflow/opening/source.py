"""Open the database of a data set: by a given address, else by the data set's location.

The password has several sources: the address in a variable such as DATAFLOW_SOURCE_DSN; `D_password`, as in runs; the
data set's ciphertext and the passkey; libpq's own sources (PGPASSWORD, ~/.pgpass). The password is never an argument,
and no message contains the password.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opendataflow.core.databases.postgres_address import libpq_uri, split_host
from opendataflow.core.runs.environment import password_variable
from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.opening.passkey import Passkey
from opendataflow.sources.postgres import PostgresSource, parse_address
from opendataflow.sources.source import Source

VARIABLE = "DATAFLOW_SOURCE_DSN"
TARGET_VARIABLE = "DATAFLOW_TARGET_DSN"
"""The variable for the second data set of a comparison."""


@contextmanager
def open_source(
    dataset: Mapping[str, Any],
    argument: str | None,
    environ: Mapping[str, str],
    passkey: Passkey,
    variable: str = VARIABLE,
) -> Iterator[Source]:
    """Connect to the database of a data set.

    `dataset`: its row. `argument`: an address from the command line, without a password. `variable`: the variable of
    the environment that may contain an address.
    """
    parameters = _find_parameters(dataset, argument, environ, passkey, variable)
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


def _find_parameters(
    dataset: Mapping[str, Any], argument: str | None, environ: Mapping[str, str], passkey: Passkey, variable: str
) -> dict[str, str]:
    if argument is not None:
        given = parse_address(argument)
        if "password" in given:
            raise InvalidInput(
                f"the address has a password, and every user of the machine can read arguments: set {variable}, or "
                "leave the password out and set PGPASSWORD"
            )
        return given
    if environ.get(variable):
        return parse_address(environ[variable])
    return _parse_location(dataset) | _find_password(dataset, environ, passkey)


def _parse_location(dataset: Mapping[str, Any]) -> dict[str, str]:
    where = f"data set {dataset['id']}"
    found: dict[str, str] = {}
    if dataset["url"]:
        uri = libpq_uri(dataset["url"])
        if uri is None:
            raise InvalidInput(f"{where}: only Postgres can be looked at, and its url is of something else")
        found = parse_address(uri)
    elif not dataset["hostname"] and not dataset["database"]:
        raise InvalidInput(
            f"{where} does not say where it is: write location.hostname and location.database, or give --dsn"
        )
    if dataset["hostname"]:
        found |= split_host(dataset["hostname"])
    for name, column in (("dbname", "database"), ("user", "username")):
        if dataset[column]:
            found[name] = dataset[column]
    return found


def _find_password(dataset: Mapping[str, Any], environ: Mapping[str, str], passkey: Passkey) -> dict[str, str]:
    plain = environ.get(password_variable(dataset["id"]))
    if plain:
        return {"password": plain}
    if not dataset["encryptedpass"] or environ.get("PGPASSWORD"):
        return {}
    from opendataflow.crypto.sealed import open_sealed  # slow to import, and rarely needed

    key = passkey.get()
    if key is None:
        raise InvalidInput(
            f"the password of data set {dataset['id']} is encrypted: set PASSKEY or DATAFLOW_KEY_FILE, or PGPASSWORD"
        )
    try:
        return {"password": open_sealed(dataset["encryptedpass"], key)}
    except DataflowError as error:
        raise Refused(f"the password of data set {dataset['id']} can't be opened: {error}") from error
