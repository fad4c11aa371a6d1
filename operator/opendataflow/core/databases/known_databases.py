"""The databases whose SQL is known, by URL. Pure.

A new database that can be written needs a subclass of `Writer` and a line in `_WRITERS`.
"""

import re

from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.destination import Writer
from opendataflow.core.databases.dialect import Dialect
from opendataflow.core.databases.postgres import Postgres
from opendataflow.errors import InvalidInput

_WRITERS: dict[str, Writer] = {"jdbc:postgresql:": Postgres(), "bigquery:": BigQuery()}


def find_dialect(url: str) -> Dialect:
    """Return the dialect of a database URL. Raises InvalidInput for other URLs."""
    match = re.match(r"jdbc:[a-z0-9]+:|bigquery:(?=//)", url)
    if match is None:
        raise InvalidInput(
            "the url of a database is a JDBC URL, such as jdbc:postgresql://host:5432/database, or "
            "bigquery://PROJECT/DATASET"
        )
    return _WRITERS.get(match[0]) or Dialect()


def find_writer(url: str) -> Writer:
    """Return the writer of a database URL. Raises InvalidInput if this database can only be read."""
    dialect = find_dialect(url)
    if not isinstance(dialect, Writer):
        known = ", ".join(_WRITERS)
        raise InvalidInput(f"{url.partition('//')[0]} can be read here, and not written; written are {known}")
    return dialect
