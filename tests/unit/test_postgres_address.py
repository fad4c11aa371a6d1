"""Addresses of Postgres: parameters of libpq for a JDBC URL."""

from collections.abc import Mapping

import pytest

from opendataflow.core.chunks.postgres_address import libpq_parameters


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
