"""The operator's logs: on stderr, one line each, as JSON for programs or as text for people.

Who logs about a run says so by `extra=about(...)`. Secrets of this process are hidden, wherever a line has them from:
libraries and tracebacks, too.
"""

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO
from urllib.parse import unquote, urlsplit

from pythonjsonlogger.json import JsonFormatter

from opendataflow.crypto.redact import Secrets
from opendataflow.names import SECRET_VARIABLES

Format = Literal["text", "json"]

FIELDS = ("job", "data_id", "run", "fence")
"""What a line may be about."""

AGAIN_SECONDS = 60.0
"""How long a sentence is not repeated that is said sparingly."""

_CHATTY = ("kopf.objects", "kopf.activities", "asyncio", "aiohttp")
"""Libraries that tell at level INFO what nobody asked for."""
_INTERNAL = ("k8s_skip", "settings")
"""What kopf adds to its lines for itself."""


def about(
    job: str | None = None, data_id: str | None = None, run: int | None = None, fence: int | None = None
) -> dict[str, Any]:
    """What a line is about: `logger.info("…", extra=about(job="load"))`."""
    said = {"job": job, "data_id": data_id, "run": run, "fence": fence}
    return {name: value for name, value in said.items() if value is not None}


def set_up(level: str, form: Format, environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Let everything that is logged in this process go to stderr. `level`: like INFO; `environ`: has the secrets."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Hiding(_json() if form == "json" else _Text(), Secrets(_secrets(environ))))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING if root.level > logging.DEBUG else logging.NOTSET)


def hidden(text: str, environ: Mapping[str, str]) -> str:
    """A text without the secrets that a process with this environment has, as they are hidden in its log."""
    return Secrets(_secrets(environ)).redact(text)


class Sparing:
    """Says a sentence at once, and the same one again a minute later at the earliest."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._said: dict[str, float] = {}

    def warn(self, sentence: str) -> bool:
        """Say whether it was said."""
        now = self._clock()
        self._said = {each: at for each, at in self._said.items() if now - at < AGAIN_SECONDS}
        if sentence in self._said:
            return False
        self._said[sentence] = now
        self._logger.warning("%s", sentence)
        return True


class _Hiding(logging.Formatter):
    """Hides secrets in what another formatter makes."""

    def __init__(self, inner: logging.Formatter, secrets: Secrets) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.redact(self._inner.format(record))


class _Text(logging.Formatter):
    """2026-11-28T08:00:00Z INFO module: message (job=load run=7)."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        said = [f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name)]
        return super().formatMessage(record) + (f" ({' '.join(said)})" if said else "")


def _json() -> logging.Formatter:
    from pythonjsonlogger.core import RESERVED_ATTRS

    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger", "k8s_ref": "resource", "exc_info": "traceback"},
        rename_fields_keep_missing=False,
        reserved_attrs=[*RESERVED_ATTRS, *_INTERNAL],
        timestamp="time",
        json_ensure_ascii=False,
    )


def _secrets(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ[name] for name in SECRET_VARIABLES if environ.get(name)}
    dsn = found.pop("DATAFLOW_DSN", "")
    password = _password(dsn)
    return found | ({"DATAFLOW_DSN": password} if password else {})


def _password(dsn: str) -> str | None:
    """The password of a Postgres address, in either of its two forms."""
    if "://" in dsn:
        try:
            parts = urlsplit(dsn)
        except ValueError:
            return dsn
        asked = re.search(r"(?:^|&)password=([^&]*)", parts.query)  # counts more than the one before the host
        return unquote((asked[1] if asked else parts.password) or "") or None
    match = re.search(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))", dsn)
    return re.sub(r"\\(.)", r"\1", match[1] or match[2]) if match else None
