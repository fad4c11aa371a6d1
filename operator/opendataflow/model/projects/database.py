"""The models of databases in project.yml, which pipelines read and write. They never contain a password."""

from typing import Annotated

from pydantic import Field, StringConstraints

from opendataflow.model.fields.field_types import InputModel, NonEmpty, Options, Url
from opendataflow.model.fields.rules import matching
from opendataflow.names import SHELL_NAME

_PART = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"[^".\x00]+")'
TableName = Annotated[
    str,
    StringConstraints(strict=True, max_length=400),
    matching(
        rf"{_PART}(?:\.{_PART}){{0,2}}",
        'a table is written like orders, sales.orders or sales."Orders": quotes where they are needed, no dots inside',
    ),
]
Variable = Annotated[
    str,
    StringConstraints(strict=True, max_length=200),
    matching(SHELL_NAME, "the name of a variable has only letters, digits and _ and does not begin with a digit"),
]


class Database(InputModel):
    """A database with a JDBC driver, or BigQuery. `${NAME}` in `url` and `user` is replaced by the variable NAME."""

    url: Url = Field(
        description="The JDBC URL without a password, such as `jdbc:postgresql://host:5432/shop`. For BigQuery, "
        "`bigquery://PROJECT/DATASET`."
    )
    user: NonEmpty | None = Field(default=None, description="The user name of the connection. Not for BigQuery.")
    password_variable: Variable | None = Field(
        default=None,
        description="The environment variable with the password. For BigQuery, the variable with the JSON key of a "
        "service account.",
    )
    driver: NonEmpty | None = Field(
        default=None,
        description="The class of the JDBC driver. Not needed for Postgres, or if the jar registers its driver.",
    )
    options: Options = Field(
        default_factory=dict,
        description="Options of Spark for JDBC, such as `fetchsize`, and options of the driver. For BigQuery, options "
        "of its connector.",
    )
