"""An alert about a job, for notifications. Values only."""

from dataclasses import dataclass
from datetime import datetime

from opendataflow.names import AlertKind


@dataclass(frozen=True)
class Alert:
    """A job has started to fail in one respect (`kind`), or has recovered, since `since`.

    `count`: the number of chunks. `data_id`: the first of them. `message`: the cause. These three are set only if
    `failing`.
    """

    job: str
    kind: AlertKind
    failing: bool
    since: datetime
    count: int = 0
    data_id: str | None = None
    message: str | None = None
