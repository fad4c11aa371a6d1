"""Hands what users declare to the store, after checking that all jobs and data sets fit together."""

from collections.abc import Sequence

from opendataflow.core.runs.declared import links
from opendataflow.core.runs.graph import check_graph
from opendataflow.engine.days import current_day
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def declare(store: Store, datasets: list[Row], jobs: list[Row], actor: str) -> list[str]:
    """Apply rows as core/runs/declared.py makes them, all or nothing; return the jobs that have QUEUED tasks.

    UnknownThing where a data set is missing, InvalidInput where the jobs don't fit together, IdTaken, NotShared.
    """

    def check(graph: Sequence[Row], known: set[str]) -> None:
        check_graph([links(row) for row in graph], known)

    first_day = {"first_day": current_day()}  # of jobs that read the days and have no other one
    return await store.apply(datasets, [job | first_day for job in jobs], actor, check)
