"""Credentials and drivers of databases. Imports no Spark.

Passwords come from variables of the environment and go only to the client of the database.
"""

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from opendataflow.core.databases.attempts import Attempt, fence_of
from opendataflow.core.databases.dialect import Dialect, Driver
from opendataflow.core.databases.known_databases import find_dialect
from opendataflow.core.databases.postgres_address import libpq_parameters
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.database import Database
from opendataflow.model.projects.project import Pipeline

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_STRANGE = re.compile(r"[^\w.,:\[\]~+$ -]")
"""Characters that could end a part of a URL and begin another one, such as a parameter of the driver."""


@dataclass(frozen=True)
class Login:
    """How to connect to a database. The text of a Login never shows the password."""

    url: str
    user: str | None
    dialect: Dialect
    driver: str | None
    options: Mapping[str, str]
    password: str | None = field(default=None, repr=False)

    def spark_options(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """Return the options for Spark. The project's options override `defaults`."""
        known = {"url": self.url, "user": self.user, "password": self.password, "driver": self.driver}
        return {**defaults, **self.options, **{name: value for name, value in known.items() if value is not None}}

    def libpq_parameters(self) -> dict[str, str] | None:
        """Return the parameters for libpq, or None if libpq can't express an option."""
        known = {"user": self.user, "password": self.password}
        return libpq_parameters(
            self.url, {**self.options, **{name: value for name, value in known.items() if value is not None}}
        )


def resolve_login(database: Database, place: str, environ: Mapping[str, str] = os.environ) -> Login:
    """Fill in variables of the environment. `place`: in the project's file. Raises StepFailed if one is not set."""

    def value(name: str) -> str:
        if name not in environ:
            raise StepFailed(f"{place}: the variable {name} is not set; the database wants it")
        return environ[name]

    def fill(text: str) -> str:
        return _VARIABLE.sub(lambda match: value(match[1]), text)

    def fill_in_url(match: re.Match[str]) -> str:
        strange = _STRANGE.search(filled := value(match[1]))
        if strange is not None and match.start() > 0:
            raise StepFailed(
                f"{place}: the variable {match[1]} has the character {strange[0]!r}, which could change the rest of "
                "the url: write the whole url in one variable, or leave the character out"
            )
        return filled

    url = _VARIABLE.sub(fill_in_url, database.url)
    try:
        dialect = find_dialect(url)
    except InvalidInput as error:
        raise StepFailed(f"{place}: {error}") from None
    return Login(
        url,
        None if database.user is None else fill(database.user),
        dialect,
        database.driver or (dialect.driver.name if dialect.driver else None),
        database.options,
        None if database.password_variable is None else value(database.password_variable),
    )


def guess_dialect(database: Database, environ: Mapping[str, str] = os.environ) -> Dialect | None:
    """Return the dialect of a database, or None if its URL is invalid, such as with variables that are not set."""
    with suppress(InvalidInput):  # reported when a run connects
        return find_dialect(_VARIABLE.sub(lambda match: environ.get(match[1], ""), database.url))
    return None


def required_drivers(pipeline: Pipeline, environ: Mapping[str, str] = os.environ) -> list[Driver]:
    """Return the known JDBC drivers and connectors that a pipeline needs."""
    given = [*(source.database for source in pipeline.sources), pipeline.destination.database]
    dialects = [guess_dialect(it, environ) for it in given if it is not None and it.driver is None]
    return list(dict.fromkeys(it.driver for it in dialects if it is not None and it.driver is not None))


def new_attempt(dataset: str, data_id: str, environ: Mapping[str, str], owner: str | None = None) -> Attempt:
    """Return the attempt of this process: of a run with a fencing token and an owner, or of a person without them."""
    return Attempt(dataset, data_id, secrets.token_hex(6), fence_of(environ, data_id), owner)
