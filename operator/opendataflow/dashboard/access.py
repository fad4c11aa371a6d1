"""Who may use the dashboard on a laptop: a browser on this machine that has opened the printed URL.

The URL has a random token. It is exchanged for a cookie, so that the token stays in no address bar. Only loopback names
are accepted as the host: otherwise a web page whose name resolves to 127.0.0.1 could read the answers.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HOST = "127.0.0.1"
TOKEN = "token"
_LOOPBACK = (HOST, "localhost", "::1")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Server": "OpenDataFlow",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers report no origin of a form
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class LaptopAccess:
    """The token and the cookie of one dashboard. A restart makes both invalid."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)

    def url(self, port: int) -> str:
        """Return the URL for the person who has started the dashboard."""
        return f"http://{HOST}:{port}/?{TOKEN}={self.token}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request from this machine with the cookie. Exchange a valid token for the cookie."""
        if not _is_loopback(request.host):
            return _refuse(403, "this dashboard answers only to 127.0.0.1 and localhost")
        if request.method not in ("GET", "HEAD") and not _is_own_form(request):
            return _refuse(403, "only a page of this dashboard can send a form to it")
        cookie = f"dataflow_ui_{_port(request)}"
        if hmac.compare_digest(request.cookies.get(cookie, "").encode(), self._session.encode()):
            return await handler(request)
        token = request.query.get(TOKEN, "")
        if request.method == "GET" and hmac.compare_digest(token.encode(), self.token.encode()):
            answer = web.Response(status=303, headers={"Location": request.path})
            answer.set_cookie(cookie, self._session, httponly=True, samesite="Strict", path="/")
            return answer
        return _refuse(401, "open the URL that `dataflow ui` has printed: it has the token of this dashboard")


async def add_headers(_: web.Request, answer: web.StreamResponse) -> None:
    """Add the security headers. Called before each answer is sent."""
    answer.headers.update(_HEADERS)
    answer.headers.setdefault("Cache-Control", "no-store")


def _is_loopback(host: str) -> bool:
    """Return whether a Host header names this machine by a loopback name, whatever its port."""
    try:
        return urlsplit(f"//{host}").hostname in _LOOPBACK
    except ValueError:
        return False


def _is_own_form(request: web.Request) -> bool:
    """Return whether a browser reports that a form is of this site. A program that is no browser reports nothing."""
    site, origin = request.headers.get("Sec-Fetch-Site", "same-origin"), request.headers.get("Origin")
    return site == "same-origin" and origin in (None, f"http://{request.host}")


def _port(request: web.Request) -> int:
    """Return the port of this dashboard: browsers share the cookies of all ports of a host."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return int(name[1]) if name else 0


def _refuse(status: int, sentence: str) -> web.Response:
    return web.Response(status=status, text=f"{sentence}\n")
