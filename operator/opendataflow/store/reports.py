"""Reports for the statuses of custom resources: calls sql/functions/94_operator.sql. It makes no decisions."""

from collections.abc import Sequence

from opendataflow.model.resources.statuses import MOST_FAILURES, MOST_GAPS
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def job_reports(store: Store, jobs: Sequence[str]) -> dict[str, Row]:
    """Return job id -> report. Unknown jobs are left out. The cost does not depend on the number of chunks."""
    query = "SELECT job, report FROM opendataflow.job_reports(%s, %s)"
    return {row["job"]: row["report"] for row in await store.rows(query, list(jobs), MOST_FAILURES)}


async def dataset_counts(store: Store, dataset: str) -> Row | None:
    """Return {counts: by status, missing: a digest of the chunks that are not READY}, or None if there is no data set.

    This reads all chunks of the data set.
    """
    row = await store.row("SELECT opendataflow.dataset_counts(%s) AS counts", dataset)
    counts: Row | None = row["counts"]
    return counts


async def dataset_gaps(store: Store, dataset: str) -> Row:
    """Return {watermark, gaps} of a data set. This sorts all its chunks, so call it rarely."""
    gaps: Row = (await store.row("SELECT opendataflow.dataset_gaps(%s, %s) AS gaps", dataset, MOST_GAPS))["gaps"]
    return gaps
