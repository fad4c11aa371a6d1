"""Deletes the executors of Spark drivers whose runs are committed: one request for all that come within a moment.

They are owned by their driver's pod and would go with it, a minute or two later; and a driver that was killed leaves
executors that still compute. A server that refuses is told of once: executors go with their driver's pod then.
"""

import asyncio
from collections.abc import Callable

from opendataflow import names
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.launch.cluster.api import PODS, Api, selector

GATHER_SECONDS = 0.1


class Executors:
    """The executors of one engine's drivers. `note`: tells a person."""

    def __init__(self, api: Api, *, note: Callable[[str], None]) -> None:
        self._api = api
        self._note = note
        self._refused = False
        self._gathered: dict[str, dict[str, asyncio.Future[bool]]] = {}

    async def deleted(self, namespace: str, driver: str) -> bool:
        """Delete the executors of a driver, together with those of others. False: nobody knows; ask again."""
        batch = self._gathered.setdefault(namespace, {})
        first = not batch
        future = batch.setdefault(driver, asyncio.get_running_loop().create_future())
        if first:
            await asyncio.sleep(GATHER_SECONDS)
            await self._delete(namespace, self._gathered.pop(namespace))
        return await future

    async def _delete(self, namespace: str, batch: dict[str, "asyncio.Future[bool]"]) -> None:
        done = await self._answer(namespace, f"{names.LABEL_EXECUTOR_OF} in ({','.join(batch)})")
        for future in batch.values():
            future.set_result(done)

    async def _answer(self, namespace: str, chosen: str) -> bool:
        try:
            await self._api.delete_collection(PODS, namespace, selector({}, [chosen]))
        except ClusterUnreachable:
            return False
        except ClusterRefused as error:
            if not self._refused:
                self._refused = True
                self._note(f"executors of runs that have ended can't be deleted: {error}")
        return True
