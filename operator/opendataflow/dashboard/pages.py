"""The pages: each handler reads the database and makes a view model."""

import asyncio
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from opendataflow.dashboard.access import Handler
from opendataflow.dashboard.details import chunk_page, dataset_page, run_page
from opendataflow.dashboard.finding import found_page, pipelines_page
from opendataflow.dashboard.graph import graph_page
from opendataflow.dashboard.grid import Cells
from opendataflow.dashboard.logs import read_log
from opendataflow.dashboard.models import CHOICES, Choice, Failure, Overview, Page, job_line, job_page, paging
from opendataflow.dashboard.templating import render
from opendataflow.errors import DataflowError, InvalidInput, Refused, UnknownThing, Unreachable
from opendataflow.names import ChunkStatus
from opendataflow.store import dashboard
from opendataflow.store.dashboard import Part
from opendataflow.store.database import Database

TOKEN: web.AppKey[str] = web.AppKey("token", str)
"""The token of the forms; empty if the dashboard only reads."""
CHOSEN = ("state", "first", "last", "part")
"""The parameters that choose tasks of a job."""
DATABASE: web.AppKey[Database] = web.AppKey("database", Database)
CELLS: web.AppKey[Cells] = web.AppKey("cells", Cells)
ROUTES = web.RouteTableDef()
_JOBS = 30
_TASKS = 25
_RUNS = 10
_IDS = 500
_CHUNKS = 50
_FOUND = 20
_NEWEST_RUN = 2**63 - 1
_MOST_NUMBER = 10_000_000

Maker = Callable[[web.Request], Awaitable[Page]]


def _page(path: str) -> Callable[[Maker], Maker]:
    """Register a function that makes a page. A browser that has the page of this version gets 304."""

    def register(make: Maker) -> Maker:
        async def answer(request: web.Request) -> web.Response:
            version = await dashboard.version(request.app[DATABASE])  # before the rest: never newer than the page
            if request.headers.get("If-None-Match") == f'"{version}"':
                return web.Response(status=304)
            return show(request, await make(request), version)

        ROUTES.get(path)(answer)
        return make

    return register


def show(request: web.Request, page: Page, version: str = "", status: int = 200) -> web.Response:
    """Return the answer with a rendered page. `version`: of the state that it shows; empty: read it again."""
    text = render(page, "" if page.is_moving else version, request.app[TOKEN])
    return web.Response(text=text, content_type="text/html", status=status)


def text_of(request: web.Request, name: str) -> str:
    """Return a parameter, or an empty text. Raise InvalidInput for a text that Postgres can't hold."""
    text = request.query.get(name, "")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise InvalidInput(f"`{name}` has a character that no id has")
    return text


def offset_of(request: web.Request) -> int:
    """Return the number of entries before the page. Raise InvalidInput if it is no small number."""
    return number_of(request.query.get("from", "0"), "from")


def number_of(text: str, name: str) -> int:
    """Return a number. Raise InvalidInput if the parameter with this name is no small number."""
    if not (text.isascii() and text.isdecimal() and int(text[:9]) <= _MOST_NUMBER and len(text) < 9):
        raise InvalidInput(f"`{name}` is a number of at most {_MOST_NUMBER}")
    return int(text)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors with a page: one sentence about the cause, and one about the remedy."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        known = f"There is no page {request.path}" if error.status == 404 else error.reason
        return _failure(request, error.status, known, "Start with the list of jobs.")
    except UnknownThing as error:
        return _failure(request, 404, str(error), "It may have been deleted, or its id was typed wrong.")
    except InvalidInput as error:
        return _failure(request, 400, str(error), "Start with the list of jobs.")
    except Refused as error:
        return _failure(request, 409, str(error), "Nothing was changed.")
    except Unreachable as error:
        return _failure(request, 503, str(error), "This page loads again as soon as the database answers.")
    except DataflowError as error:
        return _failure(request, 500, str(error), "Start with the list of jobs.")


def _failure(request: web.Request, status: int, sentence: str, remedy: str) -> web.Response:
    titles = {503: "The database does not answer", 404: "Not found", 400: "Not understood"}
    page = Failure(titles.get(status, "Not possible"), "", str(request.rel_url), sentence, remedy)
    return show(request, page, status=status)


@_page("/")
async def overview(request: web.Request) -> Page:
    """Make the page with all jobs, those that fail first."""
    offset = offset_of(request)
    rows = await dashboard.jobs(request.app[DATABASE], offset, _JOBS)
    shown = paging(offset, len(rows), _JOBS, rows[0]["jobs"] if rows else 0)
    return Overview("Jobs", "jobs", str(request.rel_url), tuple(map(job_line, rows)), shown)


@_page("/graph")
async def graph(request: web.Request) -> Page:
    """Make the page with the graph of all data sets and jobs."""
    return graph_page(await dashboard.graph(request.app[DATABASE]), str(request.rel_url))


@_page("/pipelines")
async def pipelines(request: web.Request) -> Page:
    """Make the page with the pipelines of all jobs."""
    return pipelines_page(await dashboard.pipelines(request.app[DATABASE]), str(request.rel_url))


@_page("/search")
async def search(request: web.Request) -> Page:
    """Make the page with everything that has a text in its id."""
    text = text_of(request, "text").strip()
    found = await dashboard.search(request.app[DATABASE], text, _FOUND + 1) if text else []
    return found_page(found, text, _FOUND, str(request.rel_url))


@_page("/job")
async def job(request: web.Request) -> Page:
    """Make the page of a job: its grid, its chunks as a table, its runs, its history and its settings."""
    database, name = request.app[DATABASE], text_of(request, "id")
    choice = choice_of(request)
    found = await dashboard.job(database, name)
    if found is None:
        raise UnknownThing(f"there is no job {name}")
    state, stale = state_of(choice)
    tasks = await dashboard.tasks(database, name, state, stale, part_of(request), choice.offset, choice.limit)
    runs = await dashboard.runs(database, name, None, _RUNS)
    return job_page(found, tasks, runs, choice, str(request.rel_url))


def state_of(choice: Choice) -> tuple[str | None, bool | None]:
    """Return the state of the chosen tasks, and whether they are stale. None: it does not matter."""
    stale = choice.state == "STALE" if choice.state in ("DONE", "STALE") else None
    return "DONE" if choice.state == "STALE" else choice.state or None, stale


def choice_of(request: web.Request) -> Choice:
    """Return the choice of tasks in an address. Raise InvalidInput for an unknown state."""
    state = text_of(request, "state")
    if state and state not in CHOICES:
        raise InvalidInput(f"`state` is one of {', '.join(CHOICES)}")
    first, last, part = (text_of(request, name) for name in CHOSEN[1:])
    return Choice(state, first, last, part, offset_of(request), _TASKS)


def part_of(request: web.Request) -> Part:
    """Return the range and the part of the id in an address."""
    first, last, text = (text_of(request, name) or None for name in CHOSEN[1:])
    return Part(first, last, text)


@ROUTES.get("/cells")
async def cells(request: web.Request) -> web.Response:
    """Return one letter for each chunk of a job. The browser asks again with the tag of what it has."""
    found, wait = await request.app[CELLS].of_job(text_of(request, "job"), part_of(request))
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if wait:
        headers["Retry-After"] = str(math.ceil(wait))
    if request.headers.get("If-None-Match") == found.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.letters, content_type="application/octet-stream", headers=headers)


@ROUTES.get("/ids")
async def ids(request: web.Request) -> web.Response:
    """Return the data ids of a job at the positions of its grid, a block at a time."""
    database, job = request.app[DATABASE], text_of(request, "job")
    return web.json_response(await dashboard.ids(database, job, part_of(request), offset_of(request), _IDS))


@_page("/chunk")
async def chunk(request: web.Request) -> Page:
    """Make the page of a chunk: why it does not run, the five answers, its versions, its attempts and its log."""
    database, job, data_id = request.app[DATABASE], text_of(request, "job"), text_of(request, "id")
    found = await dashboard.chunk(database, job, data_id)
    if found is None:
        raise UnknownThing(f"job {job} has no task for {data_id}")
    runs = await dashboard.runs(database, job, data_id, _RUNS)
    last = await dashboard.run(database, runs[0]["run"]) if runs else None
    log = await asyncio.to_thread(read_log, last["log"]) if last else None
    return chunk_page(found, runs, last, log, str(request.rel_url))


@_page("/run")
async def run(request: web.Request) -> Page:
    """Make the page of a run: how it ended, what it read and wrote, its steps and its log."""
    text = text_of(request, "id")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else _NEWEST_RUN + 1
    found = await dashboard.run(request.app[DATABASE], number) if number <= _NEWEST_RUN else None
    if found is None:
        raise UnknownThing(f"there is no run {text}")
    log = await asyncio.to_thread(read_log, found["log"])
    return run_page(found, log, str(request.rel_url))


@_page("/dataset")
async def dataset(request: web.Request) -> Page:
    """Make the page of a data set: its place, its producer, its consumers and its chunks."""
    database, name, status = request.app[DATABASE], text_of(request, "id"), text_of(request, "status")
    if status and status not in list(ChunkStatus):
        raise InvalidInput(f"`status` is one of {', '.join(ChunkStatus)}")
    found = await dashboard.dataset(database, name)
    if found is None:
        raise UnknownThing(f"there is no data set {name}")
    choice = Choice(status, part=text_of(request, "part"), offset=offset_of(request), limit=_CHUNKS)
    chunks = await dashboard.chunks(database, name, status or None, choice.part or None, choice.offset, _CHUNKS)
    return dataset_page(found, chunks, choice, str(request.rel_url))
