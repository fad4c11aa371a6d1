"""Read whole tables and CSV files of buckets into frames of pandas, without Spark. Writes nothing.

Values are those that pandas itself would read: numbers of any kind are integers or floats. A number that no float holds
exactly is refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import IO, Any

import pandas
import psycopg
import pyarrow
from pyarrow import fs

from opendataflow.core.pipelines.pipeline_steps import find_duplicate
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.storage.database_login import resolve_login

_SCHEMES = ("s3", "gs")
_CONNECT_SECONDS = "10"
_EXACT = 2**53
"""Up to this one, each whole number is a float."""


def read_rows(source: Source, place: str) -> Any:
    """Return all rows of a table or query. `place`: of the source in the project's file. Raises StepFailed."""
    assert source.database is not None
    login = resolve_login(source.database, place)
    if not login.url.startswith("jdbc:postgresql:"):
        raise StepFailed(
            f"{place}: without Spark only Postgres is read (jdbc:postgresql:...); for other databases write version: 2"
        )
    parameters = login.libpq_parameters()
    if parameters is None:
        raise StepFailed(f"{place}: the url or an option of the database means something for Java only; leave it out")
    try:
        # The keys are libpq's parameters. The type of connect() lists each parameter.
        with psycopg.connect(**{"connect_timeout": _CONNECT_SECONDS, **parameters}) as opened:  # type: ignore[arg-type]  # see above
            opened.read_only = True
            found = opened.execute(f"SELECT * FROM {source.table or f'{source.subquery} AS it'}".encode())
            names, rows = [column.name for column in found.description or ()], found.fetchall()
    except psycopg.Error as error:
        message = error.diag.message_primary or " ".join(str(error).split())
        raise StepFailed(f"{place}: {message}") from None
    twice = find_duplicate(names)
    if twice is not None:
        raise StepFailed(f"{place}: the query returns two columns {twice}; give one of them another name")
    return pandas.DataFrame({name: _column(name, [row[i] for row in rows], place) for i, name in enumerate(names)})


def _column(name: str, values: Sequence[Any], place: str) -> Any:
    """Return the values of a column as pandas holds them."""
    numbers = [value for value in values if isinstance(value, int | Decimal) and not isinstance(value, bool)]
    becomes_float = len(numbers) < len(values) or any(isinstance(value, Decimal) for value in numbers)
    if not numbers or not becomes_float:
        return pandas.Series(list(values), dtype=None if values else object)
    inexact = next((value for value in numbers if not _is_exact(value)), None)
    if inexact is not None:
        raise StepFailed(
            f"{place}: the column {name} has {inexact}, which no float of pandas holds exactly; "
            "write a query that casts the column to text or double precision"
        )
    return pandas.Series([None if value is None else float(value) for value in values], dtype="float64")


def _is_exact(value: int | Decimal) -> bool:
    if isinstance(value, int):
        return abs(value) <= _EXACT
    return not value.is_finite() or Decimal(repr(float(value))) == value


@contextmanager
def open_address(address: str, place: str) -> Iterator[IO[bytes]]:
    """Yield a file of a bucket. `place`: of the source in the project's file. Raises StepFailed."""
    if address.partition("://")[0] not in _SCHEMES:
        raise StepFailed(f"{place}: without Spark, addresses begin with s3:// or gs://; for others write version: 2")
    try:
        system, path = fs.FileSystem.from_uri(address)
        with system.open_input_stream(path) as stream:
            yield stream
    except FileNotFoundError:
        raise StepFailed(f"{place}: there is no {address}") from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise StepFailed(f"{place}: {address}: can't be read: {reason}") from None
