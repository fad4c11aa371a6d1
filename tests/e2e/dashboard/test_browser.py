"""Every page in a real Chromium: no message on the console, readable for everybody, with and without scripts."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.e2e.dashboard.browser import NARROW, chromium, visiting
from tests.e2e.dashboard.serving import HOSTILE, Dashboard, paths


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


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


def test_without_scripts_every_page_has_its_content(browser: Browser, served: Dashboard) -> None:
    with visiting(browser, served, java_script_enabled=False) as page:
        for path in paths().values():
            page.goto(served.root + path)
            assert len(page.locator("main").inner_text()) > 40
        assert page.locator("footer").filter(visible=True).inner_text() == "Times are in the server’s time zone."
