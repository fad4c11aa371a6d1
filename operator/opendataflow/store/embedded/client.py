"""Talks to the server at its port: is it there, is it ours, has it our database. Never starts or stops it."""

from enum import Enum
from typing import Any

import psycopg
from psycopg import pq

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.log import complaint

HOST = "127.0.0.1"
NAME = "dataflow"
"""The superuser and the database."""


class Answer(Enum):
    """What a server answers at our port."""

    SILENT = "nothing that is ours"
    STARTING = "it is starting, recovering or shutting down"
    FULL = "every connection is taken"
    OURS = "our password opens our data folder"


def dsn(home: Home) -> str:
    """Return the libpq URL of the database."""
    return f"postgresql://{NAME}:{home.password()}@{HOST}:{home.port()}/{NAME}"


def probe(home: Home) -> Answer:
    """Ask the port of the last start."""
    port = home.port()
    if port is None:
        return Answer.SILENT
    ping = pq.PGconn.ping(f"host={HOST} port={port} connect_timeout=5".encode())
    if ping == pq.Ping.REJECT:
        return Answer.STARTING
    if ping != pq.Ping.OK:
        return Answer.SILENT
    try:
        with _connect(home) as connection:
            found = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error as error:
        # libpq keeps the SQLSTATE of a refused connection to itself; the server speaks English.
        return Answer.FULL if "too many clients" in str(error) else Answer.SILENT
    return Answer.OURS if found == (str(home.data),) else Answer.SILENT


def create_database(home: Home) -> None:
    """Create the database, unless an earlier start has got that far; start.lock is held."""
    try:
        with _connect(home) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone():
                connection.execute(f"CREATE DATABASE {NAME}")
    except psycopg.Error as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres in {home.path} can't make its database ({complaint(str(error))}): see {home.log}."
        ) from error


def _connect(home: Home) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect to the database that is always there, whatever the environment tells libpq."""
    return psycopg.connect(
        host=HOST,
        port=home.port(),
        user=NAME,
        password=home.password(),
        dbname="postgres",
        connect_timeout=5,
        sslmode="disable",
        gssencmode="disable",
        options="",
        autocommit=True,
    )
