"""What the statuses of resources tell of jobs and data sets: sql/functions/94_operator.sql. It decides nothing."""

from collections.abc import Sequence

from opendataflow.model.resources.statuses import MOST_FAILURES, MOST_GAPS
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def job_reports(store: Store, jobs: Sequence[str]) -> dict[str, Row]:
    """How some jobs are, by id; those that are not there are left out. Its cost does not grow with their chunks."""
    query = "SELECT job, report FROM opendataflow.job_reports(%s, %s)"
    return {row["job"]: row["report"] for row in await store.rows(query, list(jobs), MOST_FAILURES)}


async def dataset_counts(store: Store, dataset: str) -> Row | None:
    """{counts: by status, missing: a number that tells which chunks are not READY}; None where it is not there.

    Looks at all of its chunks."""
    row = await store.row("SELECT opendataflow.dataset_counts(%s) AS counts", dataset)
    counts: Row | None = row["counts"]
    return counts


async def dataset_gaps(store: Store, dataset: str) -> Row:
    """{watermark, gaps} of a data set. Puts all of its chunks in order: leave long pauses."""
    gaps: Row = (await store.row("SELECT opendataflow.dataset_gaps(%s, %s) AS gaps", dataset, MOST_GAPS))["gaps"]
    return gaps
