"""Takes in what is seen of the resources, from the watch and from lists, and puts what has changed before the
reconciler.

What is older than what is known already is left alone: a list and a watch may overtake each other.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

from opendataflow.control.resources.bodies import KINDS, PLURALS, entry_of, key_of
from opendataflow.control.resources.catalog import Catalog, Entry
from opendataflow.control.resources.reconcile import Reconciler
from opendataflow.core.kubernetes.definitions import not_there
from opendataflow.errors import ClusterRefused
from opendataflow.launch.cluster.api import Api, custom


class Intake:
    """Fills the catalog. `visible`: says which namespaces may be looked at; empty for all, None for nothing."""

    def __init__(self, catalog: Catalog, reconciler: Reconciler, visible: Callable[[], Collection[str] | None]) -> None:
        self._catalog = catalog
        self._reconciler = reconciler
        self._visible = visible

    def seen(self, kind: str, body: Mapping[str, Any], gone: bool) -> None:
        """A resource is as it is told, or gone."""
        known = self._catalog.get(key_of(kind, body))
        metadata = body.get("metadata") or {}
        uid, generation = metadata.get("uid"), metadata.get("generation", 0)
        if gone or metadata.get("deletionTimestamp"):
            if known is not None and known.uid == uid:
                self._remove(known)
        elif known is not None and known.uid == uid and known.generation >= generation:
            if known.generation == generation:
                known.status = body.get("status") or {}
        else:
            if known is not None and known.uid != uid:
                self._remove(known)
            self._put(kind, body)

    async def list_all(self, api: Api) -> None:
        """Look at everything that may be seen, and notice what is not there any more.

        ClusterRefused with code 404 where the cluster does not know a kind.
        """
        visible = self._visible()
        if visible is None:
            return
        for kind in KINDS:
            before = [entry for entry in self._catalog if entry.key.kind == kind]
            found: set[str] = set()
            for namespace in sorted(visible) or (None,):
                async for body in _all(api, PLURALS[kind], namespace):
                    self.seen(kind, body, False)
                    found.add(body["metadata"]["uid"])
            for entry in before:
                if visible and entry.key.namespace not in visible:
                    continue
                if entry.uid not in found and self._catalog.get(entry.key) is entry:
                    self._remove(entry)

    def _put(self, kind: str, body: Mapping[str, Any]) -> None:
        entry = entry_of(kind, body)
        self._catalog.put(entry)
        self._reconciler.put(entry.key)

    def _remove(self, entry: Entry) -> None:
        self._catalog.remove(entry.key)
        self._reconciler.removed(entry)


async def _all(api: Api, plural: str, namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
    try:
        async for bodies, _ in api.pages(custom(plural), namespace):
            for body in bodies:
                yield body
    except ClusterRefused as error:
        if error.code == 404:
            raise ClusterRefused(not_there(plural), error.code, error.reason) from error
        raise
