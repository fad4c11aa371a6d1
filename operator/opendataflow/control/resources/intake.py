"""Updates the catalog from the watch and from lists of resources, and enqueues changed resources for the reconciler.

A list and a watch may overtake each other, so an older state never replaces a newer one.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

from opendataflow.control.resources.bodies import KINDS, PLURALS, parse_entry, parse_key
from opendataflow.control.resources.catalog import Catalog, Entry
from opendataflow.control.resources.reconcile import Reconciler
from opendataflow.core.kubernetes.definitions import unknown_kind_sentence
from opendataflow.errors import ClusterRefused
from opendataflow.launch.cluster.api import Api, custom


class Intake:
    """Updates the catalog. `visible`: returns the namespaces that may be read: empty means all, None means none."""

    def __init__(self, catalog: Catalog, reconciler: Reconciler, visible: Callable[[], Collection[str] | None]) -> None:
        self._catalog = catalog
        self._reconciler = reconciler
        self._visible = visible

    def observe(self, kind: str, body: Mapping[str, Any], gone: bool) -> None:
        """Handle the current body of a resource. `gone`: it was deleted."""
        known = self._catalog.get(parse_key(kind, body))
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
        """List all visible resources, and remove those that do not exist any more.

        Raises ClusterRefused, with code 404 if the cluster lacks a kind.
        """
        visible = self._visible()
        if visible is None:
            return
        for kind in KINDS:
            before = [entry for entry in self._catalog if entry.key.kind == kind]
            found: set[str] = set()
            for namespace in sorted(visible) or (None,):
                async for body in _list_bodies(api, PLURALS[kind], namespace):
                    self.observe(kind, body, False)
                    found.add(body["metadata"]["uid"])
            for entry in before:
                if visible and entry.key.namespace not in visible:
                    continue
                if entry.uid not in found and self._catalog.get(entry.key) is entry:
                    self._remove(entry)

    def _put(self, kind: str, body: Mapping[str, Any]) -> None:
        entry = parse_entry(kind, body)
        self._catalog.put(entry)
        self._reconciler.enqueue(entry.key)

    def _remove(self, entry: Entry) -> None:
        self._catalog.remove(entry.key)
        self._reconciler.enqueue_removed(entry)


async def _list_bodies(api: Api, plural: str, namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
    try:
        async for bodies, _ in api.pages(custom(plural), namespace):
            for body in bodies:
                yield body
    except ClusterRefused as error:
        if error.code == 404:
            raise ClusterRefused(unknown_kind_sentence(plural), error.code, error.reason) from error
        raise
