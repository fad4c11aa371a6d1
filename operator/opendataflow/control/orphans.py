"""Ends pods and SparkApplications of runs that Postgres does not know, because it has gone back in time.

A pod is created only after its run is committed. So a pod whose run has no row belongs to a history that was lost: by a
restore, or by a failover to a replica that lacked the last commits. Until it has ended, it may write its chunk.
"""

import logging

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
        self._left: list[Orphan] = []

    async def find(self) -> None:
        """Find and record all orphans. Called before the first claim, when all objects of runs were listed."""
        asked = self._launcher.unknown_runs()
        stored = await stored_runs(self._store, asked)
        found = self._launcher.orphans(set(asked) - stored.keys())
        await record_orphans(self._store, self._lease, found, complete=self._launcher.lists_all)
        self._left = found
        self._metrics.orphans(len(found))

    async def end(self) -> None:
        """Delete the found orphans, with their grace periods."""
        if self._left:
            first = self._left[0]
            logger.warning(
                "history was lost: the database does not know the runs of %s, such as %s/%s (job %s, chunk %s); they "
                "are deleted, and their chunks are not claimed before they have ended",
                counted(len(self._left), "object"),
                first.identity.namespace,
                first.identity.name,
                first.job,
                first.data_id,
            )
        for orphan in list(self._left):
            await self._launcher.end_orphan(orphan)

    async def settle(self) -> None:
        """Forget the orphans that have ended, then release them. A crash in between repeats both."""
        ended = self._launcher.ended_orphans()
        if ended:
            await forget_orphans(self._store, self._lease, ended)
        for orphan in ended:
            self._launcher.release_orphan(orphan)
            self._left.remove(orphan)
        self._metrics.orphans(len(self._left))
