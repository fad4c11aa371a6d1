"""Declares data sets and jobs in the store, after a check that all of them fit together.

A declaration of many chunks is committed first. Its chunks and tasks follow in batches, which any engine continues.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from opendataflow.core.runs.declared import links
from opendataflow.core.runs.graph import check_graph
from opendataflow.engine.database_retries import concerns_one_request
from opendataflow.engine.days import current_day
from opendataflow.errors import DataflowError
from opendataflow.model.records.plan import NO_CONSENT, NO_LIMITS, Applied, Batch, Consent, NamespaceLimits, Plan
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def declare(
    store: Store,
    datasets: list[Row],
    jobs: list[Row],
    actor: str,
    consent: Consent = NO_CONSENT,
    limits: NamespaceLimits = NO_LIMITS,
) -> Applied:
    """Apply rows of core/runs/declared.py in one transaction. If there are many chunks, `batches` writes them later.

    Raises UnknownThing if a data set is missing, InvalidInput if the jobs do not fit together, IdTaken, NotShared,
    LimitReached, and PlanRefused if finished tasks are affected and the consent does not allow that.
    """
    return await store.apply(datasets, _with_first_day(jobs), actor, _check, consent, limits)


async def batches(store: Store, note: Callable[[str], None]) -> AsyncIterator[Batch]:
    """Write the declarations that are under way, batch by batch, whoever began them, until none is left.

    Namespaces take turns. The failure of one is passed to `note`, and the others continue.
    """
    namespace, failed = "", set[str]()
    while True:
        try:
            batch = await store.declare_next(namespace)
        except DataflowError as error:
            if not concerns_one_request(error):
                raise
            namespace = await store.next_declaring(namespace)
            if namespace in failed:
                return
            failed.add(namespace)
            note(f"chunks in namespace {namespace or 'of files'} can't be declared: {error}")
            continue
        if batch is None:
            return
        namespace = batch.namespace
        failed.discard(namespace)
        yield batch


async def plan(store: Store, datasets: list[Row], jobs: list[Row], consent: Consent = NO_CONSENT) -> Plan:
    """Return the plan of a declaration, and change nothing. Raises the errors of `declare`, except PlanRefused."""
    return await store.plan(datasets, _with_first_day(jobs), _check, consent)


def _check(graph: Sequence[Row], known: set[str]) -> None:
    check_graph([links(row) for row in graph], known)


def _with_first_day(jobs: list[Row]) -> list[Row]:
    """Return the jobs with a first day, for jobs that read `today` and have none yet."""
    return [job | {"first_day": current_day()} for job in jobs]
