"""What users write about the databases that pipelines read and write, in project.yml. It never holds a password."""

from typing import Annotated

from pydantic import Field, StringConstraints

from opendataflow.model.fields.field_types import NonEmpty, Options, Url, Written
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


class Database(Written):
    """A database, by JDBC, or BigQuery. `${NAME}` in `url` and `user` stands for a variable of the environment."""

    url: Url = Field(
        description="The JDBC URL, without any password, such as `jdbc:postgresql://host:5432/shop`; of BigQuery "
        "`bigquery://PROJECT/DATASET`."
    )
    user: NonEmpty | None = Field(default=None, description="The user to connect as; not for BigQuery.")
    password_variable: Variable | None = Field(
        default=None,
        description="The variable of the environment that holds the password; of BigQuery the key of a service "
        "account, which is JSON.",
    )
    driver: NonEmpty | None = Field(
        default=None, description="The class of the JDBC driver. Not needed for Postgres, nor where the jar names it."
    )
    options: Options = Field(
        default_factory=dict,
        description="Spark's options for JDBC, such as `fetchsize`, and those of the driver; for BigQuery those of its "
        "connector.",
    )
