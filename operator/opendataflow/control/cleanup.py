"""`opendataflow cleanup`: frees run pods and SparkApplications when the operator is gone for good, so that they and
their namespaces can go.

Only the finalizer goes. What runs goes on, Postgres is not changed, and an operator that is installed again goes on
with what is there. Nobody leads meanwhile: without --force it takes the leadership itself, which an operator would wait
for. With --uninstall it is what the chart runs before everything is deleted: it stops the operator itself, and only an
API server that does not answer, or a signal, keeps it from its end; then it starts the operator again. An operator
whose own namespace is deleted does the same there as its last deed.
"""

import asyncio
import logging
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Any

from opendataflow import names
from opendataflow.control.status.events import CONTROLLER
from opendataflow.core.text.explain import counted
from opendataflow.errors import (
    ClusterRefused,
    DataflowError,
    InvalidInput,
    NamespaceGone,
    Refused,
    SchemaMismatch,
    Unreachable,
)
from opendataflow.launch.cluster.access import find_access
from opendataflow.launch.cluster.api import APPLICATIONS, DEPLOYMENTS, EVENTS, PODS, Api, Resource, selector
from opendataflow.launch.cluster.applications import free_application
from opendataflow.launch.cluster.releases import free_pod
from opendataflow.launch.cluster.seen import application_seen, pod_seen
from opendataflow.model.records.run import Host
from opendataflow.opening.database import is_named, open_store
from opendataflow.settings import Settings
from opendataflow.store.leader import acquire_leadership, identity
from opendataflow.store.store import Store

LEASE_SECONDS = 60.0
"""How long an operator waits for the leadership should this program be killed; a page of pods is freed within that."""

PATIENCE_SECONDS = 60.0
"""How long the end of an operator is waited for: longer than it takes to stop, or leads when it is killed."""

AT_ONCE = 16

LOOK_SECONDS = 1.0

_FORCE = "--force frees the pods of every database, and asks none"

logger = logging.getLogger(__name__)


async def clean_up(settings: Settings, namespaces: Sequence[str], *, force: bool) -> None:
    """Free the run pods and SparkApplications of some namespaces, none means all. Refused while an operator leads,
    unless `force`.

    Without `force` only those of this database are meant. Raises Refused where some could not be freed.
    """
    async with Api(find_access()) as api, _sole(settings, force=force) as right:
        freed = await _free_all(api, namespaces, right)
    if freed.refusals:
        raise Refused(f"not everything could be freed: {freed.refusals[0]}")


async def uninstall(settings: Settings, namespaces: Sequence[str], deployment: str, wait: float) -> None:
    """The same before the operator of this Deployment (NAMESPACE/NAME) is deleted: stop it first, and wait for its end.

    Where Postgres does not answer for `wait` seconds, or can't be asked, it frees the pods of every database, and where
    another operator leads it frees none. What could not be freed is told, and is no error: it would keep everything
    else from being deleted. Where it fails, or gets SIGTERM, the operator is started again: it is not deleted then.
    """
    async with Api(find_access()) as api, _stopped(api, deployment):
        try:
            freed = await _free_patiently(settings, api, namespaces, wait)
        except Refused:
            logger.warning("an operator leads this database all the same: its run pods are left to it")
            return
        except (InvalidInput, Unreachable, SchemaMismatch) as error:
            said = error.args[0].removesuffix(f"; {_FORCE}")
            logger.warning("%s; so the run pods of every database are freed", said)
            freed = await _free_all(api, namespaces, _Unasked())
    for refusal in freed.refusals:
        logger.warning("%s", refusal)


async def _free_patiently(settings: Settings, api: Api, namespaces: Sequence[str], wait: float) -> "_Freed":
    """Free what is of this database once no operator leads it; Unreachable after so many seconds."""
    until, said = time.monotonic() + wait, False
    while True:
        try:
            async with _sole(settings, force=False, patience=PATIENCE_SECONDS) as right:
                return await _free_all(api, namespaces, right)
        except Unreachable as error:
            if time.monotonic() >= until:
                raise
            if not said:
                logger.info("%s; it is asked again, for %.0f s", error.args[0].removesuffix(f"; {_FORCE}"), wait)
            said = True
        await asyncio.sleep(LOOK_SECONDS)


async def leave_with_namespace(api: Api, engine: str) -> None:
    """At the end of an operator: where its own namespace is being deleted, free what is kept there for its database.

    Nobody else would: such a namespace takes no new operator.
    """
    namespace = api.access.namespace
    if not await _is_going(api, namespace):
        return
    logger.info("namespace %s is being deleted, and this operator with it: its run pods are freed", namespace)
    for refusal in (await _free_all(api, [namespace], _Unasked(engine))).refusals:
        logger.warning("%s", refusal)


async def _is_going(api: Api, namespace: str) -> bool:
    """Whether nothing new can be created in a namespace because it is being deleted. Few may read a namespace."""
    event = {
        "metadata": {"generateName": "is-it-going-"},
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reportingController": CONTROLLER,
        "reportingInstance": "operator",
        "action": "Ask",
        "reason": "Ask",
        "type": "Normal",
        "regarding": {"kind": "Namespace", "name": namespace, "namespace": namespace},
    }
    try:
        await api.create(EVENTS, namespace, event, dry=True)
    except NamespaceGone:
        return True
    except DataflowError:
        return False
    return False


@asynccontextmanager
async def _stopped(api: Api, deployment: str) -> AsyncIterator[None]:
    """Scale a Deployment down to nothing, and back where the block fails or this program is told to end."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    stopping = asyncio.create_task(_scale(api, deployment, 0))
    try:
        await asyncio.shield(stopping)  # who is told to end meanwhile has to know how many there were
        yield
    except (asyncio.CancelledError, Exception) as error:
        with suppress(DataflowError):
            if replicas := await stopping:
                await _scale(api, deployment, replicas)
        if isinstance(error, asyncio.CancelledError):
            raise Refused("it was ended before everything was freed, as by its time limit") from None
        raise


async def _scale(api: Api, deployment: str, replicas: int) -> int:
    """Say how many pods a Deployment is to have; return how many it had. It may be gone."""
    namespace, _, name = deployment.partition("/")
    try:
        told = await api.patch_merge(DEPLOYMENTS, namespace, f"{name}/scale", {"spec": {"replicas": replicas}})
    except ClusterRefused as error:
        logger.warning("the operator could not be %s: %s", "started again" if replicas else "stopped", error)
        return 0
    logger.info("Deployment %s is %s", deployment, "started again" if replicas else "stopped")
    return int((told.get("status") or {}).get("replicas") or 0)


async def _free_pod(api: Api, pod: Mapping[str, Any]) -> None:
    await free_pod(api, pod_seen(pod), {})


async def _free_application(api: Api, application: Mapping[str, Any]) -> None:
    await free_application(api, application_seen(application), {})


@dataclass(frozen=True)
class _Kind:
    """A kind of objects that are kept. `label`: its value says of which database; `chosen`: what all of them have."""

    what: str
    resource: Resource
    label: str
    chosen: str
    free: Callable[[Api, Mapping[str, Any]], Awaitable[None]]


_KINDS = (
    _Kind("run pod", PODS, names.LABEL_ENGINE, names.LABEL_RUN, _free_pod),
    _Kind("SparkApplication", APPLICATIONS, names.LABEL_APPLICATION, names.LABEL_APPLICATION, _free_application),
)


@dataclass(frozen=True)
class _Unasked:
    """No right was asked for. `engine`: the database that is meant, None for every one."""

    engine: str | None = None

    async def renew(self) -> None:
        """Nothing is held."""


class _Leading:
    """The leadership over one database, whose runs alone are meant."""

    def __init__(self, store: Store, engine: str) -> None:
        self.engine: str | None = engine
        self._store = store
        self._lease = str(uuid.uuid4())

    async def renew(self) -> None:
        """Take it or keep it; Refused while an operator has it."""
        host = Host(f"cleanup on {socket.gethostname()}", "")
        if await acquire_leadership(self._store, self._lease, host, LEASE_SECONDS) is None:
            raise Refused(
                "an operator leads: stop it first (one that was killed leads for 20 seconds more); its pods would be "
                f"freed before their outcomes are committed; {_FORCE}"
            )

    async def end(self) -> None:
        """Let an operator lead at once."""
        await self._store.close_lease(self._lease)


@asynccontextmanager
async def _sole(settings: Settings, *, force: bool, patience: float = 0.0) -> AsyncIterator[_Unasked | _Leading]:
    """Make sure that no operator leads, for as long as the block lasts. `patience`: seconds to wait until none does."""
    if force:
        yield _Unasked()
        return
    if not is_named(settings):
        raise InvalidInput(f"DATAFLOW_DSN is not set, so nobody knows whether an operator leads; {_FORCE}")
    try:
        async with open_store(settings, size=1) as store:
            right = _Leading(store, await identity(store))
            await _patiently(right, patience)
            try:
                yield right
            finally:
                await right.end()
    except (Unreachable, SchemaMismatch) as error:
        raise type(error)(f"{error} So nobody knows whether an operator leads; {_FORCE}") from error


async def _patiently(right: _Leading, patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return await right.renew()
        except Refused:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(LOOK_SECONDS)


@dataclass
class _Freed:
    """How many were freed, by namespace and kind; and why others were not."""

    number: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)


async def _free_all(api: Api, namespaces: Sequence[str], right: _Unasked | _Leading) -> _Freed:
    """Free the run pods and SparkApplications of some namespaces, none means all; say how many."""
    freed = _Freed()
    for namespace, kind in product(namespaces or (None,), _KINDS):
        try:
            await _free_those_of(api, namespace, kind, right, freed)
        except ClusterRefused as error:
            if kind.resource is not APPLICATIONS or error.code not in (403, 404):  # an option that may be missing
                freed.refusals.append(str(error))
            elif error.code == 403:
                logger.warning("SparkApplications of runs, where there are any, are not freed: %s", error)
    for (place, what), number in sorted(freed.number.items()):
        logger.info("namespace %s: %s freed", place, counted(number, what))
    if not freed.number and not freed.refusals:
        where = f"namespace {', '.join(namespaces)}" if namespaces else "the cluster"
        logger.info("no run pod in %s is kept by finalizer %s", where, names.FINALIZER)
    return freed


async def _free_those_of(
    api: Api, namespace: str | None, kind: _Kind, right: _Unasked | _Leading, freed: _Freed
) -> None:
    chosen = selector({} if right.engine is None else {kind.label: right.engine}, [kind.chosen])
    free = asyncio.Semaphore(AT_ONCE)

    async def one(found: dict[str, Any]) -> None:
        async with free:
            await _free(api, kind, found, freed)

    async for page, _ in api.pages(kind.resource, namespace, selector=chosen):
        await right.renew()
        kept = [found for found in page if names.FINALIZER in (found["metadata"].get("finalizers") or ())]
        async with asyncio.TaskGroup() as group:
            for found in kept:
                group.create_task(one(found))


async def _free(api: Api, kind: _Kind, found: dict[str, Any], freed: _Freed) -> None:
    try:
        await kind.free(api, found)
    except ClusterRefused as error:
        if error.code not in (404, 409):  # it is gone already
            freed.refusals.append(str(error))
    except DataflowError as error:
        freed.refusals.append(str(error))
    else:
        freed.number[found["metadata"]["namespace"], kind.what] += 1
