"""Takes in what is seen of the resources, from the watch and from lists, and puts what has changed before the
reconciler.

What is older than what is known already is left alone: a list and a watch may overtake each other.
"""

from collections.abc import Collection, Mapping
from typing import Any

from opendataflow.control.bodies import KINDS, PLURALS, entry_of, key_of
from opendataflow.control.catalog import Catalog, Entry
from opendataflow.control.reconcile import Reconciler
from opendataflow.launch.cluster.api import Api, custom


class Intake:
    """Fills the catalog. `namespaces`: the only ones that are looked at; none means all."""

    def __init__(self, catalog: Catalog, reconciler: Reconciler, namespaces: Collection[str]) -> None:
        self._catalog = catalog
        self._reconciler = reconciler
        self._namespaces = namespaces

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
        """Look at everything that is there, and notice what is not there any more."""
        for kind in KINDS:
            before = [entry for entry in self._catalog if entry.key.kind == kind]
            found: set[str] = set()
            for namespace in sorted(self._namespaces) or (None,):
                async for bodies, _ in api.pages(custom(PLURALS[kind]), namespace):
                    for body in bodies:
                        self.seen(kind, body, False)
                        found.add(body["metadata"]["uid"])
            for entry in before:
                if entry.uid not in found and self._catalog.get(entry.key) is entry:
                    self._remove(entry)

    def _put(self, kind: str, body: Mapping[str, Any]) -> None:
        entry = entry_of(kind, body)
        self._catalog.put(entry)
        self._reconciler.put(entry.key)

    def _remove(self, entry: Entry) -> None:
        self._catalog.remove(entry.key)
        self._reconciler.removed(entry)
