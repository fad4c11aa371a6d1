"""Deletes the executors of Spark drivers whose runs are committed. One request deletes those of several drivers.

The pod of the driver owns its executors, so they would be deleted with it, but a minute or two later. The executors of
a killed driver still compute until then. If the API server refuses, one message reports it, and the executors are
deleted with the pod of their driver.
"""

import asyncio
from collections.abc import Callable

from opendataflow import names
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.launch.cluster.api import PODS, Api, selector

GATHER_SECONDS = 0.1


class Executors:
    """The executors of one engine's drivers. `note`: shows a message to people."""

    def __init__(self, api: Api, *, note: Callable[[str], None]) -> None:
        self._api = api
        self._note = note
        self._refused = False
        self._batches: dict[str, dict[str, asyncio.Future[bool]]] = {}

    async def delete(self, namespace: str, driver: str) -> bool:
        """Delete the executors of a driver, in one request with those of others. Return False if the result is unknown.

        The caller has to call again then.
        """
        batch = self._batches.setdefault(namespace, {})
        first = not batch
        future = batch.setdefault(driver, asyncio.get_running_loop().create_future())
        if first:
            await asyncio.sleep(GATHER_SECONDS)
            await self._delete(namespace, self._batches.pop(namespace))
        return await future

    async def _delete(self, namespace: str, batch: dict[str, "asyncio.Future[bool]"]) -> None:
        done = await self._delete_collection(namespace, f"{names.LABEL_EXECUTOR_OF} in ({','.join(batch)})")
        for future in batch.values():
            future.set_result(done)

    async def _delete_collection(self, namespace: str, chosen: str) -> bool:
        try:
            await self._api.delete_collection(PODS, namespace, selector({}, [chosen]))
        except ClusterUnreachable:
            return False
        except ClusterRefused as error:
            if not self._refused:
                self._refused = True
                self._note(f"executors of runs that have ended can't be deleted: {error}")
        return True
