"""Puts the operator together: the one place that knows all of its parts.

Every loop runs in one asyncio.TaskGroup: whichever ends, ends the process, and Kubernetes starts it again. All that
counts is in Postgres and in the cluster.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import Any

from opendataflow.control.access.definitions import Definitions
from opendataflow.control.access.rights import Rights
from opendataflow.control.access.unmanaged_namespaces import Outside
from opendataflow.control.cleanup import leave_with_namespace
from opendataflow.control.monitoring.engine_observer import Watchman
from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.monitoring.metrics import Figures
from opendataflow.control.monitoring.probes import Health, Probes
from opendataflow.control.resources.catalog import Catalog
from opendataflow.control.resources.intake import Intake
from opendataflow.control.resources.orders import Makers
from opendataflow.control.resources.reconcile import Reconciler
from opendataflow.control.resources.requests import Requests
from opendataflow.control.resources.watching import watch
from opendataflow.control.startup import Database, new_enough
from opendataflow.control.status.events import Reporter
from opendataflow.control.status.status_writer import StatusWriter
from opendataflow.core.kubernetes.pods import Operator
from opendataflow.engine.alerts import Alerts
from opendataflow.engine.claim_authority import Leadership
from opendataflow.engine.engine import Engine
from opendataflow.engine.ports import Target
from opendataflow.errors import ClusterRefused, ClusterUnreachable, DataflowError
from opendataflow.launch.cluster.access import find_access
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.pod import PodOrder
from opendataflow.model.records.run import Host
from opendataflow.notify.configured import targets_of
from opendataflow.settings import OperatorSettings, Settings
from opendataflow.store.connections.connection import Row
from opendataflow.store.leader import ended_runs, identity
from opendataflow.store.store import Store

LIST_SECONDS = 300.0
"""How often all resources are listed, beside the watch; also at once where the watch has missed something."""

SWEEP_SECONDS = 20.0
"""How often pods are looked for that may go."""

CLEAN_SECONDS = 60.0
"""How often finished actions are looked for that may go."""

OUTSIDE_SECONDS = 20.0
"""How often Postgres is asked what is in namespaces that this operator does not work in."""

PULSE_SECONDS = 15.0
"""Seconds between two requests that check whether the API server answers (control/monitoring/probes.py)."""

MEASURE_SECONDS = 5.0
"""How often the lengths of queues are taken."""

RETRY_SECONDS = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

logger = logging.getLogger(__name__)


async def operate(settings: Settings, options: OperatorSettings) -> None:
    """Wait to lead, then work until SIGTERM or SIGINT; runs go on without this process."""
    targets = targets_of(settings.notifications)
    figures, health = Figures(version("opendataflow")), Health()

    def told(verb: str, code: int) -> None:
        figures.request(verb, code)
        if code:
            health.api_answered()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Probes(health, figures, options.port))
        api = await stack.enter_async_context(Api(find_access(), told))
        database = Database(settings, api, options.namespaces, figures, health)
        with _ended_by_signals():
            await new_enough(api, health)
            store = await database.opened(stack)
            engine_id = await database.answer(lambda: identity(store))
        await OneOperator(store, api, options, engine_id, targets, figures, health).run()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Nothing has begun yet: a signal ends the program at once. A container's first process would go on by itself."""
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


class OneOperator:
    """The parts of one operator. `engine_id`: the identity of the database."""

    def __init__(  # what a composition root puts together
        self,
        store: Store,
        api: Api,
        options: OperatorSettings,
        engine_id: str,
        targets: Sequence[Target],
        figures: Figures,
        health: Health,
    ) -> None:
        self._store = store
        self._api = api
        self._engine_id = engine_id
        self._options = options
        self._figures = figures
        self._health = health
        self._catalog = Catalog()
        self._watchman = Watchman(figures, self._job_changed, lambda: self._launcher.hindered(), health.turned)
        self._launcher = ClusterLauncher(
            api,
            engine_id,
            note=self._watchman.note,
            namespaces=options.namespaces,
        )
        self._outside = Outside(store, health)
        self._missed = asyncio.Event()
        self._rights = Rights(api, options.namespaces, self._launcher, self._missed.set, figures, health)
        self._definitions = Definitions(api, health)
        made_by = Operator(engine_id, options.image, options.spark_image, options.spark_account)
        self._makers = Makers({}, made_by, lambda: self._engine.look_again())
        self._reporter = Reporter(api, options.name)
        self._statuses = StatusWriter(
            store,
            api,
            self._catalog,
            self._watchman,
            self._reporter,
            reported=self._reported,
            turned=lambda: health.turned("statuses"),
            answers=self._postgres_answers,
        )
        self._requests = Requests(store, api, lambda key: self._reconciler.put(key))
        self._reconciler = Reconciler(store, self._catalog, self._requests, self._makers, self._statuses.dirty)
        self._intake = Intake(self._catalog, self._reconciler, self._rights.visible)
        self._engine: Engine[PodOrder] = Engine(
            store,
            self._launcher,
            Leadership(store, Host(options.name, engine_id), self._leads, self._asked_to_lead, options.namespaces),
            self._makers.makers,
            self._watchman,
            parallelism=options.parallelism,
        )
        self._alerts = Alerts(store, targets, self._watchman.note)
        self._sparing = Sparing(logger)
        self._works = False
        self._leaving: asyncio.Task[None] | None = None
        self._waited = False
        self._measured: set[str] = set()

    async def run(self) -> None:
        """Work until a signal, or until a part ends."""
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

    # -- what the parts tell each other ----------------------------------------------------------------------

    def _job_changed(self, job: str) -> None:
        entry = self._catalog.job(job)
        if entry is not None:
            self._statuses.dirty(entry.key)

    def _reported(self, job: str, report: Row) -> None:
        self._measured.add(job)
        self._figures.job(job, report["counts"], breaker_open=report["breaker"] is not None)

    def _postgres_answers(self, reachable: bool) -> None:
        self._figures.database(reachable=reachable)

    def _leads(self, epoch: int) -> None:
        self._figures.leading(epoch)
        logger.info("this operator leads, in epoch %d", epoch)

    def _asked_to_lead(self, leads: bool) -> None:
        """Postgres says again and again who leads."""
        self._health.postgres_answered()
        if not leads and not self._waited:
            self._waited = True
            logger.info("another operator leads: this one waits")

    # -- beginning and end -----------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._leave, number)

    def _leave(self, number: int) -> None:
        logger.info("%s: nothing new starts here, pods go on; another operator may lead", signal.Signals(number).name)
        if self._leaving is None:  # beside the end of the engine: Postgres may be going, too
            self._leaving = asyncio.create_task(leave_with_namespace(self._api, self._engine_id))
        if self._works:
            self._engine.leave()
        else:  # it waits to lead, or for the first answers: nothing has been claimed
            self._working.cancel()

    def _end(self) -> None:
        """The engine has ended: so do all others."""
        for future in self._beside:
            future.cancel()

    async def _prepare(self) -> None:
        """What a leader does before it claims: see all pods and all resources, and take over what has changed."""
        await self._until_answered(self._rights.look)
        self._launcher.begin()
        self._begin(self._rights.run(), "rights")
        await self._launcher.synced()
        await self._until_answered(self._list_first)
        await self._until_answered(self._take_over)
        await self._until_answered(self._outside.look)
        self._begin(watch(self._intake.seen, find_access, self._rights, self._missed.set), "watch of resources")
        self._begin(self._reconciler.run(), "reconciler")
        self._begin(self._statuses.run(), "statuses")
        self._begin(self._reporter.run(), "events")
        self._begin(self._list_again(), "lists")
        self._begin(self._every(SWEEP_SECONDS, self._sweep), "sweep")
        self._begin(self._measure(), "measures")
        self._begin(self._every(CLEAN_SECONDS, self._clean), "actions")
        self._begin(self._every(OUTSIDE_SECONDS, self._outside.look), "other namespaces")
        self._begin(self._alerts.run(), "notifications")
        self._works = True

    def _begin(self, loop: Coroutine[Any, Any, None], name: str) -> None:
        self._beside.append(self._group.create_task(loop, name=name))

    async def _pulse(self) -> None:
        """Ask the API server something now and then, also where nobody else does: a standby, or one without jobs."""
        while True:
            with suppress(ClusterUnreachable, ClusterRefused):  # who listens to the door knows
                await self._api.ask_version()
            await asyncio.sleep(PULSE_SECONDS)

    async def _measure(self) -> None:
        """How much waits, and which jobs are there no more."""
        while True:
            for queue, depth in {**self._engine.queues(), "resources": self._reconciler.waiting}.items():
                self._figures.queue(queue, depth)
            for job in [job for job in self._measured if self._catalog.job(job) is None]:
                self._measured.remove(job)
                self._figures.forget(job)
            await asyncio.sleep(MEASURE_SECONDS)

    async def _list_first(self) -> None:
        """Where nothing at all may be seen in a whole cluster, there is nothing to lead: wait for the rights."""
        while self._rights.visible() is None and not self._options.namespaces:
            await self._rights.moved.wait()
            self._rights.moved.clear()
        await self._list()

    async def _take_over(self) -> None:
        await self._reconciler.begin(self._rights.hides)

    async def _list(self) -> None:
        try:
            await self._intake.list_all(self._api)
        except ClusterRefused as error:
            if error.code == 403:
                await self._rights.look()  # it has just lost one
            self._definitions.refused(error)
            raise
        await self._definitions.look()

    async def _list_again(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_SECONDS):
                    await self._missed.wait()
                    await asyncio.sleep(RETRY_SECONDS)  # more is listed at the same time
            self._missed.clear()
            await self._until_answered(self._list)
            self._reconciler.miss(self._rights.hides)

    async def _clean(self) -> None:
        await self._requests.clean(self._catalog)

    async def _sweep(self) -> None:
        """Let go what an earlier process could not, and delete what was let go some time ago."""
        strangers = self._launcher.strangers()
        if strangers:
            await self._launcher.release_ended(await ended_runs(self._store, strangers))
        await self._launcher.sweep()

    async def _every(self, seconds: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await step()
            except DataflowError as error:
                if error.retryable:
                    self._sparing.warn(str(error))
                else:
                    logger.error("%s", error)

    async def _until_answered(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step, again and again where Postgres or the API server does not answer; also where a list is too old
        before its end, and where a kind or the right to see it is missing: a chart may be about to bring them."""
        while True:
            try:
                return await step()
            except DataflowError as error:
                passing = isinstance(error, ClusterRefused) and error.code in (403, 404, 410)
                if not (error.retryable or passing):
                    raise
                self._sparing.warn(str(error))
                await asyncio.sleep(RETRY_SECONDS)
