"""`opendataflow cleanup`: frees run pods and SparkApplications after the operator was removed, so that they and their
namespaces can be deleted.

It removes finalizers only. Active runs go on, Postgres is not changed, and a new operator can continue them. No
operator may lead meanwhile: without --force this program takes the leadership, so that an operator has to wait.

The chart runs it with --uninstall before it deletes the operator. Then it stops the operator first. Only an unreachable
API server or a signal can make it fail; in this case it starts the operator again. An operator whose own namespace is
being deleted frees the objects in that namespace before it ends.
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
from opendataflow.launch.cluster.rights import own_account
from opendataflow.launch.cluster.seen import parse_application, parse_pod
from opendataflow.model.records.run import Host
from opendataflow.opening.database import open_store
from opendataflow.settings import Settings, has_named_database
from opendataflow.store.leader import acquire_leadership, forget_home, home_namespace, identity, resign
from opendataflow.store.store import Store

LEASE_SECONDS = 60.0
"""The lease of this program: one page of pods is freed in less. After a crash of this program an operator waits so
long."""

LEADER_SECONDS = 60.0
"""How long to wait until no operator leads: longer than an operator takes to stop, or leads after it was killed."""

CONCURRENT_REQUESTS = 16

RETRY_SECONDS = 1.0

_FORCE = "--force frees the pods of every database, and asks none"

logger = logging.getLogger(__name__)


async def clean_up(settings: Settings, namespaces: Sequence[str], *, force: bool) -> None:
    """Free the run pods and SparkApplications of some namespaces (empty: all).

    With `force`: of every database; otherwise only of this database. Raises Refused if an operator leads (except with
    `force`), or if some objects could not be freed.
    """
    async with Api(find_access()) as api, _no_other_leader(settings, api, force=force) as right:
        freed = await _free_all(api, namespaces, right)
    if freed.refusals:
        raise Refused(f"not everything could be freed: {freed.refusals[0]}")


async def uninstall(settings: Settings, namespaces: Sequence[str], deployment: str, wait: float) -> None:
    """Stop the operator of a Deployment (NAMESPACE/NAME), and free its objects. Called before the chart is uninstalled.

    If Postgres does not answer for `wait` seconds, or has no address, free the pods of every database. If another
    operator leads, free none. Objects that could not be freed are logged, and are no error: an error would keep the
    chart from being uninstalled. After an error or SIGTERM, start the operator again, because it is not deleted then.
    """
    async with Api(find_access()) as api, _stopped(api, deployment):
        try:
            freed = await _free_own(settings, api, namespaces, wait)
        except Refused as error:
            logger.warning("its run pods are left alone: %s", error)
            return
        except (InvalidInput, Unreachable, SchemaMismatch) as error:
            reason = error.args[0].removesuffix(f"; {_FORCE}")
            logger.warning("%s; so the run pods of every database are freed", reason)
            freed = await _free_all(api, namespaces, _WithoutLeadership())
    for refusal in freed.refusals:
        logger.warning("%s", refusal)


async def _free_own(settings: Settings, api: Api, namespaces: Sequence[str], wait: float) -> "_Freed":
    """Free the objects of this database, once no operator leads. Raises Unreachable after `wait` seconds."""
    until, logged = time.monotonic() + wait, False
    while True:
        try:
            async with _no_other_leader(settings, api, force=False, wait=LEADER_SECONDS) as right:
                freed = await _free_all(api, namespaces, right)
                if not freed.refusals:
                    await right.forget_home()
                return freed
        except Unreachable as error:
            if time.monotonic() >= until:
                raise
            if not logged:
                logger.info("%s; it is asked again, for %.0f s", error.args[0].removesuffix(f"; {_FORCE}"), wait)
            logged = True
        await asyncio.sleep(RETRY_SECONDS)


async def free_deleted_namespace(api: Api, engine: str) -> None:
    """Free the objects in the operator's own namespace, if that is being deleted. Called at the end of an operator.

    No other process would free them: no new operator can start in such a namespace.
    """
    namespace = api.access.namespace
    if not await _is_terminating(api, namespace):
        return
    logger.info("namespace %s is being deleted, and this operator with it: its run pods are freed", namespace)
    for refusal in (await _free_all(api, [namespace], _WithoutLeadership(engine))).refusals:
        logger.warning("%s", refusal)


async def _is_terminating(api: Api, namespace: str) -> bool:
    """Return whether a namespace is being deleted. A dry-run create shows it, because few accounts may read it."""
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
    """Scale a Deployment down to 0. Scale it up again if the block fails or this program gets SIGTERM."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    stopping = asyncio.create_task(_scale(api, deployment, 0))
    try:
        await asyncio.shield(stopping)  # after SIGTERM, its result is needed to scale up again
        yield
    except (asyncio.CancelledError, Exception) as error:
        with suppress(DataflowError):
            if replicas := await stopping:
                await _scale(api, deployment, replicas)
        if isinstance(error, asyncio.CancelledError):
            raise Refused("it was ended before everything was freed, as by its time limit") from None
        raise


async def _scale(api: Api, deployment: str, replicas: int) -> int:
    """Set the replicas of a Deployment; return the previous number. A deleted Deployment is no error."""
    namespace, _, name = deployment.partition("/")
    try:
        answer = await api.patch_merge(DEPLOYMENTS, namespace, f"{name}/scale", {"spec": {"replicas": replicas}})
    except ClusterRefused as error:
        logger.warning("the operator could not be %s: %s", "started again" if replicas else "stopped", error)
        return 0
    logger.info("Deployment %s is %s", deployment, "started again" if replicas else "stopped")
    return int((answer.get("status") or {}).get("replicas") or 0)


async def _free_pod(api: Api, pod: Mapping[str, Any]) -> None:
    await free_pod(api, parse_pod(pod), {})


async def _free_application(api: Api, application: Mapping[str, Any]) -> None:
    await free_application(api, parse_application(application), {})


@dataclass(frozen=True)
class _Kind:
    """A kind of objects with our finalizer.

    `what`: its name for people. `label`: the label with the identity of the database. `chosen`: a label that all of
    them have. `free`: removes the finalizer.
    """

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
class _WithoutLeadership:
    """No lease is held. `engine`: the identity of the database; None for every database."""

    engine: str | None = None

    async def renew(self) -> None:
        """Do nothing."""

    async def forget_home(self) -> None:
        """Do nothing."""


class _Leadership:
    """The leadership over one database. Only its runs are freed."""

    def __init__(self, store: Store, engine: str) -> None:
        self.engine: str | None = engine
        self._store = store
        self._lease = str(uuid.uuid4())

    async def renew(self) -> None:
        """Acquire or renew the leadership. Raises Refused while an operator leads."""
        host = Host(f"cleanup on {socket.gethostname()}", "")
        if await acquire_leadership(self._store, self._lease, host, LEASE_SECONDS) is None:
            raise Refused(
                "an operator leads: stop it first (one that was killed leads for 20 seconds more); its pods would be "
                f"freed before their outcomes are committed; {_FORCE}"
            )

    async def forget_home(self) -> None:
        """Let the next operator lead this database, whatever its service account is."""
        await forget_home(self._store)

    async def end(self) -> None:
        """Give up the leadership, so that an operator can lead at once."""
        await resign(self._store, self._lease, "a clean-up has ended")


@asynccontextmanager
async def _no_other_leader(
    settings: Settings, api: Api, *, force: bool, wait: float = 0.0
) -> AsyncIterator[_WithoutLeadership | _Leadership]:
    """Ensure that no operator leads during the block. `wait`: seconds to wait until none leads."""
    if force:
        yield _WithoutLeadership()
        return
    if not has_named_database(settings):
        raise InvalidInput(f"DATAFLOW_DSN is not set, so nobody knows whether an operator leads; {_FORCE}")
    try:
        async with open_store(settings, size=1) as store:
            await _require_own_database(store, api)
            right = _Leadership(store, await identity(store))
            await _acquire(right, wait)
            try:
                yield right
            finally:
                await right.end()
    except (Unreachable, SchemaMismatch) as error:
        raise type(error)(f"{error} So nobody knows whether an operator leads; {_FORCE}") from error


async def _require_own_database(store: Store, api: Api) -> None:
    """Raise Refused if the database belongs to operators in another namespace: it is a copy of theirs.

    A person's account has no namespace, and may free the pods of any database.
    """
    account, namespace = await own_account(api), await home_namespace(store)
    if account is not None and namespace not in (None, account.namespace):
        raise Refused(f"this database belongs to operators in namespace {namespace}, and may be a copy of theirs")


async def _acquire(right: _Leadership, wait: float) -> None:
    until = time.monotonic() + wait
    while True:
        try:
            return await right.renew()
        except Refused:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(RETRY_SECONDS)


@dataclass
class _Freed:
    """The number of freed objects by namespace and kind, and the errors of others."""

    number: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)


async def _free_all(api: Api, namespaces: Sequence[str], right: _WithoutLeadership | _Leadership) -> _Freed:
    """Free the run pods and SparkApplications of some namespaces (empty: all), and log how many."""
    freed = _Freed()
    for namespace, kind in product(namespaces or (None,), _KINDS):
        try:
            await _free_kind(api, namespace, kind, right, freed)
        except ClusterRefused as error:
            if kind.resource is not APPLICATIONS or error.code not in (403, 404):  # SparkApplications are optional
                freed.refusals.append(str(error))
            elif error.code == 403:
                logger.warning("SparkApplications of runs, where there are any, are not freed: %s", error)
    for (place, what), number in sorted(freed.number.items()):
        logger.info("namespace %s: %s freed", place, counted(number, what))
    if not freed.number and not freed.refusals:
        where = f"namespace {', '.join(namespaces)}" if namespaces else "the cluster"
        logger.info("no run pod in %s is kept by finalizer %s", where, names.FINALIZER)
    return freed


async def _free_kind(
    api: Api, namespace: str | None, kind: _Kind, right: _WithoutLeadership | _Leadership, freed: _Freed
) -> None:
    chosen = selector({} if right.engine is None else {kind.label: right.engine}, [kind.chosen])
    free = asyncio.Semaphore(CONCURRENT_REQUESTS)

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
        if error.code not in (404, 409):  # it was deleted meanwhile
            freed.refusals.append(str(error))
    except DataflowError as error:
        freed.refusals.append(str(error))
    else:
        freed.number[found["metadata"]["namespace"], kind.what] += 1
