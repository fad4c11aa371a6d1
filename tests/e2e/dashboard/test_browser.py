"""Every page in a real Chromium: no message on the console, readable for everybody, with and without scripts."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.dashboard.browser import NARROW, WIDE, visiting
from tests.e2e.dashboard.serving import HOSTILE, Dashboard, paths


@pytest.fixture(scope="module")
def tab(browser: Browser, served: Dashboard) -> Iterator[Page]:
    """A tab in a time zone that is not the server's."""
    with visiting(browser, served, timezone_id="Asia/Kathmandu") as page:
        yield page


@pytest.mark.parametrize("path", paths().values(), ids=paths())
def test_a_page_has_no_violation_of_accessibility_in_light_and_dark(tab: Page, served: Dashboard, path: str) -> None:
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        tab.goto(served.root + path)
        tab.wait_for_selector("html[data-script=ready]")
        found = Axe().run(tab)
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"


@pytest.mark.parametrize("path", paths().values(), ids=paths())
def test_a_page_fits_into_400_pixels(tab: Page, served: Dashboard, path: str) -> None:
    tab.set_viewport_size(NARROW)
    tab.goto(served.root + path)
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_times_are_in_the_zone_of_the_browser_with_the_servers_as_a_hint(tab: Page, served: Dashboard) -> None:
    tab.goto(served.root)
    element = tab.locator("time").first
    zone = "new Date(document.querySelector('time').dateTime).toLocaleString('sv')"
    assert element.text_content() == tab.evaluate(zone)
    assert str(element.get_attribute("title")).endswith("(server)")


def test_the_keyboard_alone_reaches_the_content(tab: Page, served: Dashboard) -> None:
    tab.goto(served.root)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('main') !== null")


def test_markup_in_a_reason_is_shown_and_not_executed(tab: Page, served: Dashboard) -> None:
    tab.goto(served.root)
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert shown in tab.locator("main").inner_text()
    assert tab.locator("main img").count() == 0


@pytest.fixture
def grid(tab: Page, served: Dashboard) -> Locator:
    """The grid of a job, drawn."""
    tab.set_viewport_size(WIDE)
    tab.goto(f"{served.root}/job?id=delay")
    tab.wait_for_selector(".gridbox[data-drawn='12']")
    return tab.locator(".cells")


def test_a_cell_has_the_colour_of_its_state(tab: Page, grid: Locator) -> None:
    tab.emulate_media(color_scheme="light")
    tab.reload()
    tab.wait_for_selector(".gridbox[data-drawn='12']")
    assert grid.count() == 1
    colours = """() => {
        const size = grids[0].size * devicePixelRatio, to = document.querySelector('.cells canvas').getContext('2d');
        const row = to.getImageData(0, size / 8, 12 * size, 1).data;
        return [1, 6].map((n) => [...row.slice(4 * (n * size + 2), 4 * (n * size + 2) + 3)]);
    }"""
    done, failed = tab.evaluate(colours)
    assert done == [0x2A, 0x9D, 0x7C]  # 2013-02
    assert failed == [0xC4, 0x32, 0x0A]  # 2013-07


def test_the_keyboard_alone_walks_through_the_grid_and_opens_a_chunk(tab: Page, grid: Locator) -> None:
    grid.focus()
    line = tab.locator("#cell")
    for key, shown in (
        ("ArrowRight", "2013-01: DONE, stale"),
        ("ArrowRight", "2013-02: DONE"),
        ("End", "2013-12: QUEUED"),
        ("Home", "2013-01: DONE, stale"),
        ("f", "2013-07: FAILED"),
    ):
        tab.keyboard.press(key)
        expect(line).to_have_text(shown)
    wide = tab.evaluate("grids[0].size")
    tab.keyboard.press("+")
    assert tab.evaluate("grids[0].size") > wide
    tab.keyboard.press("Enter")
    tab.wait_for_url("**2013-07")


def test_a_pointer_shows_the_chunk_under_it(tab: Page, grid: Locator) -> None:
    size = tab.evaluate("grids[0].size")
    grid.locator("canvas").hover(position={"x": size * 8.5, "y": size / 2})
    expect(tab.locator("#cell")).to_have_text("2013-09: RUNNING")


def test_without_scripts_a_job_is_a_table_with_filters_and_pages(browser: Browser, served: Dashboard) -> None:
    with visiting(browser, served, java_script_enabled=False) as page:
        page.goto(f"{served.root}/job?id=delay")
        page.get_by_label("State").select_option("FAILED")
        page.get_by_role("button", name="Filter").click()
        cells = page.get_by_role("region", name="Table of chunks").locator("tbody tr")
        expect(cells).to_have_count(1)
        assert [row.locator("td").first.inner_text() for row in cells.all()] == ["2013-07"]
        page.get_by_role("link", name="all chunks").click()
        page.get_by_label("Id contains").fill("-1")
        page.keyboard.press("Enter")
        expect(cells).to_have_count(3)
        assert [row.locator("td").first.inner_text() for row in cells.all()] == ["2013-10", "2013-11", "2013-12"]


def test_without_scripts_every_page_has_its_content(browser: Browser, served: Dashboard) -> None:
    with visiting(browser, served, java_script_enabled=False) as page:
        for path in paths().values():
            page.goto(served.root + path)
            assert len(page.locator("main").inner_text()) > 40
        assert page.locator("footer").filter(visible=True).inner_text() == "Times are in the server’s time zone."


def test_the_grid_has_only_the_chunks_of_a_range(tab: Page, served: Dashboard) -> None:
    tab.goto(f"{served.root}/job?id=delay")
    tab.get_by_label("From").fill("2013-03")
    tab.get_by_label("to", exact=True).fill("2013-05")
    tab.get_by_role("button", name="Filter").click()
    tab.wait_for_selector(".gridbox[data-drawn='3']")
    tab.locator(".cells").focus()
    tab.keyboard.press("End")
    expect(tab.locator("#cell")).to_have_text("2013-05: DONE")
    expect(tab.get_by_role("region", name="Table of chunks").locator("tbody tr")).to_have_count(3)


def test_a_search_leads_to_a_chunk_and_the_back_button_to_the_search(tab: Page, served: Dashboard) -> None:
    tab.set_viewport_size(WIDE)
    tab.goto(served.root)
    tab.get_by_label("Search by id").fill("2013-07")
    tab.keyboard.press("Enter")
    tab.get_by_role("row", name="delay FAILED").get_by_role("link").click()
    expect(tab.get_by_role("heading", level=1)).to_have_text("2013-07")
    tab.go_back()
    expect(tab.get_by_role("heading", level=1)).to_have_text("Search")


def test_a_box_of_the_graph_leads_to_its_page_by_keyboard_alone(tab: Page, served: Dashboard) -> None:
    tab.goto(f"{served.root}/graph")
    tab.get_by_role("link", name="job summary").focus()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=1)).to_have_text("summary")


def test_a_command_is_copied(browser: Browser, served: Dashboard) -> None:
    with visiting(browser, served, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{served.root}/chunk?job=delay&id=2013-07")
        page.get_by_role("button", name="Copy").first.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "dataflow why delay 2013-07"
