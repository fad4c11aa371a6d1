"""Declares many chunks of a data set in one transaction, and reads the chunks of a data set."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from opendataflow.errors import Refused
from opendataflow.model.records.plan import DataSetChange
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store

Existing = Mapping[str, Mapping[str, Any] | None]
"""Data id -> bounds of existing chunks."""


async def load_chunks(  # noqa: PLR0913  # the arguments of the SQL function
    store: Store,
    dataset: str,
    chunks: Sequence[tuple[str, Mapping[str, Any] | None]],
    actor: str,
    reason: str | None,
    *,
    publish: bool,
    dry_run: bool = False,
    why_not: Callable[[Existing], str | None] | None = None,
    allow_overlap: bool = False,
) -> Row:
    """Declare chunks (id, bounds) and, with `publish`, publish them. Return {new, known, published, refused, overlaps}.

    Nothing is changed if a chunk is refused, if bounds overlap and `allow_overlap` is false, or with `dry_run`.
    `why_not`: called with the existing chunks while no other transaction can add any. If it returns a sentence, Refused
    is raised with this sentence. `overlaps`: a DataSetChange, or None if bounds were not compared.
    """
    ids = [data_id for data_id, _ in chunks]
    bounds = [None if one is None else Jsonb(one) for _, one in chunks]

    async def attempt(connection: AsyncConnection[Row]) -> Row:
        if why_not is not None:
            query = "SELECT opendataflow.lock_datasets(opendataflow.reachable_datasets(ARRAY[%s]), true)"
            await connection.execute(query, (dataset,))
            query = "SELECT * FROM opendataflow.chunk WHERE dataset = %s ORDER BY opendataflow.sort_key(data_id)"
            found = await (await connection.execute(query, (dataset,))).fetchall()
            if (conflict := why_not({row["data_id"]: row["bounds"] for row in found})) is not None:
                raise Refused(conflict)
        overlaps = None
        if not allow_overlap:
            query = "SELECT opendataflow.overlaps_of_list(%s, %s, %s::jsonb[]) AS found"
            row = await (await connection.execute(query, (dataset, ids, bounds))).fetchone()
            if row is not None and row["found"] is not None:
                overlaps = DataSetChange.of_row({"dataset": dataset, **row["found"]})
        query = "SELECT opendataflow.load_chunks(%s, %s, %s::jsonb[], %s, %s, %s) AS loaded"
        row = await (await connection.execute(query, (dataset, ids, bounds, publish, actor, reason))).fetchone()
        return {**(row["loaded"] if row else {}), "overlaps": overlaps}

    return await store.transaction(attempt, _is_refused if not dry_run else lambda _: True)


def _is_refused(loaded: Row) -> bool:
    return bool(loaded["refused"]) or bool(loaded["overlaps"] and loaded["overlaps"].overlapping)


async def dataset_row(store: Store, dataset: str) -> Row | None:
    """Return the row of a data set, with the ciphertext of its password, or None."""
    found = await store.rows("SELECT * FROM opendataflow.dataset WHERE id = %s", dataset)
    return found[0] if found else None


async def chunk_rows(store: Store, dataset: str) -> Sequence[Row]:
    """Return the chunks of a data set in natural order: data_id, bounds, status."""
    query = (
        "SELECT data_id, bounds, status FROM opendataflow.chunk WHERE dataset = %s "
        "ORDER BY opendataflow.sort_key(data_id)"
    )
    return await store.rows(query, dataset)
