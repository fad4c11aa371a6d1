"""The requirements of an operator before it starts: a supported Kubernetes version, and Postgres.

A requirement that may be fulfilled later is waited for. The log (once a minute) and /readyz give the reason. A process
that exits and restarts would report less, and later each time. If only a person can fix it, the process ends with one
sentence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from opendataflow.control.monitoring.logs import RateLimitedLogger
from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.control.monitoring.probes import Health
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.control.status.status_writer import merge_patch
from opendataflow.core.kubernetes.cluster_version import too_old
from opendataflow.core.status.job_state import ObservedJob, job_status
from opendataflow.errors import ClusterRefused, ClusterUnreachable, DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.launch.cluster.rights import own_account
from opendataflow.model.records.leader import Home
from opendataflow.opening.database import open_store
from opendataflow.settings import Settings, has_named_database
from opendataflow.store.store import Store

PAUSE_SECONDS = 2.0
REFUSED_SECONDS = 10.0
"""The pause after Postgres refused the connection. It is longer, because many tries may lock a user out."""
CONNECTIONS = 8

JOBS = custom(PLURALS["DataFlowJob"])

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def wait_for_supported_version(api: Api, health: Health) -> None:
    """Wait until the API server returns its version. Raises Refused if it is too old."""
    try:
        version = await _until_answered(api.get_version, health)
    except ClusterRefused:  # no right to read the version; missing rights are reported later
        return
    if (sentence := too_old(version)) is not None:
        raise Refused(sentence)


async def find_home(api: Api, health: Health) -> Home | None:
    """Wait until the API server returns the service account of this operator; return None if it has none."""
    return await _until_answered(lambda: own_account(api), health)


async def _until_answered(question: Callable[[], Awaitable[T]], health: Health) -> T:
    """Repeat a question to the API server until it answers; return the answer."""
    limited_logger = RateLimitedLogger(logger)
    while True:
        try:
            answer = await question()
        except ClusterUnreachable as error:
            health.report("the Kubernetes API", str(error))
            limited_logger.warn(str(error))
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            health.report("the Kubernetes API", None)
            return answer


class Database:
    """Opens the store and asks it. Waits without limit.

    `namespaces`: their jobs show the reason meanwhile. Empty means all.
    """

    def __init__(
        self, settings: Settings, api: Api, namespaces: Collection[str], metrics: Metrics, health: Health
    ) -> None:
        if not has_named_database(settings):
            raise InvalidInput("DATAFLOW_DSN is not set: it names the Postgres database that remembers everything")
        self._settings = settings
        self._api = api
        self._namespaces = namespaces
        self._metrics = metrics
        self._health = health

    async def opened(self, stack: AsyncExitStack) -> Store:
        """Return the store, which closes with `stack`. Raises an error that waiting can't solve."""
        return await self.answer(lambda: stack.enter_async_context(open_store(self._settings, size=CONNECTIONS)))

    async def answer(self, question: Callable[[], Awaitable[T]]) -> T:
        """Repeat a question to Postgres until the server answers; return the answer. Raises as `opened` does."""
        limited_logger = RateLimitedLogger(logger)
        while True:
            try:
                answer = await question()
            except DataflowError as error:
                if not error.retryable:
                    raise
                sentence = str(error)
                refused = isinstance(error, NoAccess)
            else:
                self._health.report("Postgres", None)
                self._health.postgres_answered()
                return answer
            self._health.report("Postgres", sentence)
            self._metrics.database(reachable=False)
            if limited_logger.warn(sentence):
                await self._write_statuses(sentence)
            await asyncio.sleep(REFUSED_SECONDS if refused else PAUSE_SECONDS)

    async def _write_statuses(self, unreachable: str) -> None:
        """Write a status to the jobs that have none yet. A leading operator may know more about the others."""
        for namespace in sorted(self._namespaces) or (None,):
            with suppress(ClusterUnreachable, ClusterRefused):
                async for bodies, _ in self._api.pages(JOBS, namespace):
                    for body in bodies:
                        if not (body.get("status") or {}).get("conditions"):
                            await self._write_status(body, unreachable)

    async def _write_status(self, body: dict[str, Any], unreachable: str) -> None:
        metadata = body["metadata"]
        facts = ObservedJob(metadata["name"], metadata["generation"], unreachable=unreachable)
        patch = merge_patch({}, job_status(facts, datetime.now(UTC)).body())
        await self._api.patch_merge(JOBS, metadata["namespace"], metadata["name"], {"status": patch}, status=True)
