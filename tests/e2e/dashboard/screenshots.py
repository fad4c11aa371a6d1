"""`make screenshots`: pictures of every page, light, dark and narrow, over the story of the tests."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from playwright.sync_api import Page
from psycopg.conninfo import make_conninfo

from opendataflow.names import SPARK_ARCHIVE
from opendataflow.store.embedded import EmbeddedPostgres
from tests.e2e.conftest import Program
from tests.e2e.dashboard.browser import NARROW, WIDE, chromium, visiting
from tests.e2e.dashboard.serving import dashboard, paths, write_story
from tests.sql.conftest import open_connection

STYLES: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "narrow": {"viewport": NARROW, "color_scheme": "light"},
}


def shoot(page: Page, root: str, folder: Path, style: str) -> None:
    """Write one picture for each page."""
    for name, path in {**paths(), "grid": "/job?id=import", "answer": paths()["chunk"]}.items():
        page.goto(root + path)
        page.wait_for_selector("html[data-script=ready]" if name == "action" else "body[data-live=current]")
        if name in ("job", "grid"):
            page.wait_for_selector(".gridbox[data-drawn]")
        page.screenshot(
            path=folder / f"{name}-{style}.png",
            full_page=style == "narrow" or name not in ("overview", "grid", "answer"),
        )


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dataflow-screenshots-") as made:
        home = Path(made)
        home.chmod(0o711)
        _write(home, folder)
    print(f"{len(list(folder.glob('*.png')))} pictures in {folder}")


def _write(home: Path, folder: Path) -> None:
    with EmbeddedPostgres(home / "postgres") as server:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE DATABASE pictures")
        dsn = make_conninfo(server, dbname="pictures")
        Program(home, dsn).run("db", "migrate")
        with open_connection(dsn) as connection:
            write_story(connection, hostile=False, big=10_000)
            with dashboard(dsn, home) as running, chromium() as browser:
                for style, options in STYLES.items():
                    with visiting(browser, running, timezone_id="Europe/Berlin", **options) as page:
                        shoot(page, running.root, folder, style)


if __name__ == "__main__":
    os.environ.update(TZ="UTC", **{SPARK_ARCHIVE: "off"})
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
