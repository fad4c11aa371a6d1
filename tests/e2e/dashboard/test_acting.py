"""A person acts on chunks: a dry run first, then a reason, and the author is in the history. No other site can."""

import getpass
import re
from collections.abc import Iterator
from html import unescape
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.dashboard.browser import visiting
from tests.e2e.dashboard.serving import Answer, Dashboard, dashboard
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection

IDS = [f"c{number:03}" for number in range(150)]


@pytest.fixture(scope="module")
def running(lasting_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard for all tests. Each of them has a job of its own."""
    with dashboard(lasting_dsn, tmp_path_factory.mktemp("home")) as started:
        yield started


@pytest.fixture(scope="module")
def db(lasting_dsn: str) -> Iterator[Connection]:
    with open_connection(lasting_dsn) as connection:
        yield connection


_NUMBERS = count(1)


@pytest.fixture
def job(db: Connection) -> str:
    """A job over 150 READY chunks. Its output has the suffix -out."""
    name = f"job{next(_NUMBERS)}"
    graph.apply(
        db,
        [graph.source(f"{name}-in", *IDS), graph.dataset(f"{name}-out")],
        [graph.job(name, [f"{name}-in"], [f"{name}-out"])],
    )
    return name


def states(db: Connection, job: str) -> set[str]:
    """The states of all tasks of a job."""
    return {state for key, state in graph.tasks(db).items() if key.startswith(f"{job}/")}


def field(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found, page
    return unescape(found[1])


def confirm(running: Dashboard, path: str, **changes: str) -> Answer:
    """Open the form of an action, and send it as a browser does. `changes`: other values of its fields."""
    cookie = running.cookie()
    form = running.ask(path, Cookie=cookie).text
    fields = {"token": field(form, "token"), "changes": field(form, "changes"), "reason": "a test"}
    headers = {"Cookie": cookie, "Origin": running.root, "Sec-Fetch-Site": "same-origin"}
    return running.ask(path, "POST", fields | changes, **headers)


def authors(db: Connection, job: str, event: str) -> set[tuple[Any, Any]]:
    query = "SELECT DISTINCT actor, reason FROM opendataflow.history WHERE owner = %s AND event = %s"
    return {(row["actor"].partition("@")[0], row["reason"]) for row in db.execute(query, (job, event))}


def test_a_dry_run_changes_nothing_and_the_action_has_an_author(running: Dashboard, db: Connection, job: str) -> None:
    path = f"/act?owner={job}&verb=hold&first=c001&last=c003"
    shown = running.page(path)
    assert f"dataflow hold {job} c001 c002 c003" in unescape(shown)
    assert states(db, job) == {"QUEUED"}
    answer = confirm(running, path)
    assert (answer.status, "Done: 3 changed" in answer.text) == (200, True), answer.text
    held = [key for key, state in graph.tasks(db).items() if state == "HELD" and key.startswith(f"{job}/")]
    assert sorted(held) == [f"{job}/c001", f"{job}/c002", f"{job}/c003"]
    assert authors(db, job, "hold") == {(getpass.getuser(), "a test")}


@pytest.mark.parametrize(
    ("verb", "first", "state"),
    [
        ("hold", (), "HELD"),
        ("release", ("hold",), "QUEUED"),
        ("skip", (), "SKIPPED"),
        ("resubmit", ("end",), "QUEUED"),
        ("force", (), "QUEUED"),
        ("cancel", ("claim",), "RUNNING"),
    ],
)
def test_every_verb_of_tasks_works(
    running: Dashboard, db: Connection, job: str, verb: str, first: tuple[str, ...], state: str
) -> None:
    if "hold" in first:
        graph.ask(db, "hold", job, "c000")
    if {"claim", "end"} & set(first):
        [run] = graph.claim(db, graph.open_lease(db), job, 1)
        if "end" in first:
            graph.end(db, run, "DONE")
    answer = confirm(running, f"/act?owner={job}&verb={verb}&id=c000")
    assert answer.status == 200, answer.text
    assert "Done: 1 changed" in answer.text
    assert graph.task(db, job, "c000")["state"] == state


@pytest.mark.parametrize(("verb", "status"), [("accept", "READY"), ("reject", "FAILED"), ("publish", "READY")])
def test_every_verb_of_chunks_works(running: Dashboard, db: Connection, job: str, verb: str, status: str) -> None:
    [run] = graph.claim(db, graph.open_lease(db), job, 1)
    graph.end(db, run, "DONE")
    pending = "SELECT * FROM opendataflow.set_chunks(%s, '{c000}', 'PENDING', 'test')"
    db.execute(pending, (f"{job}-out",))
    answer = confirm(running, f"/act?owner={job}-out&dataset=yes&verb={verb}&part=c000")
    assert (answer.status, "Done: " in answer.text) == (200, True), answer.text
    assert graph.chunk(db, f"{job}-out", "c000")["status"] == status


def test_what_is_refused_is_shown_and_left_out(running: Dashboard, db: Connection, job: str) -> None:
    graph.claim(db, graph.open_lease(db), job, 1)
    path = f"/act?owner={job}&verb=hold&last=c001"
    assert "1 refused, and left out" in running.page(path)
    assert "Done: 1 changed" in confirm(running, path).text
    assert graph.task(db, job, "c001")["state"] == "HELD"


def test_more_than_a_hundred_chunks_need_the_name_of_the_job(running: Dashboard, db: Connection, job: str) -> None:
    path = f"/act?owner={job}&verb=skip"
    assert confirm(running, path).status == 400
    assert confirm(running, path, typed="k").status == 400
    assert states(db, job) == {"QUEUED"}
    assert confirm(running, path, typed=job).status == 200
    assert states(db, job) == {"SKIPPED"}


def test_a_form_that_has_shown_something_else_is_shown_again(running: Dashboard, db: Connection, job: str) -> None:
    answer = confirm(running, f"/act?owner={job}&verb=hold&last=c001", changes="3")
    assert (answer.status, "have changed since" in answer.text) == (409, True)
    assert states(db, job) == {"QUEUED"}


@pytest.mark.parametrize("reason", ["", " ", "two\nlines", "x" * 501])
def test_an_action_needs_a_reason_of_one_line(running: Dashboard, db: Connection, job: str, reason: str) -> None:
    assert confirm(running, f"/act?owner={job}&verb=hold&id=c000", reason=reason).status == 400
    assert states(db, job) == {"QUEUED"}


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", ["/act?owner={}&verb=hold&id=c000", "/limits?id={}"])
def test_a_form_of_another_site_is_refused(
    running: Dashboard, db: Connection, job: str, path: str, headers: dict[str, str]
) -> None:
    cookie = running.cookie()
    token = field(running.ask(f"/job?id={job}", Cookie=cookie).text, "token")
    form = {"token": token, "changes": "1", "reason": "evil", "change": "suspend"}
    assert running.ask(path.format(job), "POST", form, Cookie=cookie, **headers).status == 403
    assert states(db, job) == {"QUEUED"}
    assert not graph.value(db, "SELECT suspended FROM opendataflow.job WHERE id = %s", job)


@pytest.mark.parametrize("token", ["", "guess", "\u00e9"])
@pytest.mark.parametrize("path", ["/act?owner={}&verb=hold&id=c000", "/limits?id={}"])
def test_a_form_without_the_token_is_refused(
    running: Dashboard, db: Connection, job: str, path: str, token: str
) -> None:
    form = {"token": token, "changes": "1", "reason": "evil", "change": "suspend"}
    assert running.ask(path.format(job), "POST", form, Cookie=running.cookie()).status == 403
    assert states(db, job) == {"QUEUED"}
    assert not graph.value(db, "SELECT suspended FROM opendataflow.job WHERE id = %s", job)


def test_the_limits_of_a_job_are_changed(running: Dashboard, db: Connection, job: str) -> None:
    cookie = running.cookie()
    token = field(running.ask(f"/job?id={job}", Cookie=cookie).text, "token")
    for change in ("suspend", "scale"):
        form = {"token": token, "reason": "night", "change": change, "parallelism": "7"}
        answer = running.ask(f"/limits?id={job}", "POST", form, Cookie=cookie)
        assert (answer.status, answer.headers["Location"]) == (303, f"/job?id={job}")
    assert graph.value(db, "SELECT (suspended, parallelism)::text FROM opendataflow.job WHERE id = %s", job) == "(t,7)"
    assert authors(db, job, "suspend") == authors(db, job, "scale") == {(getpass.getuser(), "night")}


@pytest.mark.parametrize(
    ("path", "status"),
    [("?owner={}&verb=dance", 400), ("?owner=k&verb=hold&id=c000", 404), ("?owner={}&verb=hold&first=z", 409)],
)
def test_a_wrong_action_is_one_sentence(running: Dashboard, job: str, path: str, status: int) -> None:
    answer = running.ask(f"/act{path.format(job)}", Cookie=running.cookie())
    assert answer.status == status
    assert "failure" in answer.text


def test_a_dashboard_that_only_reads_takes_no_form(lasting_dsn: str, db: Connection, job: str, tmp_path: Path) -> None:
    with dashboard(lasting_dsn, tmp_path, "--read-only") as running:
        cookie = running.cookie()
        assert 'action="/act"' not in running.page(f"/job?id={job}")
        assert running.ask(f"/act?owner={job}&verb=hold&id=c000", Cookie=cookie).status == 409
        form = {"token": "", "changes": "1", "reason": "x"}
        assert running.ask(f"/act?owner={job}&verb=hold&id=c000", "POST", form, Cookie=cookie).status == 403
    assert states(db, job) == {"QUEUED"}


@pytest.fixture
def tab(browser: Browser, running: Dashboard) -> Iterator[Page]:
    with visiting(browser, running) as page:
        yield page


def test_a_drag_over_the_grid_chooses_a_range_and_a_form_acts_on_it(
    tab: Page, running: Dashboard, db: Connection, job: str
) -> None:
    tab.goto(f"{running.root}/job?id={job}")
    tab.wait_for_selector(".gridbox[data-drawn='150']")
    box, size = tab.locator("canvas").bounding_box(), tab.evaluate("grids[0].size")
    assert box is not None
    tab.mouse.move(box["x"] + 2.5 * size, box["y"] + size / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 5.5 * size, box["y"] + size / 2)
    tab.mouse.up()
    tab.wait_for_selector(".gridbox[data-drawn='4']")
    expect(tab.get_by_label("From")).to_have_value("c002")
    tab.get_by_label("All chunks of this choice:").select_option("hold")
    tab.get_by_role("button", name="See what it would do").click()
    expect(tab.get_by_role("listitem").filter(has_text="would be")).to_contain_text("4 would be HELD")
    tab.get_by_label("Reason, for the history").fill("a drag")
    tab.keyboard.press("Enter")
    expect(tab.get_by_text("Done: 4 changed")).to_be_visible()
    assert authors(db, job, "hold") == {(getpass.getuser(), "a drag")}
    tab.get_by_role("link", name=f"Back to {job}").click()
    expect(tab.get_by_role("link", name="4 HELD")).to_be_visible()
