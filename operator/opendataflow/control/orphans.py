"""Ends pods and SparkApplications of runs that Postgres does not know, because it has gone back in time.

A pod is created only after its run is committed. So a pod whose run has no row belongs to a history that was lost: by a
restore, or by a failover to a replica that lacked the last commits. Until it has ended, it may write its chunk.
"""

import logging
from collections.abc import Sequence

from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.core.text.explain import counted
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.pod import Orphan
from opendataflow.store.leader import forget_orphans, record_orphans, stored_runs
from opendataflow.store.store import Store

logger = logging.getLogger(__name__)


class Orphans:
    """The orphans that one leading operator has found. `lease`: of its leadership."""

    def __init__(self, store: Store, launcher: ClusterLauncher, lease: str, metrics: Metrics) -> None:
        self._store = store
        self._launcher = launcher
        self._lease = lease
        self._metrics = metrics
        self._left: dict[str, Orphan] = {}
        self._ending: set[str] = set()
        self._found_all = False

    async def find(self) -> None:
        """Find and record orphans, and sort all other objects of unknown runs.

        Called before the first claim, when all objects of runs were listed. Later calls find the orphans of namespaces
        that were not listed until then.
        """
        lists_all, asked = self._launcher.lists_all, self._launcher.unknown_runs()
        stored = await stored_runs(self._store, asked) if asked else {}
        found = self._launcher.orphans(asked, stored)
        if found or (lists_all and not self._found_all):
            known = [*self._left.values(), *found]
            await record_orphans(self._store, self._lease, known, complete=lists_all)
            self._found_all = lists_all
        for orphan in found:
            self._left[orphan.uid] = orphan
            self._launcher.recognize_orphan(orphan)
        if found:
            self._warn(found)
        self._metrics.orphans(len(self._left))
        await self._launcher.settle(asked, stored)

    def _warn(self, found: Sequence[Orphan]) -> None:
        first = found[0]
        logger.warning(
            "history was lost: the database does not know the runs of %s, such as %s/%s (job %s, chunk %s); they "
            "are deleted, and their chunks are not claimed before they have ended",
            counted(len(found), "object"),
            first.identity.namespace,
            first.identity.name,
            first.job,
            first.data_id,
        )

    async def end(self) -> None:
        """Delete the found orphans, with their grace periods."""
        for orphan in [orphan for uid, orphan in self._left.items() if uid not in self._ending]:
            self._ending.add(orphan.uid)
            await self._launcher.end_orphan(orphan)

    async def settle(self) -> None:
        """Forget the orphans that have ended, then release them. A crash in between repeats both."""
        ended = self._launcher.ended_orphans()
        if ended:
            await forget_orphans(self._store, self._lease, ended)
        for orphan in ended:
            self._launcher.release_orphan(orphan)
            del self._left[orphan.uid]
            self._ending.discard(orphan.uid)
        self._metrics.orphans(len(self._left))
