"""A database of its own for each test: a clone of one template that has the schema."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from opendataflow.store.connection import Row, connect
from opendataflow.store.schema import migrate
from opendataflow.store.store import Store

Connection = psycopg.Connection[Row]

_numbers = itertools.count(1)


def open_connection(dsn: str) -> Connection:
    """A synchronous connection: what is tested here are the functions in Postgres."""
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row)


@pytest.fixture(scope="session")
def template_database(postgres_server: str) -> Iterator[str]:
    """The name of a database with the current schema and no rows."""
    name = "dataflow_test_template"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")

    async def fill() -> None:
        async with await connect(make_conninfo(postgres_server, dbname=name)) as connection:
            await migrate(connection)

    asyncio.run(fill())
    yield name
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def dsn(postgres_server: str, template_database: str) -> Iterator[str]:
    """The address of a fresh database with the current schema."""
    name = f"dataflow_test_{next(_numbers)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template_database}")
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    """A connection to the fresh database; commits by itself."""
    with open_connection(dsn) as connection:
        yield connection


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    """The store over the fresh database."""
    opened = await Store.open(lambda: dsn)
    yield opened
    await opened.close()
