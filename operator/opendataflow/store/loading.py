"""Declares many chunks of a data set in one transaction, from a list or a plan."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from opendataflow.errors import Refused
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store

Existing = Mapping[str, Mapping[str, Any] | None]
"""The bounds of chunks by their ids."""


async def load_chunks(  # noqa: PLR0913  # what the function in the database takes
    store: Store,
    dataset: str,
    chunks: Sequence[tuple[str, Mapping[str, Any] | None]],
    actor: str,
    reason: str | None,
    *,
    publish: bool,
    dry_run: bool = False,
    why_not: Callable[[Existing], str | None] | None = None,
) -> Row:
    """Declare chunks (id, bounds), and publish them; {new, known, published, refused}. Where one is refused, or where
    `dry_run`, nothing is changed.

    `why_not` is asked about the chunks that there are, while nobody else can add any: Refused with what it says.
    """

    async def attempt(connection: AsyncConnection[Row]) -> Row:
        if why_not is not None:
            query = "SELECT opendataflow.lock_datasets(opendataflow.reachable_datasets(ARRAY[%s]), true)"
            await connection.execute(query, (dataset,))
            query = "SELECT * FROM opendataflow.chunk WHERE dataset = %s ORDER BY opendataflow.sort_key(data_id)"
            found = await (await connection.execute(query, (dataset,))).fetchall()
            if (reason_not := why_not({row["data_id"]: row["bounds"] for row in found})) is not None:
                raise Refused(reason_not)
        query = "SELECT opendataflow.load_chunks(%s, %s, %s::jsonb[], %s, %s, %s) AS loaded"
        ids = [data_id for data_id, _ in chunks]
        bounds = [None if one is None else Jsonb(one) for _, one in chunks]
        row = await (await connection.execute(query, (dataset, ids, bounds, publish, actor, reason))).fetchone()
        loaded: Row = row["loaded"] if row else {}
        return loaded

    return await store.transaction(attempt, lambda loaded: dry_run or bool(loaded["refused"]))


async def dataset_row(store: Store, dataset: str) -> Row | None:
    """What is remembered of a data set, its ciphertext too; None where there is none."""
    found = await store.rows("SELECT * FROM opendataflow.dataset WHERE id = %s", dataset)
    return found[0] if found else None


async def chunk_rows(store: Store, dataset: str) -> Sequence[Row]:
    """The chunks of a data set in their order: data_id, bounds, status."""
    query = (
        "SELECT data_id, bounds, status FROM opendataflow.chunk WHERE dataset = %s "
        "ORDER BY opendataflow.sort_key(data_id)"
    )
    return await store.rows(query, dataset)
