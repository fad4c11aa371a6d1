"""An open page follows the database, survives its absence, and costs nothing while nobody sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from opendataflow.core.runs.logs import LOG
from opendataflow.names import run_name
from tests.e2e.conftest import Program
from tests.e2e.dashboard.browser import visiting
from tests.e2e.dashboard.serving import Dashboard, dashboard
from tests.kube.postgres import Server
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.waiting import wait_until

JOB = "/job?id=summary"
CHUNK = "/chunk?job=summary&id=2013-12"
SEE = "document.dispatchEvent(new Event('visibilitychange'))"
HIDE = f"Object.defineProperty(document, 'hidden', {{get: () => true, configurable: true}}); {SEE}"
SHOW = f"delete document.hidden; {SEE}"


def visit(page: Page, dashboard: Dashboard, path: str) -> None:
    """Open a page, and wait until it is current."""
    page.goto(dashboard.root + path)
    page.wait_for_selector("body[data-live=current]")


@pytest.fixture
def tab(browser: Browser, served: Dashboard) -> Iterator[Page]:
    with visiting(browser, served) as page:
        yield page


@pytest.fixture
def released(story: Connection) -> Iterator[None]:
    """Undo the hold of a test."""
    yield
    graph.ask(story, "release", "summary", "2013-12")


@pytest.mark.usefixtures("released")
def test_a_change_is_shown_without_a_reload_and_what_was_typed_stays(
    tab: Page, served: Dashboard, story: Connection
) -> None:
    visit(tab, served, JOB)
    tab.get_by_label("Id contains").fill("typed")
    tab.evaluate("window.same = true")
    graph.ask(story, "hold", "summary", "2013-12")
    expect(tab.get_by_role("row", name="2013-12").get_by_text("HELD")).to_be_visible()
    wait_until(lambda: tab.evaluate("String.fromCharCode(grids[0].cells[11])") == "H", "the cell has its new state")
    expect(tab.get_by_label("Id contains")).to_have_value("typed")
    assert tab.evaluate("window.same")


@pytest.mark.usefixtures("released")
def test_what_was_opened_stays_open(tab: Page, served: Dashboard, story: Connection) -> None:
    visit(tab, served, CHUNK)
    tab.get_by_text("Is the data ready?").click()
    graph.ask(story, "hold", "summary", "2013-12")
    expect(tab.get_by_role("heading", level=1).locator("..")).to_contain_text("HELD")
    assert tab.locator("details[open]").count() == 1


@pytest.mark.usefixtures("released")
def test_a_hidden_tab_asks_for_nothing_until_it_is_seen_again(
    browser: Browser, tab: Page, served: Dashboard, story: Connection
) -> None:
    visit(tab, served, CHUNK)
    tab.evaluate(HIDE)
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    with visiting(browser, served) as other:
        visit(other, served, CHUNK)
        graph.ask(story, "hold", "summary", "2013-12")
        expect(other.get_by_role("heading", level=1).locator("..")).to_contain_text("HELD")
    assert asked == []
    expect(tab.get_by_role("heading", level=1).locator("..")).to_contain_text("WAITING")
    tab.evaluate(SHOW)
    expect(tab.get_by_role("heading", level=1).locator("..")).to_contain_text("HELD")


@pytest.mark.usefixtures("released")
def test_without_a_stream_a_page_asks_every_few_seconds(tab: Page, served: Dashboard, story: Connection) -> None:
    tab.route("**/events", lambda route: route.fulfill(status=204))
    visit(tab, served, CHUNK)
    graph.ask(story, "hold", "summary", "2013-12")
    expect(tab.get_by_role("heading", level=1).locator("..")).to_contain_text("HELD")


def test_the_log_of_an_active_run_grows(tab: Page, served: Dashboard, story: Connection, tmp_path: Path) -> None:
    [run] = story.execute("SELECT id, job FROM opendataflow.run WHERE job = 'delay' AND state = 'RUNNING'").fetchall()
    graph.raw(story, "UPDATE opendataflow.run SET runs_home = %s WHERE id = %s", str(tmp_path), run["id"])
    folder = tmp_path / run_name(run["job"], run["id"])
    folder.mkdir()
    with (folder / LOG).open("w") as log:
        for line in ("reading", "<b>writing</b>"):
            print(line, file=log, flush=True)
            if line == "reading":
                visit(tab, served, f"/run?id={run['id']}")
            expect(tab.get_by_role("region", name="Log")).to_contain_text(line)


@pytest.fixture
def server(open_folder: Path) -> Iterator[Server]:
    """A Postgres that a test may kill."""
    server = Server(open_folder)
    yield server
    server.leave()


def test_an_unreachable_database_is_shown_and_the_page_comes_back_by_itself(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    dsn = server.dsn
    Program(tmp_path, dsn).run("db", "migrate")
    with open_connection(dsn) as db:
        graph.apply(db, [graph.source("a", "1")], [graph.job("j", ["a"], [])])
    failed = r"the server responded with a status of 503"
    with (
        dashboard(dsn, tmp_path) as running,
        visiting(browser, running, failed) as tab,
        visiting(browser, running, failed) as late,
    ):
        visit(tab, running, "/job?id=j")
        server.crash()
        expect(tab.get_by_role("status").filter(has_text="Postgres")).to_be_visible()
        expect(tab.get_by_role("row", name="1 QUEUED")).to_be_visible()  # what it has stays
        late.goto(f"{running.root}/job?id=j")
        expect(late.get_by_role("heading", level=1)).to_have_text("The database does not answer")
        server.start()
        with open_connection(dsn) as db:
            graph.ask(db, "hold", "j", "1")
        for page in (tab, late):
            expect(page.get_by_role("row", name="1 HELD")).to_be_visible()
            expect(page.locator("#notice")).to_be_hidden()


def test_a_dashboard_that_has_ended_says_what_to_do(browser: Browser, dsn: str, tmp_path: Path) -> None:
    with dashboard(dsn, tmp_path) as first, visiting(browser, first, "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE") as tab:
        visit(tab, first, "/")
        first.end()
        expect(tab.get_by_role("status").filter(has_text="does not answer")).to_be_visible()
