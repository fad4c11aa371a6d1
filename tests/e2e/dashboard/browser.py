"""A real Chromium, driven by Playwright. Debian's package is enough: Playwright downloads nothing."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.e2e.dashboard.serving import Dashboard
from tests.kube.cluster.providers import Unavailable
from tests.left_out import left_out

WITHOUT_BROWSER = "no Chromium on this machine"
WIDE: ViewportSize = {"width": 1280, "height": 800}
NARROW: ViewportSize = {"width": 400, "height": 800}
LONGEST_WAIT = 120_000
"""Milliseconds after which a condition counts as never met. No test waits for a time."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser. Without one the test is skipped, or fails with DATAFLOW_REQUIRE_BROWSER."""
    with left_out(WITHOUT_BROWSER, "DATAFLOW_REQUIRE_BROWSER"):
        program = _program()
    expect.set_options(timeout=LONGEST_WAIT)
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
def visiting(browser: Browser, dashboard: Dashboard, expected: str = "(?!)", **options: Any) -> Iterator[Page]:
    """Open a tab that has the cookie. At the end no message may be on its console.

    `expected`: matches messages that may be there. `options`: of the browser's context, such as its viewport.
    """
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(LONGEST_WAIT)
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    try:
        page.goto(dashboard.url)
        yield page
        assert [message for message in messages if not re.search(expected, message)] == []
    finally:
        context.close()
