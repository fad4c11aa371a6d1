"""What the statuses of resources tell of jobs and data sets: sql/functions/94_operator.sql. It decides nothing."""

from collections.abc import Sequence

from opendataflow.model.statuses import MOST_FAILURES, MOST_GAPS
from opendataflow.store.connection import Row
from opendataflow.store.store import Store


async def job_reports(store: Store, jobs: Sequence[str]) -> dict[str, Row]:
    """How some jobs are, by id; those that are not there are left out. Its cost does not grow with their chunks."""
    query = "SELECT job, report FROM opendataflow.job_reports(%s, %s)"
    return {row["job"]: row["report"] for row in await store.rows(query, list(jobs), MOST_FAILURES)}


async def dataset_report(store: Store, dataset: str) -> Row | None:
    """What is there of a data set; None where there is no such one. Looks at all of its chunks: leave long pauses."""
    report: Row | None = (await store.row("SELECT opendataflow.dataset_report(%s, %s) AS report", dataset, MOST_GAPS))[
        "report"
    ]
    return report
