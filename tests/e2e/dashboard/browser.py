"""A real Chromium, driven by Playwright. Debian's package is enough: Playwright downloads nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.e2e.dashboard.serving import Dashboard
from tests.kube.cluster.providers import Unavailable
from tests.left_out import left_out

WITHOUT_BROWSER = "no Chromium on this machine"
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 400, "height": 800}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser. Without one the test is skipped, or fails with DATAFLOW_REQUIRE_BROWSER."""
    with left_out(WITHOUT_BROWSER, "DATAFLOW_REQUIRE_BROWSER"):
        program = _program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def _program() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise Unavailable("install the package chromium")
    return found


@contextmanager
def visiting(browser: Browser, dashboard: Dashboard, **options: Any) -> Iterator[Page]:
    """Open a tab that has the cookie. At the end no message may be on its console.

    `options`: of the browser's context, such as its viewport or `java_script_enabled`.
    """
    context = browser.new_context(**{"viewport": WIDE, **options})
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    try:
        page.goto(dashboard.url)
        yield page
        assert not messages, messages
    finally:
        context.close()
