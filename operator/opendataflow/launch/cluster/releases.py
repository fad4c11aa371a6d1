"""Removes finalizers from the objects of committed runs (pods and SparkApplications), and deletes the objects later.

A release is one patch that removes our finalizer and sets the label `done`. A few workers release many objects
concurrently. A failed release is retried as long as this process lives; the next process finds the object, which has no
label. A released object stays for a minute: its name is a tombstone, so that a late create can't create it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from opendataflow import names
from opendataflow.core.kubernetes.run_identity import ClusterObject, Identified, claims_to_be
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.keys import key_of
from opendataflow.launch.cluster.answers import is_gone
from opendataflow.launch.cluster.api import PODS, Api, Resource
from opendataflow.launch.cluster.executors import Executors
from opendataflow.model.records.pod import ObservedPod, Orphan

WORKERS = 16
TOMBSTONE_SECONDS = 60.0
"""How long after its creation a pod has to exist, so that a late create can't create it again."""
RETRY_SECONDS = 1.0
LEAVE_SECONDS = 5.0
"""How long the end of the program waits for releases."""

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class Releasable(ClusterObject, Protocol):
    """The facts of an object that can be released; see `model.records.pod`."""

    @property
    def done(self) -> int | None: ...
    @property
    def created_at(self) -> float | None: ...
    @property
    def deleted_at(self) -> float | None: ...
    @property
    def gone(self) -> bool: ...


T = TypeVar("T", bound=Releasable)


async def free_pod(api: Api, pod: ObservedPod, labels: Mapping[str, str]) -> None:
    """Remove our finalizer from a pod, and set labels. Another pod of the same name is not changed."""
    patch = {"uid": pod.uid, "labels": dict(labels), "$deleteFromPrimitiveList/finalizers": [names.FINALIZER]}
    await api.patch_strategic(PODS, pod.namespace, pod.name, {"metadata": patch})


async def keep_pod(api: Api, pod: ObservedPod) -> ObservedPod:
    """Put our finalizer back on a pod, and return the pod. Another pod of the same name is not changed."""
    patch = {"uid": pod.uid, "finalizers": [names.FINALIZER]}
    await api.patch_strategic(PODS, pod.namespace, pod.name, {"metadata": patch})
    return replace(pod, finalizer=True)


class Releases(Generic[T]):
    """Releases the objects of one kind, for one engine.

    `free`: releases one object, with labels to set. `note`: shows
    a message to people. `clock`: seconds since the epoch.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        free: Callable[[Api, T, Mapping[str, str]], Awaitable[None]],
        *,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._resource = resource
        self._free = free
        self._note = note
        self._refused = False
        self._clock = clock
        self._waiting: asyncio.Queue[T] = asyncio.Queue()
        self._owned: dict[str, tuple[T, int | None]] = {}
        """By uid: objects that are released or will be, and the minute (since the epoch) of the release."""

    def begin(self, spawn: Spawn) -> None:
        """Start the workers."""
        for number in range(WORKERS):
            spawn(self._work(), f"release {number} of {self._resource.plural}")

    def add(self, pod: T, *, certain: bool = False) -> None:
        """Queue an object for its release.

        A deleted object vanishes with its release. So its release waits until the name is not needed as a tombstone,
        unless it is `certain` that no create of it may still arrive.
        """
        vanishes = pod.deleted_at is not None and pod.created_at is not None and not certain
        self._owned[pod.uid] = (pod, None)
        early = (pod.created_at or 0) + TOMBSTONE_SECONDS - self._clock() if vanishes else 0
        if early > 0:
            asyncio.get_running_loop().call_later(min(early, TOMBSTONE_SECONDS), self._waiting.put_nowait, pod)
        else:
            self._waiting.put_nowait(pod)

    def record_released(self, pod: T) -> None:
        """Record an object that an earlier process has released, so that it is swept."""
        self._owned[pod.uid] = (pod, pod.done)

    def take_over(self, pod: T) -> None:
        """Release an object that an earlier process has left behind, or sweep it if it is released."""
        if pod.done is None:
            self.add(pod)
        else:
            self.record_released(pod)

    def owns(self, pod: T) -> bool:
        """Return whether an object is released or will be, and forget it if it is gone."""
        if pod.gone:
            return self._owned.pop(pod.uid, None) is not None
        return pod.uid in self._owned

    async def finish(self) -> None:
        """Wait for releases that are under way, for at most `LEAVE_SECONDS`."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._waiting.join()
        except TimeoutError:
            pass

    async def sweep(self) -> None:
        """Delete the objects that were released before the previous minute began.

        Each is deleted by its uid: somebody may have copied its labels to another object. Raises no error: the next
        sweep repeats what failed.
        """
        before = self._minute() - 1
        old = [pod for pod, minute in self._owned.values() if minute is not None and minute < before]
        async with asyncio.TaskGroup() as group:
            for part in range(WORKERS):
                group.create_task(self._delete(old[part::WORKERS]))

    async def _delete(self, pods: Sequence[T]) -> None:
        for pod in pods:
            try:
                await self._api.delete(self._resource, pod.namespace, pod.name, uid=pod.uid)
            except ClusterUnreachable:
                return
            except ClusterRefused as error:
                if not is_gone(error):
                    continue
            self._owned.pop(pod.uid, None)

    async def _work(self) -> None:
        while True:
            pod = await self._waiting.get()
            try:
                if not await self._release(pod):
                    await asyncio.sleep(RETRY_SECONDS)
                    self._waiting.put_nowait(pod)
            finally:
                self._waiting.task_done()

    async def _release(self, pod: T) -> bool:
        """Release one object. Return whether it is done."""
        try:
            await self._free(self._api, pod, {names.LABEL_DONE: str(self._minute())})
        except ClusterUnreachable:
            return False
        except ClusterRefused as error:
            if error.code != 409 and not is_gone(error) and not self._refused:
                self._refused = True  # the others are refused for the same reason
                self._note(f"{self._resource.plural} of runs that have ended can't be released: {error}")
            if is_gone(error):
                self._owned.pop(pod.uid, None)
            return is_gone(error)
        if pod.uid in self._owned:  # it may have vanished with its release
            self._owned[pod.uid] = (pod, self._minute())
        return True

    def _minute(self) -> int:
        return int(self._clock()) // 60


class _Labelled(Releasable, Identified, Protocol):
    """An object that can be released, and names its run."""


L = TypeVar("L", bound=_Labelled)


def orphans_in(found: Iterable[L], released: Releases[L]) -> list[Orphan]:
    """Return the orphans among objects of runs that Postgres does not know. Sweep those that were released before.

    An object whose name does not fit its annotations is none: somebody else has created it.
    """
    orphans = []
    for seen in found:
        run = claims_to_be(seen)
        if run is None or seen.job is None or seen.data_id is None:
            continue
        if seen.done is not None:
            released.record_released(seen)
        else:
            orphans.append(Orphan(run, key_of(seen.namespace, seen.job), seen.data_id, seen.uid))
    return orphans


def pod_releases(api: Api, *, note: Callable[[str], None], clock: Callable[[], float]) -> Releases[ObservedPod]:
    """Return the releases of pods. Executors are deleted first: after a crash, the next process repeats both steps."""
    executors = Executors(api, note=note)

    async def free(api: Api, pod: ObservedPod, labels: Mapping[str, str]) -> None:
        if pod.executors and not await executors.delete(pod.namespace, pod.name):
            raise ClusterUnreachable(f"it is unknown whether the executors of pod {pod.name} are deleted")
        await free_pod(api, pod, labels)

    return Releases(api, PODS, free, note=note, clock=clock)
