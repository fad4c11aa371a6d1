"""What people are told about without having asked. Values only."""

from dataclasses import dataclass
from datetime import datetime

from opendataflow.names import AlertKind


@dataclass(frozen=True)
class Alert:
    """Something about a job began failing, or is well again since `since`.

    `count`: how many chunks, `data_id`: the first of them, `message`: why; only where it fails.
    """

    job: str
    kind: AlertKind
    failing: bool
    since: datetime
    count: int = 0
    data_id: str | None = None
    message: str | None = None
