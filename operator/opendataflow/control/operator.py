"""The composition root of the operator: creates all its parts, and starts and ends its loops.

Every loop runs in one asyncio.TaskGroup. If one ends, the process ends, and Kubernetes starts it again. The state of
the operator is in Postgres and in the cluster only.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any

from opendataflow.control.access.definitions import Definitions
from opendataflow.control.access.rights import Rights
from opendataflow.control.access.unmanaged_namespaces import UnmanagedNamespaces
from opendataflow.control.cleanup import free_deleted_namespace
from opendataflow.control.monitoring.engine_observer import EngineObserver
from opendataflow.control.monitoring.logs import RateLimitedLogger, redact_secrets
from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.control.monitoring.probes import Health, Probes
from opendataflow.control.orphans import Orphans
from opendataflow.control.resources.catalog import Catalog
from opendataflow.control.resources.intake import Intake
from opendataflow.control.resources.orders import OrderMakers
from opendataflow.control.resources.reconcile import Reconciler
from opendataflow.control.resources.requests import Requests
from opendataflow.control.resources.watching import watch
from opendataflow.control.startup import Database, find_home, wait_for_supported_version
from opendataflow.control.status.events import EventWriter
from opendataflow.control.status.status_writer import StatusWriter
from opendataflow.core.kubernetes.pods import Operator
from opendataflow.core.kubernetes.policy.pod_security import PodPolicy
from opendataflow.engine.alerts import Alerts
from opendataflow.engine.claim_authority import Leadership
from opendataflow.engine.engine import Engine
from opendataflow.engine.ports import Target
from opendataflow.errors import ClusterRefused, ClusterUnreachable, DataflowError
from opendataflow.launch.cluster.access import find_access
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.leader import Home
from opendataflow.model.records.plan import NamespaceLimits
from opendataflow.model.records.pod import PodOrder
from opendataflow.model.records.run import Host
from opendataflow.notify.targets import configured_targets
from opendataflow.settings import OperatorSettings, Settings
from opendataflow.store.connections.connection import Row
from opendataflow.store.leader import identity
from opendataflow.store.store import Store

LIST_SECONDS = 300.0
"""The interval between two lists of all resources. A list also follows when the watch may have missed a change."""

SWEEP_SECONDS = 20.0
"""The interval between two deletions of released pods."""

CLEAN_SECONDS = 60.0
"""The interval between two deletions of finished actions whose ttl is over."""

UNMANAGED_SECONDS = 20.0
"""The interval between two queries for unmanaged namespaces."""

PULSE_SECONDS = 15.0
"""The interval between two checks whether the API server answers: for /readyz, and for the leadership."""

ORPHAN_SECONDS = 1.0
"""The interval between two checks whether orphans have ended."""

MEASURE_SECONDS = 5.0
"""The interval between two updates of the metrics about queues."""

RETRY_SECONDS = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = logging.getLogger(__name__)


async def operate(settings: Settings, options: OperatorSettings) -> None:
    """Wait for the leadership, then run until SIGTERM or SIGINT. Active runs go on without this process."""
    targets = configured_targets(settings.notifications)
    metrics, health = Metrics(version("opendataflow")), Health()

    def on_answer(verb: str, code: int) -> None:
        metrics.request(verb, code)
        if 0 < code < 500 and code != 401:  # a proxy before a dead API server answers 502; 401: it can do nothing there
            health.api_answered()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Probes(health, metrics, options.port))
        api = await stack.enter_async_context(Api(find_access(), on_answer))
        database = Database(settings, api, options.namespaces, metrics, health)
        with _exit_on_signals():
            await wait_for_supported_version(api, health)
            home = await find_home(api, health)
            store = await database.opened(stack)
            engine_id = await database.answer(lambda: identity(store))
        await OperatorProcess(store, api, options, engine_id, home, targets, metrics, health).run()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit at once on a signal during the block, because nothing has started yet.

    Process 1 of a container ignores signals by default.
    """
    loop = asyncio.get_running_loop()
    future = asyncio.current_task()
    assert future is not None
    for number in _SIGNALS:
        loop.add_signal_handler(number, future.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise SystemExit(0) from None
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


class OperatorProcess:
    """The parts of one operator, and its life from start to end. `engine_id`: the identity of the database.

    `home`: the service account of the operator, if it has one.
    """

    def __init__(  # noqa: PLR0913  # called once, by `operate`
        self,
        store: Store,
        api: Api,
        options: OperatorSettings,
        engine_id: str,
        home: Home | None,
        targets: Sequence[Target],
        metrics: Metrics,
        health: Health,
    ) -> None:
        self._store = store
        self._api = api
        self._engine_id = engine_id
        self._options = options
        self._metrics = metrics
        self._health = health
        self._catalog = Catalog()
        self._engine_observer = EngineObserver(
            metrics, self._job_changed, lambda: self._launcher.pod_problems(), health.heartbeat
        )
        self._launcher = ClusterLauncher(
            api,
            engine_id,
            note=self._engine_observer.note,
            foreign=metrics.foreign,
            namespaces=options.namespaces,
        )
        self._unmanaged = UnmanagedNamespaces(store, health)
        self._missed = asyncio.Event()
        self._rights = Rights(api, options.namespaces, self._launcher, self._missed.set, metrics, health)
        self._definitions = Definitions(api, health)
        accounts = (options.spark_account, *options.allowed_accounts)
        policy = PodPolicy(options.pod_policy, accounts, options.closed_namespace)
        made_by = Operator(engine_id, options.image, options.spark_image, options.spark_account, policy)
        self._makers = OrderMakers({}, made_by, lambda: self._engine.refresh_jobs())
        self._event_writer = EventWriter(api, options.name)
        self._statuses = StatusWriter(
            store,
            api,
            self._catalog,
            self._engine_observer,
            self._event_writer,
            reported=self._reported,
            failed=metrics.resource_failed,
            heartbeat=lambda: health.heartbeat("statuses"),
            answers=self._postgres_answers,
        )
        self._requests = Requests(store, api, lambda key: self._reconciler.enqueue(key))
        self._reconciler = Reconciler(
            store,
            self._catalog,
            self._requests,
            self._makers,
            self._statuses.mark_dirty,
            metrics.resource_failed,
            NamespaceLimits(
                options.chunks_per_namespace,
                options.jobs_per_namespace,
                options.data_sets_per_namespace,
                options.rows_per_change,
            ),
        )
        self._intake = Intake(self._catalog, self._reconciler, self._rights.visible_namespaces)
        leadership = Leadership(
            store,
            Host(options.name, engine_id),
            self._leads,
            self._leadership_answered,
            lambda: health.missed_checks,
            options.namespaces,
            home,
            partial(redact_secrets, environ=os.environ),
        )
        self._orphans = Orphans(store, self._launcher, leadership.lease, metrics)
        self._engine: Engine[PodOrder] = Engine(
            store,
            self._launcher,
            leadership,
            self._makers.makers,
            self._engine_observer,
            parallelism=options.parallelism,
            namespace_parallelism=options.namespace_parallelism,
        )
        self._alerts = Alerts(store, targets, self._engine_observer.note)
        self._limited_logger = RateLimitedLogger(logger)
        self._working_as_leader = False
        self._leaving: asyncio.Task[None] | None = None
        self._waited = False
        self._measured: set[str] = set()

    async def run(self) -> None:
        """Run until a signal arrives or a part ends."""
        self._take_signals()
        self._beside: list[asyncio.Task[Any]] = []
        try:
            async with asyncio.TaskGroup() as self._group:
                self._begin(self._pulse(), "pulse")
                self._working = self._group.create_task(self._engine.run(self._prepare), name="engine")
                self._working.add_done_callback(lambda _: self._end())
        finally:
            if self._leaving is not None:
                await self._leaving

    # -- callbacks between the parts -------------------------------------------------------------------------

    def _job_changed(self, job: str) -> None:
        entry = self._catalog.job(job)
        if entry is not None:
            self._statuses.mark_dirty(entry.key)

    def _reported(self, job: str, report: Row) -> None:
        self._measured.add(job)
        self._metrics.job(job, report["counts"], stale=report["stale"], breaker_open=report["breaker"] is not None)

    def _postgres_answers(self, reachable: bool) -> None:
        self._metrics.database(reachable=reachable)

    def _leads(self, epoch: int) -> None:
        self._metrics.leading(epoch)
        logger.info("this operator leads, in epoch %d", epoch)

    def _leadership_answered(self, leads: bool) -> None:
        """Handle an answer of Postgres about the leadership. It arrives every few seconds."""
        self._health.postgres_answered()
        if not leads and not self._waited:
            self._waited = True
            logger.info("another operator leads: this one waits")

    # -- start and end ---------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._leave, number)

    def _leave(self, number: int) -> None:
        logger.info("%s: nothing new starts here, pods go on; another operator may lead", signal.Signals(number).name)
        if self._leaving is None:  # concurrently with the end of the engine: Postgres may end soon, too
            self._leaving = asyncio.create_task(free_deleted_namespace(self._api, self._engine_id))
        if self._working_as_leader:
            self._engine.leave()
        else:  # it waits for the leadership or for first answers: nothing has been claimed
            self._working.cancel()

    def _end(self) -> None:
        """End all other loops: the engine has ended."""
        for future in self._beside:
            future.cancel()

    async def _prepare(self) -> None:
        """Prepare a leader for its first claim: list all pods and resources, declare changes, and start the loops."""
        await self._until_answered(self._rights.check)
        self._launcher.begin()
        self._begin(self._rights.run(), "rights")
        await self._launcher.synced()
        await self._until_answered(self._orphans.find)
        self._begin(self._orphans.end(), "end of orphans")
        self._begin(self._every(ORPHAN_SECONDS, self._orphans.settle), "orphans")
        await self._until_answered(self._list_first)
        await self._until_answered(self._take_over)
        await self._until_answered(self._unmanaged.check)
        self._begin(watch(self._intake.observe, find_access, self._rights, self._missed.set), "watch of resources")
        self._begin(self._reconciler.run(), "reconciler")
        self._begin(self._statuses.run(), "statuses")
        self._begin(self._event_writer.run(), "events")
        self._begin(self._list_again(), "lists")
        self._begin(self._every(SWEEP_SECONDS, self._sweep), "sweep")
        self._begin(self._measure(), "measures")
        self._begin(self._every(CLEAN_SECONDS, self._clean), "actions")
        self._begin(self._every(UNMANAGED_SECONDS, self._unmanaged.check), "other namespaces")
        self._begin(self._alerts.run(), "notifications")
        self._working_as_leader = True

    def _begin(self, loop: Coroutine[Any, Any, None], name: str) -> None:
        self._beside.append(self._group.create_task(loop, name=name))

    async def _pulse(self) -> None:
        """Check regularly whether the API server answers. A standby sends no other requests."""
        while True:
            begun = time.monotonic()
            with suppress(ClusterUnreachable, ClusterRefused):
                await self._api.get_version()
            self._health.api_checked(begun)
            await asyncio.sleep(max(0.0, begun + PULSE_SECONDS - time.monotonic()))

    async def _measure(self) -> None:
        """Update the metrics about queues, and remove those of deleted jobs."""
        while True:
            for queue, depth in {**self._engine.queues(), "resources": self._reconciler.waiting}.items():
                self._metrics.queue(queue, depth)
            for job in [job for job in self._measured if self._catalog.job(job) is None]:
                self._measured.remove(job)
                self._metrics.forget(job)
            await asyncio.sleep(MEASURE_SECONDS)

    async def _list_first(self) -> None:
        """List all resources. If the operator manages all namespaces and may read none, wait for the rights first."""
        while self._rights.visible_namespaces() is None and not self._options.namespaces:
            await self._rights.visibility_changed.wait()
            self._rights.visibility_changed.clear()
        await self._list()

    async def _take_over(self) -> None:
        await self._reconciler.begin(self._rights.hides)

    async def _list(self) -> None:
        try:
            await self._intake.list_all(self._api)
        except ClusterRefused as error:
            if error.code == 403:
                await self._rights.check()  # it has lost a right
            self._definitions.record_refusal(error)
            raise
        await self._definitions.check()

    async def _list_again(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_SECONDS):
                    await self._missed.wait()
                    await asyncio.sleep(RETRY_SECONDS)  # other kinds are listed at the same time
            self._missed.clear()
            await self._until_answered(self._list)
            self._reconciler.enqueue_missing(self._rights.hides)

    async def _clean(self) -> None:
        await self._requests.clean(self._catalog)

    async def _sweep(self) -> None:
        """Release pods that an earlier process did not release, and delete pods that were released some time ago.

        Also end orphans of namespaces that were not listed before.
        """
        await self._orphans.find()
        await self._orphans.end()
        await self._launcher.sweep()

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await step()
            except DataflowError as error:
                if error.retryable:
                    self._limited_logger.warn(str(error))
                else:
                    logger.error("%s", error)

    async def _until_answered(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step until it succeeds. Retry while Postgres or the API server does not answer.

        Also retry if a list expired before its last page, or if a kind or a right is missing: the chart may install it.
        """
        while True:
            try:
                return await step()
            except DataflowError as error:
                passing = isinstance(error, ClusterRefused) and error.code in (403, 404, 410)
                if not (error.retryable or passing):
                    raise
                self._limited_logger.warn(str(error))
                await asyncio.sleep(RETRY_SECONDS)
