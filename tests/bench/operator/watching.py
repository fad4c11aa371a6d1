"""Watches the pods of a namespace from outside, and notes when what was seen of each, on this machine's clock."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, Self

from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import PODS, Api
from opendataflow.launch.cluster.watch import ChangeKind, Follower
from opendataflow.names import MAIN_CONTAINER


class Watching:
    """Use it in a `with`. By name of the pod, in seconds since the epoch: `created`, `started`, `ended`."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.created: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._loop = asyncio.new_event_loop()
        self._synced = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._follow(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._synced.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(self._loop)])
        self._thread.join()

    @property
    def alive(self) -> int:
        """Pods that run now, as far as was seen."""
        return len(self.started) - len(self.ended)

    async def _follow(self) -> None:
        try:
            async with Api(from_kubeconfig([self._kubeconfig])) as api:
                follower = Follower(api, PODS, _seen, note=print, namespace=self._namespace)
                async for change in follower.changes():
                    if change.kind is ChangeKind.SYNCED:
                        self._synced.set()
                    elif change.object is not None:
                        self._note(*change.object)
        except asyncio.CancelledError:
            return

    def _note(self, name: str, state: str | None) -> None:
        now = time.time()
        self.created.setdefault(name, now)
        if state in ("running", "terminated"):
            self.started.setdefault(name, now)
        if state == "terminated":
            self.ended.setdefault(name, now)


def _seen(pod: dict[str, Any]) -> tuple[str, str | None]:
    """The name of a pod and the state of its container."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    states = [next(iter(each["state"]), None) for each in statuses if each["name"] == MAIN_CONTAINER]
    return pod["metadata"]["name"], states[0] if states else None
