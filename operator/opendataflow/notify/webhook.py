"""A URL as a target: a POST of JSON. Chat services show its field `text`. Never prints more than the URL's host."""

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from opendataflow.core.text.alert import payload
from opendataflow.errors import NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.notify.delivery import SECONDS, DeliveryThread, unreachable_error


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: a redirected POST becomes a GET without the message."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirect)


class WebhookTarget:
    """Posts each message to a URL, which may contain a token."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        parts = urlsplit(url)
        self.name = f"webhook {parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"
        self.address = url
        self._delivery = DeliveryThread(seconds)

    async def deliver(self, alert: Alert) -> None:
        """Send the message. Raise NotDelivered unless the status of the answer is 2xx."""
        body = json.dumps(payload(alert), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "opendataflow"}
        request = Request(self.address, body, headers, method="POST")
        await self._delivery.run(lambda: _post(request, self._delivery.seconds))


def _post(request: Request, seconds: float) -> None:
    try:
        with _OPENER.open(request, timeout=seconds):
            pass
    except HTTPError as error:
        with error:
            raise NotDelivered(f"it answers {error.code} {error.reason}") from None
    except URLError as error:  # without its cause, which may quote the URL
        raise unreachable_error(error, error.reason, seconds) from None
    except (OSError, HTTPException, ValueError) as error:
        raise unreachable_error(error, type(error).__name__, seconds) from None
