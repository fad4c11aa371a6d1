"""The bare ceiling: what the operator asks of the API server for its runs, sent by a plain loop, without Postgres.

    python -m tests.bench.operator.bare KUBECONFIG MANIFESTS PARALLELISM

MANIFESTS is a file with a list of pods. Each is created, watched to its end and released; those released are deleted
together now and then. In a process of its own, as the operator is. Prints {"seconds", "cpu"} as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendataflow import names
from opendataflow.control.operator import SWEEP_SECONDS
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import PODS, Api, selector
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.launch.cluster.watch import Follower

Manifest = Mapping[str, Any]


class Loop:
    """Works off manifests of one namespace."""

    def __init__(self, api: Api, manifests: Sequence[Manifest]) -> None:
        self._api = api
        self._namespace: str = manifests[0]["metadata"]["namespace"]
        self._engine = {names.LABEL_ENGINE: manifests[0]["metadata"]["labels"][names.LABEL_ENGINE]}
        self._todo = iter(manifests)
        self._ends: dict[int, asyncio.Event] = {}
        self._watches = asyncio.Event()

    async def run(self, parallelism: int) -> float:
        """Return how many seconds it took."""
        async with asyncio.TaskGroup() as beside:
            loops = [beside.create_task(self._watch()), beside.create_task(self._sweep())]
            await self._watches.wait()
            begun = time.monotonic()
            async with asyncio.TaskGroup() as self._tasks:
                for _ in range(parallelism):
                    self._tasks.create_task(self._slot())
            seconds = time.monotonic() - begun
            for loop in loops:
                loop.cancel()
        return seconds

    async def _slot(self) -> None:
        for manifest in self._todo:
            run = int(manifest["metadata"]["labels"][names.LABEL_RUN])
            ended = self._ends[run] = asyncio.Event()
            created = await self._api.create(PODS, self._namespace, manifest)
            await ended.wait()
            self._tasks.create_task(self._release(created["metadata"]["name"], created["metadata"]["uid"]))

    async def _release(self, name: str, uid: str) -> None:
        done = {names.LABEL_DONE: str(int(time.time()) // 60)}
        patch = {"uid": uid, "labels": done, "$deleteFromPrimitiveList/finalizers": [names.FINALIZER]}
        await self._api.patch_strategic(PODS, self._namespace, name, {"metadata": patch})

    async def _watch(self) -> None:
        follower = Follower(
            self._api, PODS, parse_pod, note=print, namespace=self._namespace, selector=selector(self._engine)
        )
        with suppress(asyncio.CancelledError):
            async for change in follower.changes():
                if change.object is None:
                    self._watches.set()
                elif change.object.ended is not None and change.object.run in self._ends:
                    self._ends[change.object.run].set()

    async def _sweep(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(SWEEP_SECONDS)
                minute = int(time.time()) // 60
                old = f"{names.LABEL_DONE},{names.LABEL_DONE} notin ({minute},{minute - 1})"
                await self._api.delete_collection(PODS, self._namespace, selector(self._engine, [old]))


async def _main(kubeconfig: Path, manifests: list[Manifest], parallelism: int) -> None:
    async with Api(from_kubeconfig([kubeconfig])) as api:
        before = resource.getrusage(resource.RUSAGE_SELF)
        seconds = await Loop(api, manifests).run(parallelism)
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])))
