"""The logs of the operator: on stderr, one line for each record, as JSON for programs or as text for people.

A line about a run has `extra=log_fields(...)`. The secrets of this process are removed from every line, also from those
of libraries and tracebacks.
"""

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TextIO
from urllib.parse import unquote, urlsplit

from pythonjsonlogger.json import JsonFormatter

from opendataflow.crypto.redact import Secrets
from opendataflow.names import SECRET_VARIABLES

Format = Literal["text", "json"]

FIELDS = ("job", "data_id", "run", "fence")
"""The extra fields of a line."""

REPEAT_SECONDS = 60.0
"""The minimum time before a RateLimitedLogger repeats a sentence."""

_CHATTY = ("kopf.objects", "kopf.activities", "asyncio", "aiohttp")
"""Loggers of libraries whose lines of level INFO are dropped."""
_INTERNAL = ("k8s_skip", "settings")
"""Internal fields that kopf adds to its records."""


def log_fields(
    job: str | None = None, data_id: str | None = None, run: int | None = None, fence: int | None = None
) -> dict[str, Any]:
    """Return the extra fields of a line, without None: `logger.info("…", extra=log_fields(job="load"))`."""
    fields = {"job": job, "data_id": data_id, "run": run, "fence": fence}
    return {name: value for name, value in fields.items() if value is not None}


def set_up_logging(level: str, form: Format, environ: Mapping[str, str], stream: TextIO | None = None) -> None:
    """Send all log records of this process to stderr. `level`: like INFO. `environ`: contains the secrets."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        _RedactingFormatter(_json() if form == "json" else _TextFormatter(), Secrets(_secrets(environ)))
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING if root.level > logging.DEBUG else logging.NOTSET)


def redact_secrets(text: str, environ: Mapping[str, str]) -> str:
    """Return a text without the secrets of an environment, as the log shows it."""
    return Secrets(_secrets(environ)).redact(text)


class RateLimitedLogger:
    """Logs a sentence at once, and the same sentence again after `REPEAT_SECONDS` at the earliest."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._logged: dict[str, float] = {}

    def warn(self, sentence: str) -> bool:
        """Log a warning, except for a repetition. Return whether it was logged."""
        now = self._clock()
        self._logged = {each: at for each, at in self._logged.items() if now - at < REPEAT_SECONDS}
        if sentence in self._logged:
            return False
        self._logged[sentence] = now
        self._logger.warning("%s", sentence)
        return True


class _RedactingFormatter(logging.Formatter):
    """Removes secrets from the lines of another formatter."""

    def __init__(self, inner: logging.Formatter, secrets: Secrets) -> None:
        super().__init__()
        self._inner = inner
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return self._secrets.redact(self._inner.format(record))


class _TextFormatter(logging.Formatter):
    """Formats lines like `2026-11-28T08:00:00Z INFO module: message (job=load run=7)`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        fields = [f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name)]
        return super().formatMessage(record) + (f" ({' '.join(fields)})" if fields else "")


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
    found = {name: environ[name] for name in (*SECRET_VARIABLES, "PGPASSWORD") if environ.get(name)}
    file = found.pop("DATAFLOW_DSN_FILE", "")
    password = _password(found.pop("DATAFLOW_DSN", "") or _content(file))
    return found | ({"DATAFLOW_DSN": password} if password else {})


def _content(file: str) -> str:
    try:
        return Path(file).read_text().strip() if file else ""
    except (OSError, ValueError):  # reported when the database is opened
        return ""


def _password(dsn: str) -> str | None:
    """Return the password of a Postgres address: a URI or key-value pairs. None if it has none."""
    if "://" in dsn:
        try:
            parts = urlsplit(dsn)
        except ValueError:
            return dsn
        match = re.search(r"(?:^|&)password=([^&]*)", parts.query)  # overrides the password before the host
        return unquote((match[1] if match else parts.password) or "") or None
    match = re.search(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))", dsn)
    return re.sub(r"\\(.)", r"\1", match[1] or match[2]) if match else None
