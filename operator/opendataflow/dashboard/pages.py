"""The pages: each handler reads the database, makes a view model, and renders its template."""

import math

from aiohttp import web

from opendataflow.dashboard.access import Handler
from opendataflow.dashboard.grid import Cells
from opendataflow.dashboard.models import CHOICES, Choice, Failure, Overview, Page, job_line, job_page, paging
from opendataflow.dashboard.templating import render
from opendataflow.errors import DataflowError, InvalidInput, UnknownThing, Unreachable
from opendataflow.store import dashboard
from opendataflow.store.database import Database

DATABASE: web.AppKey[Database] = web.AppKey("database", Database)
CELLS: web.AppKey[Cells] = web.AppKey("cells", Cells)
ROUTES = web.RouteTableDef()
_JOBS = 50
_TASKS = 25
_RUNS = 10
_IDS = 500
_MOST_OFFSET = 10_000_000


def show(template: str, page: Page, status: int = 200) -> web.Response:
    """Return the answer with a rendered page."""
    return web.Response(text=render(template, page), content_type="text/html", status=status)


def text_of(request: web.Request, name: str) -> str:
    """Return a parameter, or an empty text. Raise InvalidInput for a text that Postgres can't hold."""
    text = request.query.get(name, "")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise InvalidInput(f"`{name}` has a character that no id has")
    return text


def offset_of(request: web.Request) -> int:
    """Return the number of entries before the page. Raise InvalidInput if it is no small number."""
    text = request.query.get("from", "0")
    if not (text.isascii() and text.isdecimal() and int(text[:9]) <= _MOST_OFFSET and len(text) < 9):
        raise InvalidInput(f"`from` is a number of at most {_MOST_OFFSET}")
    return int(text)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors with a page: one sentence about the cause, and one about the remedy."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        known = (
            f"There is no page {request.path}" if error.status == 404 else f"{error.reason}: the dashboard only reads"
        )
        return _failure(request, error.status, known, "Start with the list of jobs.")
    except UnknownThing as error:
        return _failure(request, 404, str(error), "It may have been deleted, or its id was typed wrong.")
    except InvalidInput as error:
        return _failure(request, 400, str(error), "Start with the list of jobs.")
    except Unreachable as error:
        return _failure(request, 503, str(error), "This page loads again as soon as the database answers.")
    except DataflowError as error:
        return _failure(request, 500, str(error), "Start with the list of jobs.")


def _failure(request: web.Request, status: int, sentence: str, remedy: str) -> web.Response:
    titles = {503: "The database does not answer", 404: "Not found", 400: "Not understood"}
    page = Failure(titles.get(status, "Not possible"), "", str(request.rel_url), sentence, remedy)
    return show("failure.html", page, status)


@ROUTES.get("/")
async def overview(request: web.Request) -> web.Response:
    """Show all jobs, those that fail first."""
    offset = offset_of(request)
    rows = await dashboard.jobs(request.app[DATABASE], offset, _JOBS)
    total = rows[0]["jobs"] if rows else 0
    page = Overview(
        "Jobs", "jobs", str(request.rel_url), tuple(map(job_line, rows)), paging(offset, len(rows), _JOBS, total)
    )
    return show("overview.html", page)


@ROUTES.get("/job")
async def job(request: web.Request) -> web.Response:
    """Show one job: its grid, its chunks as a table, its runs, its history and its settings."""
    database, name = request.app[DATABASE], text_of(request, "id")
    choice = _choice(request)
    found = await dashboard.job(database, name)
    if found is None:
        raise UnknownThing(f"there is no job {name}")
    stale = choice.state == "STALE" if choice.state in ("DONE", "STALE") else None
    state = "DONE" if choice.state == "STALE" else choice.state
    chosen = dashboard.TaskFilter(state or None, stale, choice.part or None)
    tasks = await dashboard.tasks(database, name, chosen, choice.offset, choice.limit)
    runs = await dashboard.runs(database, name, None, _RUNS)
    return show("job.html", job_page(found, tasks, runs, choice, str(request.rel_url)))


def _choice(request: web.Request) -> Choice:
    state = text_of(request, "state")
    if state and state not in CHOICES:
        raise InvalidInput(f"`state` is one of {', '.join(CHOICES)}")
    return Choice(state, text_of(request, "part"), offset_of(request), _TASKS)


@ROUTES.get("/cells")
async def cells(request: web.Request) -> web.Response:
    """Return one letter for each chunk of a job. The browser asks again with the tag of what it has."""
    found, wait = await request.app[CELLS].of_job(text_of(request, "job"))
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if wait:
        headers["Retry-After"] = str(math.ceil(wait))
    if request.headers.get("If-None-Match") == found.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.letters, content_type="application/octet-stream", headers=headers)


@ROUTES.get("/ids")
async def ids(request: web.Request) -> web.Response:
    """Return the data ids of a job at the positions of its grid, a block at a time."""
    found = await dashboard.ids(request.app[DATABASE], text_of(request, "job"), offset_of(request), _IDS)
    return web.json_response(found)
