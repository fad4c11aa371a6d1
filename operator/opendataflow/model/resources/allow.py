"""The consent to a change that affects finished tasks."""

from typing import Annotated, Literal

from pydantic import Field

from opendataflow.model.fields.field_types import NEVER_NULL, Id, InputModel


class Allow(InputModel):
    """The consent to one plan, which the status shows under `plan`."""

    change: Id = Field(description="The hash of the plan: status.plan.hash. Another plan is refused.")
    backfill: Annotated[Literal["all", "none"] | None, NEVER_NULL] = Field(
        default=None,
        description="Finished tasks of jobs with new outputs, or of chunks with other bounds: `all` processes them "
        "again, `none` leaves them as they are.",
    )
