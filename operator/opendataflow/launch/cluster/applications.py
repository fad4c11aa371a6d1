"""The SparkApplications of the runs that are made as such: created, followed, let go. Only the launcher uses it.

They are an option: a namespace is asked once, at the beginning, whether an earlier process has left any there; they are
followed from then on, or from the first that is created. An application keeps our finalizer until the outcome of its
run is committed, because its driver, which Spark creates, has none: what became of it stands in the application.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.rights import APPLICATIONS as RIGHTS
from opendataflow.errors import ClusterRefused, ClusterUnreachable, NotCreatable
from opendataflow.launch.cluster.api import APPLICATIONS, Api, selector
from opendataflow.launch.cluster.creating import created
from opendataflow.launch.cluster.releases import Releases, Spawn
from opendataflow.launch.cluster.rights import missing_rights
from opendataflow.launch.cluster.seen import application_seen
from opendataflow.launch.cluster.watch import Change, Follower, Happening
from opendataflow.model.records.application import ApplicationSeen
from opendataflow.model.records.pod import PodOrder

LOOK_AGAIN_SECONDS = 1.0
_LOOK = [right for right in RIGHTS if right.verb in ("list", "watch")]
"""Are asked for first: an operator without this option should not have to be refused."""
CHANGED_AT_MOST = 5
"""How often somebody else may change an application between our look at it and our change."""
_NO_KIND = (
    "this cluster has no SparkApplications (sparkoperator.k8s.io/v1beta2): install the Kubeflow Spark operator, or "
    "write another runtime"
)


@dataclass
class _View:
    """What is seen of one namespace, or of all (None). `listed`: runs of the list that is under way."""

    namespace: str | None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    listed: set[int] | None = None
    followed: bool = False


class Applications:
    """Those of one engine. `changed`: is told which run's application has changed. `spawn`: starts a coroutine. The
    rest: as for the launcher."""

    def __init__(
        self,
        api: Api,
        engine: str,
        changed: Callable[[int], None],
        spawn: Spawn,
        *,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._engine = engine
        self._changed = changed
        self._spawn = spawn
        self._note = note
        self._ours = selector({names.LABEL_APPLICATION: engine})
        self._releases = Releases(api, APPLICATIONS, self._ours, free_application, note=note, clock=clock)
        self._seen: dict[int, ApplicationSeen] = {}
        self._views: dict[str | None, _View] = {}

    def begin(self) -> None:
        """Begin to release."""
        self._releases.begin(self._spawn)

    def open(self, namespace: str | None) -> None:
        """Look, once, for what an earlier process has left in a namespace, None for all; `synced` tells when all of it
        has been seen."""
        view = self._views[namespace] = _View(namespace)
        self._spawn(self._look(view), "look for SparkApplications")

    async def synced(self, namespace: str | None) -> None:
        """Wait until all that are in a namespace that was opened have been seen once."""
        await self._views[namespace].synced.wait()

    def get(self, run: int) -> ApplicationSeen | None:
        """What is known of a run's application; None where it has none."""
        return self._seen.get(run)

    def runs(self) -> tuple[int, ...]:
        """The runs whose applications are there."""
        return tuple(run for run, seen in self._seen.items() if not seen.gone)

    async def create(self, order: PodOrder) -> None:
        """Create a run's application, or find it, as `creating.created` says."""
        if order.run in self._seen:
            return
        view = self._views.get(order.namespace) or self._views.get(None)
        try:
            seen = await created(self._api, APPLICATIONS, order, application_seen, self._engine)
        except NotCreatable as error:
            with suppress(ClusterUnreachable):
                if await self._any(order.namespace) is None:
                    raise NotCreatable(_NO_KIND) from error
            raise
        self._seen.setdefault(order.run, seen)
        if view is not None:
            if view.listed is not None:  # a list that began before can't have it
                view.listed.add(order.run)
            self._follow_those_of(view)

    def gone(self, run: int) -> None:
        """A run's application is there no more."""
        if run in self._seen:
            self._seen[run] = replace(self._seen[run], gone=True)
            self._changed(run)

    def let_go(self, run: int) -> None:
        """Release the application of a run whose outcome is committed."""
        seen = self._seen.pop(run, None)
        if seen is not None and not seen.gone:
            self._releases.add(seen)

    async def sweep(self) -> None:
        """Delete those that were released a minute or two ago."""
        await self._releases.sweep()

    async def finish(self) -> None:
        """Wait a little for releases that are under way."""
        await self._releases.finish()

    async def _look(self, view: _View) -> None:
        while True:
            try:
                found = await self._any(view.namespace)
            except ClusterUnreachable:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            if found:
                self._follow_those_of(view)
            else:
                view.synced.set()
            return

    async def _any(self, namespace: str | None) -> bool | None:
        """Whether there are any of ours; None where the cluster has no such kind. Not allowed to look: none."""
        if await missing_rights(self._api, namespace, _LOOK):
            return False
        try:
            async with aclosing(self._api.pages(APPLICATIONS, namespace, selector=self._ours, size=1)) as pages:
                items, _ = await anext(pages)
        except ClusterRefused as error:
            return None if error.code == 404 else False
        return bool(items)

    def _follow_those_of(self, view: _View) -> None:
        if not view.followed:
            view.followed = True
            self._spawn(self._follow(view), "watch of SparkApplications")

    async def _follow(self, view: _View) -> None:
        follower = Follower(
            self._api, APPLICATIONS, application_seen, note=self._note, namespace=view.namespace, selector=self._ours
        )
        async for change in follower.changes():
            self._take(view, change)

    def _take(self, view: _View, change: Change[ApplicationSeen]) -> None:
        seen = change.what
        if change.happening is Happening.LISTING:
            view.listed = set()
        elif change.happening is Happening.SYNCED:
            listed, view.listed = view.listed or set(), None
            here = [run for run, each in self._seen.items() if view.namespace in (None, each.namespace)]
            for run in here:
                if run not in listed:
                    self.gone(run)
            view.synced.set()
        elif seen is not None and seen.run is not None:
            if view.listed is not None:
                view.listed.add(seen.run)
            self._remember(seen.run, seen, gone=change.happening is Happening.DELETED)

    def _remember(self, run: int, seen: ApplicationSeen, *, gone: bool) -> None:
        known = self._seen.get(run)
        if seen.done is not None and known is None:
            self._releases.seen(seen)
        elif known is not None and known.uid != seen.uid:
            if not gone and known.name == seen.name:
                self.gone(run)  # another one has the name
        elif not gone or known is not None:
            self._seen[run] = replace(seen, gone=gone)
            self._changed(run)


def is_application(order: PodOrder) -> bool:
    """Whether an order is for a SparkApplication."""
    return bool(order.manifest["kind"] == "SparkApplication")


async def free_application(api: Api, seen: ApplicationSeen, labels: Mapping[str, str]) -> None:
    """Take our finalizer off an application, and off no other one of its name; put labels on.

    A custom resource knows no removal from a list, so this is done to what nobody has changed meanwhile.
    """
    for again in reversed(range(CHANGED_AT_MOST)):
        metadata: dict[str, Any] = (await api.get(APPLICATIONS, seen.namespace, seen.name))["metadata"]
        if metadata["uid"] != seen.uid:
            return
        kept = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != names.FINALIZER]
        patch = {"resourceVersion": metadata["resourceVersion"], "labels": dict(labels), "finalizers": kept}
        try:
            await api.patch_merge(APPLICATIONS, seen.namespace, seen.name, {"metadata": patch})
        except ClusterRefused as error:
            if error.code != 409 or not again:
                raise
        else:
            return
