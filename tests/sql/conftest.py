"""Connections to the fresh database of a test (`dsn`)."""

import os
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from opendataflow.store.store import Store
from tests.sql import graph

Connection = graph.Connection


def open_connection(dsn: str) -> Connection:
    """A synchronous connection: what is tested here are the functions in Postgres."""
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row)


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    """A connection to the fresh database; commits by itself."""
    with open_connection(dsn) as connection:
        yield connection


@pytest.fixture
def lease(db: Connection) -> str:
    """A lease of a made-up engine."""
    return graph.open_lease(db)


@pytest.fixture
def empty_dsn(postgres_server: str) -> str:
    """The address of a database without a schema."""
    name = f"dataflow_test_empty_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return make_conninfo(postgres_server, dbname=name)


@pytest.fixture(scope="module")
def shared(lasting_dsn: str) -> Iterator[Connection]:
    """A connection to a database that a module's tests share; each of them leaves it as it was."""
    with open_connection(lasting_dsn) as connection:
        yield connection


@pytest.fixture
def rolled_back(shared: Connection) -> Iterator[Connection]:
    """A connection whose changes are rolled back after the test: most tests need no database of their own."""
    with shared.transaction(force_rollback=True):
        yield shared


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    """The store over the fresh database."""
    opened = await Store.open(lambda: dsn)
    yield opened
    await opened.close()
