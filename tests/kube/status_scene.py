"""A catalog, a store and a status writer on a real cluster, without the operator around them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import dict_row

from opendataflow.control.resources.bodies import PLURALS, parse_entry
from opendataflow.control.resources.catalog import Catalog, Entry, Key
from opendataflow.control.status.status_writer import StatusWriter
from opendataflow.core.status.status_events import StatusEvent
from opendataflow.errors import NotStarted
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import Api, Resource
from opendataflow.names import API_VERSION
from opendataflow.store.store import Store
from tests.kube.cluster import api as kube
from tests.kube.jobs import dataset, job
from tests.sql import graph
from tests.waiting import until, wait_until


class CountingApi(Api):
    """A client that remembers when which status was written. `taken`: does something between a write that the API
    server has taken and its answer."""

    writes: list[tuple[float, str]]
    taken: Callable[[str, Mapping[str, Any]], None]

    async def patch_merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any], *, status: bool = False
    ) -> dict[str, Any]:
        self.writes.append((asyncio.get_running_loop().time(), name))
        shown = await super().patch_merge(resource, namespace, name, patch, status=status)
        self.taken(name, shown)
        return shown

    def of(self, name: str) -> list[float]:
        """When the status of one was written."""
        return [at for at, written in self.writes if written == name]


@dataclass
class Around:
    """What is known beside Postgres, and the recorded events."""

    start_errors: dict[str, NotStarted] = field(default_factory=dict)
    recorded: list[str] = field(default_factory=list)

    def start_error(self, name: str) -> NotStarted | None:
        return self.start_errors.get(name)

    def pod_problems_by_job(self) -> dict[str, dict[str, tuple[int, str]]]:
        return {}

    def record(self, key: Key, uid: str, event: StatusEvent) -> None:
        assert uid
        self.recorded.append(f"{key.name}: {event.reason}")


@dataclass
class StatusScene:
    """All of it. `db`: for changing what Postgres knows."""

    cluster: kube.Api
    namespace: str
    store: Store
    api: CountingApi
    db: psycopg.Connection[dict[str, Any]]
    catalog: Catalog = field(default_factory=Catalog)
    around: Around = field(default_factory=Around)

    def path(self, kind: str, name: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{PLURALS[kind]}/{name}"

    def put(self, body: Mapping[str, Any], *, accept: bool = True) -> Entry:
        """Create a resource and put it into the catalog; `accept`: as if the store had taken it over."""
        path = self.path(body["kind"], "")
        entry = parse_entry(body["kind"], self.cluster.create(path.removesuffix("/"), body))
        self.catalog.put(entry)
        if accept:
            self.catalog.accept(entry)
        return entry

    def declare(self, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> None:
        """Declare data sets and jobs of the namespace in Postgres."""
        own = partial(graph.of_namespace, self.namespace)
        graph.apply(self.db, list(map(own, datasets)), list(map(own, jobs)))

    def put_job(self, chunks: int = 2) -> Entry:
        """Data sets a and b, and a job j between them, in the cluster and in Postgres."""
        self.declare([graph.dataset("a", *map(str, range(chunks))), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])
        self.put(dataset("a"))
        return self.put(job("j", ["a"], ["b"]))

    def status(self, kind: str, name: str) -> dict[str, Any]:
        """As the cluster shows it."""
        found: dict[str, Any] = self.cluster.get(self.path(kind, name)).get("status", {})
        return found

    async def until(self, kind: str, name: str, true: Callable[[dict[str, Any]], bool], seconds: float = 180) -> None:
        """Wait until a status is as wanted."""
        wanted = f"the status of {kind} {name} is as wanted"
        await asyncio.to_thread(wait_until, lambda: true(self.status(kind, name)), wanted, seconds)

    async def until_recorded(self, *events: str, seconds: float = 180) -> None:
        """Wait until these events are recorded, each of them once: that comes a moment after the status."""
        await until(lambda: set(events) <= set(self.around.recorded), f"{events} are recorded", seconds)
        assert all(self.around.recorded.count(event) == 1 for event in events), self.around.recorded

    @asynccontextmanager
    async def writer(self, failed: Callable[[str], None] = lambda _: None) -> AsyncIterator[StatusWriter]:
        """The status writer at work."""
        made = StatusWriter(self.store, self.api, self.catalog, self.around, self.around, failed=failed)
        async with at_work(made.run()):
            yield made


@asynccontextmanager
async def at_work(run: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something that must not end by itself, and cancel it at the end."""
    future = asyncio.create_task(run)
    try:
        yield
        assert not future.done(), future.result()
    finally:
        future.cancel()
        await asyncio.gather(future, return_exceptions=True)


@asynccontextmanager
async def counting_api(cluster: kube.Api) -> AsyncIterator[CountingApi]:
    """A client of the shared cluster."""
    async with CountingApi(from_kubeconfig([cluster.kubeconfig])) as api:
        api.writes, api.taken = [], lambda _name, _shown: None
        yield api


@asynccontextmanager
async def status_scene(cluster: kube.Api, namespace: str, dsn: str) -> AsyncIterator[StatusScene]:
    """Open everything."""
    async with counting_api(cluster) as api:
        store = await Store.open(lambda: dsn)
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as db:
            try:
                yield StatusScene(cluster, namespace, store, api, db)
            finally:
                await store.close()


def condition_status(status: Mapping[str, Any], kind: str) -> str:
    """The status of a condition: True, False, Unknown, or nothing."""
    found = [c["status"] for c in status.get("conditions", []) if c["type"] == kind]
    return found[0] if found else ""
