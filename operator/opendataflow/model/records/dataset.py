"""A data set as the database stores it: its location, in columns that may be null.

Values only. It never contains a plain password. The code that decrypts a password passes it on separately.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:  # see core/runs/environment.py
    from opendataflow.model.resources.api import DataSet


@dataclass(frozen=True)
class DataSetFacts:
    """The columns of a data set that its runs can read; None if the user wrote nothing."""

    id: str
    kind: str | None = None
    hostname: str | None = None
    database: str | None = None
    schemaname: str | None = None
    tablename: str | None = None
    username: str | None = None
    encryptedpass: str | None = None
    url: str | None = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: "DataSet") -> Self:
        """Return the facts of a data set from its resource."""
        location, credentials = dataset.spec.location, dataset.spec.credentials
        return cls(
            id=dataset.id,
            encryptedpass=None if credentials is None else credentials.encrypted_password,
            **location.model_dump(),
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the facts of a data set from its database row, which may have more columns."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})
