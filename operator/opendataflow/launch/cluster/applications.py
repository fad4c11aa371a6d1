"""The SparkApplications of runs: creates, watches and releases them. Only the launcher uses this module.

They are optional. At the start, each namespace is checked once for applications of an earlier process. A watch starts
then, or with the first application that is created. An application has our finalizer until the outcome of its run is
committed. Its driver, which Spark creates, has no finalizer, so only the application still shows how the run ended.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.rights import APPLICATIONS as RIGHTS
from opendataflow.core.kubernetes.run_identity import Match, match_object
from opendataflow.errors import ClusterRefused, ClusterUnreachable, NotCreatable
from opendataflow.launch.cluster.api import APPLICATIONS, Api, selector
from opendataflow.launch.cluster.creating import create_or_find
from opendataflow.launch.cluster.namespace_view import NamespaceView
from opendataflow.launch.cluster.releases import Releases, Spawn, orphans_in
from opendataflow.launch.cluster.rights import missing_rights
from opendataflow.launch.cluster.seen import parse_application
from opendataflow.launch.cluster.sightings import Foreigners, LostRuns, Sightings
from opendataflow.launch.cluster.watch import Change, ChangeKind, Follower
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import Orphan, PodOrder, RunIdentity, StoredRun

RETRY_SECONDS = 1.0
_LIST_RIGHTS = [right for right in RIGHTS if right.verb in ("list", "watch")]
"""The rights that are checked first, so that an operator without this option gets no refusals."""
CHANGED_AT_MOST = 5
"""How often a release is tried, if another client changes the application at the same moment."""
_NO_KIND = (
    "this cluster has no SparkApplications (sparkoperator.k8s.io/v1beta2): install the Kubeflow Spark operator, or "
    "write another runtime"
)


class Applications:
    """The SparkApplications of one engine. `changed`: called with the run whose application has changed.

    `spawn`: starts a coroutine in the background. The other arguments are those of the launcher.
    """

    def __init__(  # noqa: PLR0913  # called once, by the launcher
        self,
        api: Api,
        engine: str,
        changed: Callable[[int], None],
        spawn: Spawn,
        foreigners: Foreigners,
        lost_runs: LostRuns,
        *,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._engine = engine
        self._changed = changed
        self._spawn = spawn
        self._lost_runs = lost_runs
        self._note = note
        self._ours = selector({names.LABEL_APPLICATION: engine})
        self._releases = Releases(api, APPLICATIONS, free_application, note=note, clock=clock)
        self._sightings: Sightings[ObservedApplication] = Sightings(APPLICATIONS, self._match, foreigners)
        self._seen: dict[int, ObservedApplication] = {}
        """The applications that have matched a run."""
        self._views: dict[str | None, NamespaceView] = {}

    def begin(self) -> None:
        """Start the workers that release applications."""
        self._releases.begin(self._spawn)

    def open_namespace(self, namespace: str | None) -> None:
        """Check a namespace (None: all) once for applications of an earlier process. `synced` waits for the result."""
        view = self._views[namespace] = NamespaceView(namespace)
        self._spawn(self._find_existing(view), "look for SparkApplications")

    async def synced(self, namespace: str | None) -> None:
        """Wait until all applications of an open namespace have been seen once."""
        await self._views[namespace].synced.wait()

    def has_synced(self, namespace: str | None) -> bool:
        """Return whether all applications of a namespace have been seen once."""
        return namespace in self._views and self._views[namespace].synced.is_set()

    def get(self, run: int) -> ObservedApplication | None:
        """Return the facts of a run's application; None if it has none."""
        return self._seen.get(run)

    def unknown_runs(self) -> set[int]:
        """Return the runs, by the annotations of applications, that are not expected."""
        return self._sightings.unknown_runs()

    def orphans(self, asked: Collection[int], stored: Mapping[int, StoredRun]) -> list[Orphan]:
        """Return the applications of runs that Postgres does not know. Sweep those that are released."""
        return orphans_in(self._sightings.lost(asked, stored), self._releases)

    def expect(self, run: RunIdentity) -> None:
        """Recognize the application of a run from now on, also one that was seen before."""
        self._sightings.expect(run)
        seen = self._sightings.open_at(run.namespace, run.name)
        if seen is not None:
            self._see(seen)

    async def protect(self, run: int) -> None:
        """Put our finalizer back on the application of a run, which then matches."""
        while (seen := self._sightings.unprotected(run)) is not None:
            try:
                self._see(await keep_application(self._api, seen))
            except ClusterUnreachable:
                await asyncio.sleep(RETRY_SECONDS)
            except ClusterRefused:  # it is being deleted
                return

    def settle(self, asked: Collection[int], stored: Mapping[int, StoredRun]) -> None:
        """Release the applications of runs that have ended in Postgres; count foreign applications."""
        for seen in self._sightings.settle(asked, stored, by_uid=False):
            self._releases.take_over(seen)

    async def create(self, order: PodOrder) -> None:
        """Create the application of a run, or find the existing one. Raises the errors of `create_or_find`."""
        view = self._views.get(order.namespace) or self._views.get(None)
        try:
            seen = await create_or_find(
                self._api, APPLICATIONS, order, parse_application, self._match, keep_application
            )
        except NotCreatable as error:
            with suppress(ClusterUnreachable):
                if await self._exist(order.namespace) is None:
                    raise NotCreatable(_NO_KIND) from error
            raise
        self._sightings.pin(order.run, seen)
        if order.run not in self._seen or self._seen[order.run].uid != seen.uid:
            self._seen[order.run] = seen
        if view is not None:
            if view.listed is not None:  # a list that began before does not contain it
                view.listed.add(seen.uid)
            self._ensure_followed(view)

    def mark_gone(self, run: int) -> None:
        """Record that the application of a run was deleted."""
        if run in self._seen:
            self._seen[run] = replace(self._seen[run], gone=True)
            self._changed(run)

    def release(self, run: int) -> None:
        """Release the application of a run whose outcome is committed."""
        self._sightings.forget(run)
        seen = self._seen.pop(run, None)
        if seen is not None and not seen.gone:
            self._releases.add(seen)

    async def sweep(self) -> None:
        """Delete applications that were released a minute or two ago, and find foreign ones."""
        for seen in self._sightings.open_of_expected_runs():
            self._see(seen)
        await self._releases.sweep()

    async def finish(self) -> None:
        """Wait for releases that are under way, for a limited time."""
        await self._releases.finish()

    async def _find_existing(self, view: NamespaceView) -> None:
        while True:
            try:
                found = await self._exist(view.namespace)
            except ClusterUnreachable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found:
                self._ensure_followed(view)
            else:
                view.synced.set()
            return

    async def _exist(self, namespace: str | None) -> bool | None:
        """Return whether this engine has applications; None if the cluster lacks the kind, False without rights."""
        if await missing_rights(self._api, namespace, _LIST_RIGHTS):
            return False
        try:
            async with aclosing(self._api.pages(APPLICATIONS, namespace, selector=self._ours, size=1)) as pages:
                items, _ = await anext(pages)
        except ClusterRefused as error:
            return None if error.code == 404 else False
        return bool(items)

    def _ensure_followed(self, view: NamespaceView) -> None:
        if not view.followed:
            view.followed = True
            self._spawn(self._follow(view), "watch of SparkApplications")

    async def _follow(self, view: NamespaceView) -> None:
        follower = Follower(
            self._api, APPLICATIONS, parse_application, note=self._note, namespace=view.namespace, selector=self._ours
        )
        async for change in follower.changes():
            self._apply(view, change)

    def _apply(self, view: NamespaceView, change: Change[ObservedApplication]) -> None:
        seen = change.object
        if change.kind is ChangeKind.LISTING:
            view.listed = set()
        elif change.kind is ChangeKind.SYNCED:
            listed, view.listed = view.listed or set(), None
            self._sightings.forget_unlisted(listed, view.covers)
            for run, each in list(self._seen.items()):
                if each.uid not in listed and view.covers(each.namespace):
                    self.mark_gone(run)
            view.synced.set()
        elif seen is not None:
            if view.listed is not None:
                view.listed.add(seen.uid)
            self._see(replace(seen, gone=True) if change.kind is ChangeKind.DELETED else seen)

    def _see(self, seen: ObservedApplication) -> None:
        """Handle a state of an application with our label, whoever has created it."""
        if self._releases.owns(seen):
            return
        seen = self._lost_runs.renumbered(seen)
        run = self._sightings.take(seen)
        if run is not None:
            self._seen[run] = seen
            self._changed(run)

    def _match(self, seen: ObservedApplication, run: RunIdentity) -> Match:
        return match_object(seen, run, self._engine)


def is_application(order: PodOrder) -> bool:
    """Return whether an order is for a SparkApplication."""
    return bool(order.manifest["kind"] == "SparkApplication")


async def free_application(api: Api, seen: ObservedApplication, labels: Mapping[str, str]) -> None:
    """Remove our finalizer from an application, and set labels. Another application of the same name is not changed."""
    await _change(api, seen, labels, [])


async def keep_application(api: Api, seen: ObservedApplication) -> ObservedApplication:
    """Put our finalizer back on an application, and return it. Another application of its name is not changed."""
    if not await _change(api, seen, {}, [names.FINALIZER]):
        raise ClusterRefused(f"another SparkApplication has the name {seen.namespace}/{seen.name}", 409, "Conflict")
    return replace(seen, finalizer=True)


async def _change(api: Api, seen: ObservedApplication, labels: Mapping[str, str], own: Sequence[str]) -> bool:
    """Replace our finalizers on an application, and set labels. Return False if another application has its name.

    A custom resource has no patch that changes one list item. So the patch contains the resource version, and is
    retried after a conflict.
    """
    for again in reversed(range(CHANGED_AT_MOST)):
        metadata: dict[str, Any] = (await api.get(APPLICATIONS, seen.namespace, seen.name))["metadata"]
        if metadata["uid"] != seen.uid:
            return False
        others = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != names.FINALIZER]
        finalizers = [*others, *own]
        patch = {"resourceVersion": metadata["resourceVersion"], "labels": dict(labels), "finalizers": finalizers}
        try:
            await api.patch_merge(APPLICATIONS, seen.namespace, seen.name, {"metadata": patch})
        except ClusterRefused as error:
            if error.code != 409 or not again:
                raise
        else:
            return True
    return False
