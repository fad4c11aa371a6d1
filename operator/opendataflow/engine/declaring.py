"""Declares data sets and jobs in the store, after a check that all of them fit together."""

from collections.abc import Sequence

from opendataflow.core.runs.declared import links
from opendataflow.core.runs.graph import check_graph
from opendataflow.engine.days import current_day
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def declare(store: Store, datasets: list[Row], jobs: list[Row], actor: str) -> list[str]:
    """Apply rows of core/runs/declared.py in one transaction. Return the jobs that have QUEUED tasks.

    Raises UnknownThing if a data set is missing, InvalidInput if the jobs do not fit together, IdTaken, NotShared.
    """

    def check(graph: Sequence[Row], known: set[str]) -> None:
        check_graph([links(row) for row in graph], known)

    first_day = {"first_day": current_day()}  # for jobs that read `today` and have no first day yet
    return await store.apply(datasets, [job | first_day for job in jobs], actor, check)
