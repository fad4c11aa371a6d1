"""Stands in for the operator's loop where only requests are tested: looks at a namespace and hands on what it finds."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opendataflow.control.resources.bodies import parse_entry
from opendataflow.control.resources.catalog import Entry
from opendataflow.control.resources.requests import ACTIONS, Requests
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import Api
from opendataflow.store.store import Store

_PAUSE_SECONDS = 0.05


async def entries(api: Api, namespace: str) -> list[Entry]:
    """The actions of a namespace, as they are now."""
    return [parse_entry("DataFlowAction", body) async for page, _ in api.pages(ACTIONS, namespace) for body in page]


@contextmanager
def operating(dsn: str, kubeconfig: Path, namespace: str) -> Iterator[None]:
    """Do the actions of a namespace, in a thread of its own, until the block ends."""
    stop = threading.Event()

    async def work() -> None:
        store = await Store.open(lambda: dsn)
        try:
            async with Api(from_kubeconfig([kubeconfig])) as api:
                requests = Requests(store, api, lambda _: None)
                while not stop.is_set():
                    for entry in await entries(api, namespace):
                        await requests.handle_action(entry)
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
