"""Connects to the server: checks whether it answers and belongs to this home, creates the database, reads its errors.

It never starts or stops the server.
"""

import re
from enum import Enum
from typing import Any

import psycopg
from psycopg import pq

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.home import Home

HOST = "127.0.0.1"
NAME = "dataflow"
"""The name of the superuser and of the database."""

_FATAL = re.compile("(FATAL|PANIC):")
_ERROR = re.compile(r"^\w+: error: ")
_TOO_EARLY = re.compile("FATAL: +the database system is ")


class Answer(Enum):
    """The result of a connection attempt to the port of the last start."""

    SILENT = "no server of this home answers"
    STARTING = "the server is starting, recovering or shutting down"
    FULL = "all connections are in use"
    OURS = "a server with this home's password and data folder"


def dsn(home: Home) -> str:
    """Return the libpq URL of the database."""
    return f"postgresql://{NAME}:{home.password()}@{HOST}:{home.port()}/{NAME}"


def probe(home: Home) -> Answer:
    """Try to connect to the port of the last start."""
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
        # libpq hides the SQLSTATE of a refused connection. The server's messages are English.
        return Answer.FULL if "too many clients" in str(error) else Answer.SILENT
    return Answer.OURS if found == (str(home.data),) else Answer.SILENT


def create_database(home: Home) -> None:
    """Create the database unless it exists. The caller holds start.lock."""
    try:
        with _connect(home) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone():
                connection.execute(f"CREATE DATABASE {NAME}")
    except psycopg.Error as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres in {home.path} can't make its database ({exit_reason(str(error))}): see {home.log}."
        ) from error


def _connect(home: Home) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect to the database `postgres`, which always exists. Ignore libpq's environment variables."""
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


def fatal_line(output: str) -> str | None:
    """Return the last fatal line of a program's output, or None if there is none, as after SIGKILL.

    Errors for clients that connect too early are ignored.
    """
    lines = [line.strip() for line in output.splitlines() if _FATAL.search(line) and not _TOO_EARLY.search(line)]
    return lines[-1] if lines else None


def exit_reason(output: str) -> str:
    """Return the line that explains why a program has exited: the last fatal, else the last error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return fatal_line(output) or (errors or lines or ["it printed nothing"])[-1]
