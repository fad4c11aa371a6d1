"""Whatever users write into ids, reasons and logs, every page shows it as text. The application runs in process."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import count
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opendataflow.dashboard.access import HOST, LaptopAccess
from opendataflow.dashboard.server import application
from opendataflow.dashboard.templating import link
from opendataflow.stdio import visible
from opendataflow.store.database import Database
from opendataflow.store.store import Store
from tests.sql import graph
from tests.sql.conftest import Connection

MARKUP = (
    '"><script>alert(1)</script>',
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% raw %}",
    "</title></pre><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "<!--",
    "]]>&#60;script&#62;",
    "\u202eevil\u2066",
    "../../etc/passwd?x=1&y=2#z",
)
LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
IDS = st.sampled_from(MARKUP) | st.text(LETTERS, min_size=1, max_size=40)
TEXTS = st.sampled_from(MARKUP) | st.text(LETTERS, min_size=1, max_size=80)


class Outline(HTMLParser):
    """The kinds of elements of a page with the names of their attributes, its text, and the addresses of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, tuple[str, ...]]] = set()
        self.text = ""
        self.addresses: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(name for name, _ in attributes)))
        self.addresses += [str(value) for name, value in attributes if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass(frozen=True)
class Site:
    """A dashboard in this process, and the loop that it runs in."""

    runner: asyncio.Runner
    client: TestClient[Any, Any]
    db: Connection
    lease: str

    def page(self, path: str) -> Outline:
        """Return a page."""

        async def read() -> str:
            async with self.client.get(path) as answer:
                assert answer.status == 200, await answer.text()
                return await answer.text()

        return Outline(self.runner.run(read()))


@pytest.fixture(scope="module")
def site(lasting_dsn: str, shared: Connection) -> Iterator[Site]:
    with asyncio.Runner() as runner:
        access = LaptopAccess()

        async def begin() -> tuple[Database, TestClient[Any, Any]]:
            database = await Store.open(lambda: lasting_dsn, 2)
            client = TestClient(TestServer(application(database, access, "a person"), host=HOST))
            await client.start_server()
            async with client.get("/", params={"token": access.token}) as answer:
                assert answer.status == 200
            return database, client

        database, client = runner.run(begin())
        yield Site(runner, client, shared, graph.open_lease(shared))
        ends: list[Callable[[], Awaitable[None]]] = [client.close, database.close]
        for end in ends:
            runner.run(_called(end))


async def _called(end: Callable[[], Awaitable[None]]) -> None:
    await end()


_NUMBERS = count()


def write(site: Site, data_id: str, text: str) -> dict[str, str]:
    """Write a job with a failed run whose texts are given. Return the pages about it."""
    job, source = f"job{next(_NUMBERS)}", f"source{next(_NUMBERS)}"
    output = f"output{next(_NUMBERS)}"
    graph.apply(
        site.db,
        [graph.source(source, data_id), graph.dataset(output)],
        [graph.job(job, [source], [output], retry_limit=0, pipeline=text.replace("/", "") or "-")],
    )
    [run] = graph.claim(site.db, site.lease, job, 1)
    steps = [{"ordinal": 1, "name": text, "status": "FAILED", "stdout": text, "error": text}]
    graph.end(site.db, run, "FAILED", message=text, log_tail=f"{text}\n", steps=steps)
    return {
        "overview": "/",
        "graph": "/graph",
        "pipelines": "/pipelines",
        "search": link("search", text=data_id),
        "job": link("job", id=job, part=data_id, state="FAILED"),
        "chunk": link("chunk", job=job, id=data_id),
        "run": link("run", id=run["run"]),
        "action": link("act", owner=job, verb="resubmit", id=data_id),
        "dataset": link("dataset", id=output, part=data_id),
    }


@pytest.fixture(scope="module")
def harmless(site: Site) -> dict[str, set[tuple[str, tuple[str, ...]]]]:
    """The kinds of elements of each page, if all texts are harmless. There is more than one page of jobs."""
    graph.apply(site.db, [graph.source("many")], [graph.job(f"other{number}", ["many"], []) for number in range(50)])
    return {name: site.page(path).elements for name, path in write(site, "harmless", "harmless").items()}


def lines(text: str) -> str:
    return re.sub(r"\s+", " ", visible(text)).strip()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data_id=IDS.filter(lambda text: visible(text) == text.strip()), text=TEXTS)
def test_markup_is_text_on_every_page(
    site: Site, harmless: dict[str, set[tuple[str, tuple[str, ...]]]], data_id: str, text: str
) -> None:
    for name, path in write(site, data_id, text).items():
        page = site.page(path)
        assert page.elements - harmless[name] == set(), name
        assert all(re.match(r"/(?!/)|#main$", address) for address in page.addresses), name
        if name in ("chunk", "run", "job", "action"):
            assert lines(data_id) in lines(page.text), name
        if name in ("chunk", "run"):
            assert lines(text) in lines(page.text), name
