"""The pages of the dashboard show any text as text, and say what the command line says."""

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

from opendataflow.dashboard.models import Failure, Overview, bar, job_line, paging
from opendataflow.dashboard.templating import link, moment, number, render
from opendataflow.stdio import visible
from tests.unit.test_show import job_status

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60) | st.sampled_from(
    ['"><script>alert(1)</script>', "'onmouseover='alert(1)", "{{ 7*7 }}", "</title><img src=x>", "javascript:alert(1)"]
)


class Outline(HTMLParser):
    """The elements of a page with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def row(text: str) -> dict[str, Any]:
    """A row of dashboard_jobs() with a text wherever users write one."""
    breaker = {"opened_at": "2013-02-01T04:00:00+00:00", "chunks": 5, "message": text, "probes": 0, "probe": 7}
    failed = [{"reason": text, "chunks": 1, "examples": [text], "class": "Application"}]
    status = job_status(counts={"FAILED": 1, "DONE": 2}, failed=failed, breaker=breaker, per_minute=2.5, eta_seconds=90)
    return {"job": text, "state": "Failed", "status": status, "failing_since": datetime(2013, 2, 1, tzinfo=UTC)}


def overview(text: str) -> str:
    return render(Overview("Jobs", "jobs", f"/?{text}", (job_line(row(text)),), paging(0, 1, 50, 1)))


@given(TEXTS)
def test_markup_in_the_texts_of_users_stays_text(text: str) -> None:
    found, expected = Outline(overview(text)), Outline(overview("x"))
    assert found.elements == expected.elements
    shown = visible(text).replace("\r\n", "\n").replace("\r", "\n")
    assert shown in found.text.replace("\r\n", "\n").replace("\r", "\n")


@given(TEXTS)
def test_an_error_is_shown_as_text(text: str) -> None:
    def page(sentence: str) -> Outline:
        return Outline(render(Failure("Not found", "", "/", sentence, "Start again.")))

    assert page(text).elements == page("x").elements


@given(TEXTS)
def test_an_address_has_an_id_as_one_parameter(text: str) -> None:
    address = link("job", id=text, state=None)
    assert address.startswith("/job?id=")
    assert not set(address) & set(" \"'<>")
    assert address.count("&") == 0


def test_a_bar_has_one_segment_for_each_state_and_fills_its_width() -> None:
    segments = bar({"DONE": 3, "FAILED": 1, "WAITING": 0}, stale=1)
    assert [(it.state, it.count, it.x, it.width) for it in segments] == [
        ("DONE", 2, 0, 500),
        ("STALE", 1, 500, 250),
        ("FAILED", 1, 750, 250),
    ]
    assert bar({}, 0) == ()


def test_the_time_left_is_shown_only_while_something_moves() -> None:
    status = job_status(counts={"FAILED": 1, "WAITING": 1}, per_minute=2, eta_seconds=60)
    stuck = job_line({**row("x"), "status": status})
    assert (stuck.rate, stuck.left) == ("2 a minute", None)
    assert job_line({**row("x"), "status": {**status, "counts": {"QUEUED": 1}}}).left == "60 s"


def test_a_time_has_the_zone_of_the_server_until_the_browser_replaces_it() -> None:
    element = moment("2013-02-01T04:00:00+00:00")
    assert isinstance(element, Markup)
    assert 'datetime="2013-02-01T04:00:00+00:00"' in element
    assert moment(None) == "–"


def test_a_missing_field_of_a_view_model_is_an_error_and_no_empty_text() -> None:
    class Wrong(Failure):
        template = "overview.html"

    with pytest.raises(UndefinedError, match="has no attribute"):
        render(Wrong("Jobs", "", "/", "x", "y"))


def test_numbers_have_thousands() -> None:
    assert number(1234567) == "1\u202f234\u202f567"


@pytest.mark.parametrize(
    ("offset", "shown", "total", "expected"),
    [(0, 50, 120, (1, 50, None, 50)), (50, 50, 120, (51, 100, 0, 100)), (100, 20, 120, (101, 120, 50, None))],
)
def test_a_long_list_has_pages(offset: int, shown: int, total: int, expected: tuple[int | None, ...]) -> None:
    page = paging(offset, shown, 50, total)
    assert (page.first, page.last, page.previous, page.following) == expected
