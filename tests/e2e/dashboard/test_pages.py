"""What the pages answer to a program: addresses that are wrong, and the cells of a grid."""

from urllib.parse import quote

import pytest

from tests.e2e.dashboard.serving import HOSTILE, Dashboard
from tests.sql import graph
from tests.sql.conftest import Connection


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nowhere", 404, "There is no page /nowhere"),
        ("/job?id=nowhere", 404, "there is no job nowhere"),
        ("/job", 404, "there is no job"),
        ("/job?id=delay&state=BAD", 400, "is one of DONE, STALE"),
        ("/job?id=delay&from=-1", 400, "is a number"),
        ("/job?id=delay&from=99999999999999999999", 400, "is a number"),
        ("/job?id=delay&from=\u0661", 400, "is a number"),
        ("/job?id=" + quote("a\0b"), 400, "no id has"),
    ],
)
def test_a_wrong_address_is_one_sentence(served: Dashboard, path: str, status: int, sentence: str) -> None:
    answer = served.ask(quote(path, safe="/?&=%"), Cookie=served.cookie())
    assert (answer.status, sentence in answer.text) == (status, True), answer.text


def test_cells_are_sent_once_for_each_version(served: Dashboard, story: Connection) -> None:
    cookie = served.cookie()
    first = served.ask("/cells?job=summary", Cookie=cookie)
    assert len(first.body) == 12
    again = served.ask("/cells?job=summary", Cookie=cookie, If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    graph.ask(story, "hold", "summary", "2013-12")
    changed = served.ask("/cells?job=summary", Cookie=cookie, If_None_Match=first.headers["ETag"])
    assert (changed.status, changed.body[-1:]) == (200, b"H")
    graph.ask(story, "release", "summary", "2013-12")


def test_markup_in_an_id_is_a_value_of_an_address(served: Dashboard) -> None:
    page = served.page("/job?id=hostile&part=" + quote(HOSTILE[:9]))
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
