"""Renders templates. Every value is text: it is escaped, and its control characters are made visible."""

from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opendataflow.core.text.moments import shown
from opendataflow.dashboard.models import Page
from opendataflow.stdio import visible


def link(page: str, **values: object) -> str:
    """Return the address of a page. Ids are parameters, because they may contain slashes and dots."""
    given = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"/{page}?{urlencode(given, quote_via=quote)}" if given else f"/{page}"


def moment(at: str | datetime | None) -> Markup:
    """Return a `<time>` element in the server's zone. The browser replaces its text with the time in its own zone."""
    if at is None:
        return Markup("–")
    found = datetime.fromisoformat(at) if isinstance(at, str) else at
    text = shown(found)
    return Markup('<time datetime="{}" title="{} (server)">{}</time>').format(found.isoformat(), text, text)


def number(value: float) -> str:
    """Return a number with thousands separated by thin spaces."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _finalize(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("opendataflow.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(link=link, moment=moment, number=number)
    return found


_TEMPLATES = _environment()


def render(page: Page, version: str = "", token: str = "") -> str:
    """Return the HTML of a page. `version`: of the state. `token`: of forms; empty if there are none."""
    return _TEMPLATES.get_template(page.template).render(page=page, version=version, token=token)
