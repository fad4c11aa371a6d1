"""Lets the objects of runs go that are committed, and deletes them once their names are not needed as tombstones any
more: pods, and SparkApplications.

A release is one patch: our finalizer off, the label `done` on. Many go at once through a few workers. What can't be
released now is tried again for as long as this process lives; the next process finds it by its missing label.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar

from opendataflow import names
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.launch.cluster.answers import is_not_there
from opendataflow.launch.cluster.api import PODS, Api, Resource
from opendataflow.launch.cluster.executors import Executors
from opendataflow.model.records.pod import PodSeen

WORKERS = 16
TOMBSTONE_SECONDS = 60.0
"""How long after its creation a pod has to be there, so that a create that is late does not make it again."""
AGAIN_SECONDS = 1.0
LEAVE_SECONDS = 5.0
"""How long the end of the program waits for releases that are under way."""

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class Releasable(Protocol):
    """What is known of an object that is let go. See `model.pod`."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def done(self) -> int | None: ...
    @property
    def created_at(self) -> float | None: ...
    @property
    def deleted_at(self) -> float | None: ...
    @property
    def gone(self) -> bool: ...


T = TypeVar("T", bound=Releasable)


async def free_pod(api: Api, pod: PodSeen, labels: Mapping[str, str]) -> None:
    """Take our finalizer off a pod, and off no other one of its name; put labels on."""
    patch = {"uid": pod.uid, "labels": dict(labels), "$deleteFromPrimitiveList/finalizers": [names.FINALIZER]}
    await api.patch_strategic(PODS, pod.namespace, pod.name, {"metadata": patch})


class Releases(Generic[T]):
    """The releases of one engine's objects of a kind. `ours`: the selector that finds them. `free`: does one.
    `note`: tells a person. `clock`: seconds since the epoch."""

    def __init__(  # what a launcher puts together
        self,
        api: Api,
        resource: Resource,
        ours: str,
        free: Callable[[Api, T, Mapping[str, str]], Awaitable[None]],
        *,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._resource = resource
        self._ours = ours
        self._free = free
        self._note = note
        self._refused = False
        self._clock = clock
        self._waiting: asyncio.Queue[T] = asyncio.Queue()
        self._swept: dict[str, int] = {}
        """Namespaces with released objects, and the last minute in which one of them was."""

    def begin(self, spawn: Spawn) -> None:
        """Start the workers."""
        for number in range(WORKERS):
            spawn(self._work(), f"release {number} of {self._resource.plural}")

    def add(self, pod: T, *, sure: bool = False) -> None:
        """Release one soon. One that was deleted vanishes by that, so it keeps its name as long as it has to, unless
        it is `sure` that no create of it is on its way."""
        vanishes = pod.deleted_at is not None and pod.created_at is not None and not sure
        early = (pod.created_at or 0) + TOMBSTONE_SECONDS - self._clock() if vanishes else 0
        if early > 0:
            asyncio.get_running_loop().call_later(min(early, TOMBSTONE_SECONDS), self._waiting.put_nowait, pod)
        else:
            self._waiting.put_nowait(pod)

    def seen(self, pod: T) -> None:
        """Take note of one that is released and will have to be swept."""
        if pod.done is not None and not pod.gone:
            self._swept[pod.namespace] = max(pod.done, self._swept.get(pod.namespace, 0))

    async def finish(self) -> None:
        """Wait a little for what is under way."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._waiting.join()
        except TimeoutError:
            pass

    async def sweep(self) -> None:
        """Delete what was released before the previous minute began, so for a minute at least, in every namespace.

        One request for each namespace, however many pods. Raises nothing: the next sweep does what is left.
        """
        minute = self._minute()
        old = f"{names.LABEL_DONE},{names.LABEL_DONE} notin ({minute},{minute - 1})"
        for namespace, last in list(self._swept.items()):
            try:
                await self._api.delete_collection(self._resource, namespace, f"{self._ours},{old}")
            except (ClusterUnreachable, ClusterRefused):
                continue
            if last < minute - 1 and self._swept.get(namespace) == last:
                del self._swept[namespace]

    async def _work(self) -> None:
        while True:
            pod = await self._waiting.get()
            try:
                if not await self._release(pod):
                    await asyncio.sleep(AGAIN_SECONDS)
                    self._waiting.put_nowait(pod)
            finally:
                self._waiting.task_done()

    async def _release(self, pod: T) -> bool:
        """Say whether it is done."""
        try:
            await self._free(self._api, pod, {names.LABEL_DONE: str(self._minute())})
        except ClusterUnreachable:
            return False
        except ClusterRefused as error:
            if error.code != 409 and not is_not_there(error) and not self._refused:
                self._refused = True  # the others are refused for the same reason
                self._note(f"{self._resource.plural} of runs that have ended can't be released: {error}")
            return is_not_there(error)
        self._swept[pod.namespace] = self._minute()
        return True

    def _minute(self) -> int:
        return int(self._clock()) // 60


def pod_releases(api: Api, ours: str, *, note: Callable[[str], None], clock: Callable[[], float]) -> Releases[PodSeen]:
    """The releases of pods. What one has started goes first: who comes next finds it unreleased, and does it again."""
    executors = Executors(api, note=note)

    async def free(api: Api, pod: PodSeen, labels: Mapping[str, str]) -> None:
        if pod.executors and not await executors.deleted(pod.namespace, pod.name):
            raise ClusterUnreachable(f"nobody knows whether the executors of pod {pod.name} are deleted")
        await free_pod(api, pod, labels)

    return Releases(api, PODS, ours, free, note=note, clock=clock)
