"""Declares data sets and jobs in the store, after a check that all of them fit together."""

from collections.abc import Sequence

from opendataflow.core.runs.declared import links
from opendataflow.core.runs.graph import check_graph
from opendataflow.engine.days import current_day
from opendataflow.model.records.plan import NO_CONSENT, Applied, Consent, Plan
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def declare(
    store: Store, datasets: list[Row], jobs: list[Row], actor: str, consent: Consent = NO_CONSENT
) -> Applied:
    """Apply rows of core/runs/declared.py in one transaction.

    Raises UnknownThing if a data set is missing, InvalidInput if the jobs do not fit together, IdTaken, NotShared, and
    PlanRefused if finished tasks are affected and the consent does not allow that.
    """
    return await store.apply(datasets, _with_first_day(jobs), actor, _check, consent)


async def plan(store: Store, datasets: list[Row], jobs: list[Row], consent: Consent = NO_CONSENT) -> Plan:
    """Return the plan of a declaration, and change nothing. Raises the errors of `declare`, except PlanRefused."""
    return await store.plan(datasets, _with_first_day(jobs), _check, consent)


def _check(graph: Sequence[Row], known: set[str]) -> None:
    check_graph([links(row) for row in graph], known)


def _with_first_day(jobs: list[Row]) -> list[Row]:
    """Return the jobs with a first day, for jobs that read `today` and have none yet."""
    return [job | {"first_day": current_day()} for job in jobs]
