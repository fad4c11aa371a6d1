"""A web address as a target: a POST of JSON, whose `text` chat services show. Never prints more of it than its host."""

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from opendataflow.core.text.alert import payload
from opendataflow.errors import NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.notify.courier import SECONDS, Courier, unreached


class _NoRedirect(HTTPRedirectHandler):
    """A redirected POST would become a GET without the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirect)


class WebhookTarget:
    """POSTs each message to a URL, which may hold a token."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        parts = urlsplit(url)
        self.name = f"webhook {parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"
        self.address = url
        self._courier = Courier(seconds)

    async def deliver(self, alert: Alert) -> None:
        """Send it; NotDelivered where the answer is no 2xx, or there is none."""
        body = json.dumps(payload(alert), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "opendataflow"}
        request = Request(self.address, body, headers, method="POST")
        await self._courier.do(lambda: _post(request, self._courier.seconds))


def _post(request: Request, seconds: float) -> None:
    try:
        with _OPENER.open(request, timeout=seconds):
            pass
    except HTTPError as error:
        with error:
            raise NotDelivered(f"it answers {error.code} {error.reason}") from None
    except URLError as error:  # without its cause: that may quote the address
        raise unreached(error, error.reason, seconds) from None
    except (OSError, HTTPException, ValueError) as error:
        raise unreached(error, type(error).__name__, seconds) from None
