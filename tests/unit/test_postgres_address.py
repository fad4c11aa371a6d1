"""Addresses of Postgres: parameters of libpq for a JDBC URL."""

from collections.abc import Mapping

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.core.databases.postgres_address import libpq_parameters, to_uri


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("jdbc:postgresql://db/shop", {}, {"host": "db", "port": "5432", "dbname": "shop"}),
        ("jdbc:postgresql://db:1/a%20b?sslmode=require", {}, {"port": "1", "dbname": "a b", "sslmode": "require"}),
        ("jdbc:postgresql://a:1,[::1]/x", {}, {"host": "a,::1", "port": "1,5432"}),
        ("jdbc:postgresql:x", {"user": "u", "ApplicationName": "n"}, {"host": "localhost", "application_name": "n"}),
        ("jdbc:postgresql://db/x?user=a", {"user": "b"}, {"user": "b"}),
        ("jdbc:postgresql://db/x?reWriteBatchedInserts=true", {"batchsize": "5"}, {"host": "db"}),
    ],
)
def test_a_jdbc_url_becomes_parameters_of_libpq(url: str, options: Mapping[str, str], words: Mapping[str, str]) -> None:
    found = libpq_parameters(url, options)
    assert found is not None
    assert words.items() <= found.items()
    assert not {"batchsize", "reWriteBatchedInserts"} & found.keys()


@pytest.mark.parametrize(
    "url", ["jdbc:postgresql://db/x?sslfactory=mine", "jdbc:postgresql://db/x?currentSchema=s", "jdbc:mysql://db/x"]
)
def test_an_option_without_an_equivalent_has_no_parameters(url: str) -> None:
    assert libpq_parameters(url, {}) is None


@pytest.mark.parametrize(
    ("parameters", "uri"),
    [
        ({"host": "db", "port": "5432", "user": "flow", "dbname": "flows"}, "postgresql://flow@db:5432/flows"),
        ({"host": "::1", "port": "1", "user": "a@b", "dbname": "a b"}, "postgresql://a%40b@[::1]:1/a%20b"),
        (
            {"host": "a,b", "port": "1,2", "user": "u", "dbname": "d", "sslmode": "verify-full"},
            "postgresql://u@/d?host=a%2Cb&port=1%2C2&sslmode=verify-full",
        ),
        (
            {"host": "/var/run/pg", "port": "5432", "user": "u", "dbname": "d"},
            "postgresql://u@/d?host=%2Fvar%2Frun%2Fpg&port=5432",
        ),
    ],
)
def test_parameters_become_a_uri_that_libpq_parses_to_the_same(parameters: Mapping[str, str], uri: str) -> None:
    assert to_uri(parameters) == uri
    assert conninfo_to_dict(uri) == parameters
