"""The pages: each handler reads the database, makes a view model, and renders its template."""

from aiohttp import web

from opendataflow.dashboard.access import Handler
from opendataflow.dashboard.models import Failure, Overview, Page, job_line, paging
from opendataflow.dashboard.templating import render
from opendataflow.errors import DataflowError, InvalidInput, UnknownThing, Unreachable
from opendataflow.store import dashboard
from opendataflow.store.database import Database

DATABASE: web.AppKey[Database] = web.AppKey("database", Database)
ROUTES = web.RouteTableDef()
_JOBS = 50
_MOST_OFFSET = 10_000_000


def show(template: str, page: Page, status: int = 200) -> web.Response:
    """Return the answer with a rendered page."""
    return web.Response(text=render(template, page), content_type="text/html", status=status)


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
