"""What has to be there before an operator can begin: a cluster that is new enough, and Postgres.

What time can heal is waited for, with the reason in the log once a minute and at /readyz: a process that ends and is
started again tells less, and later each time. What only a person can mend ends it with one sentence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.monitoring.metrics import Figures
from opendataflow.control.monitoring.probes import Health
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.control.status.status_writer import merge_patch
from opendataflow.core.kubernetes.cluster_version import too_old
from opendataflow.core.status.job_state import JobFacts, job_status
from opendataflow.errors import ClusterRefused, ClusterUnreachable, DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.opening.database import is_named, open_store
from opendataflow.settings import Settings
from opendataflow.store.store import Store

PAUSE_SECONDS = 2.0
REFUSED_SECONDS = 10.0
"""The pause where Postgres refuses the connection: many tries may lock a user out."""
CONNECTIONS = 8

JOBS = custom(PLURALS["DataFlowJob"])

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def new_enough(api: Api, health: Health) -> None:
    """Wait until the API server says its version; Refused where it is too old."""
    sparing = Sparing(logger)
    while True:
        try:
            version = await api.ask_version()
        except ClusterUnreachable as error:
            health.say("the Kubernetes API", str(error))
            sparing.warn(str(error))
            await asyncio.sleep(PAUSE_SECONDS)
        except ClusterRefused:  # it may not be told; what is missing is said where it is needed
            return
        else:
            health.say("the Kubernetes API", None)
            if (sentence := too_old(version)) is not None:
                raise Refused(sentence)
            return


class Database:
    """Opens the store and asks it, however long that takes; `namespaces`: whose jobs are told meanwhile, none means
    all."""

    def __init__(
        self, settings: Settings, api: Api, namespaces: Collection[str], figures: Figures, health: Health
    ) -> None:
        if not is_named(settings):
            raise InvalidInput("DATAFLOW_DSN is not set: it names the Postgres database that remembers everything")
        self._settings = settings
        self._api = api
        self._namespaces = namespaces
        self._figures = figures
        self._health = health

    async def opened(self, stack: AsyncExitStack) -> Store:
        """Return the store, which closes with `stack`. Raises as `answer` does."""
        return await self.answer(lambda: stack.enter_async_context(open_store(self._settings, size=CONNECTIONS)))

    async def answer(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask Postgres a question again until it answers; return the answer. Raises what no waiting helps against."""
        sparing = Sparing(logger)
        while True:
            try:
                answer = await question()
            except DataflowError as error:
                if not error.retryable:
                    raise
                sentence = str(error)
                refused = isinstance(error, NoAccess)
            else:
                self._health.say("Postgres", None)
                self._health.postgres_answered()
                return answer
            self._health.say("Postgres", sentence)
            self._figures.database(reachable=False)
            if sparing.warn(sentence):
                await self._tell_jobs(sentence)
            await asyncio.sleep(REFUSED_SECONDS if refused else PAUSE_SECONDS)

    async def _tell_jobs(self, away: str) -> None:
        """Tell jobs of which nobody has told anything yet. Of the others an operator that leads may know more."""
        for namespace in sorted(self._namespaces) or (None,):
            with suppress(ClusterUnreachable, ClusterRefused):
                async for bodies, _ in self._api.pages(JOBS, namespace):
                    for body in bodies:
                        if not (body.get("status") or {}).get("conditions"):
                            await self._tell(body, away)

    async def _tell(self, body: dict[str, Any], away: str) -> None:
        metadata = body["metadata"]
        facts = JobFacts(metadata["name"], metadata["generation"], away=away)
        patch = merge_patch({}, job_status(facts, datetime.now(UTC)).body())
        await self._api.patch_merge(JOBS, metadata["namespace"], metadata["name"], {"status": patch}, status=True)
