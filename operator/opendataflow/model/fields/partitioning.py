"""How a data set, source or destination is divided into chunks."""

from typing import Literal

from pydantic import Field

from opendataflow.model.fields.field_types import InputModel, NonEmpty


class Partitioning(InputModel):
    """The partitioning of a table."""

    column: NonEmpty = Field(description="The partitioning column.")
    type: Literal["date", "range", "list", "hash"] = Field(description="The kind of partitioning.")
