"""Turns error answers of the Kubernetes API into errors of this project. Pure.

Messages are parsed only if the API has no field for the information; a comment marks these places.
"""

import re
from collections.abc import Mapping
from typing import Any

from opendataflow.errors import (
    Backpressure,
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    DataflowError,
    NamespaceGone,
    NotCreatable,
)

_LONGEST = 1000
_CONFLICT = 409


def error_of(what: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> DataflowError:
    """Return the error for the answer to any request except a create.

    `what`: the request, like "get pods a/b". `status`: the Status object of the API; empty if the answer has none.
    `retry_after`: seconds, from the header of the answer.
    """
    sentence = f"{what}: {_message(code, status)}"
    if code == 401:
        return ClusterUnreachable(f"{sentence} (the Kubernetes API does not accept our credentials)")
    if code == 429 or code >= 500:
        return ClusterUnreachable(sentence, _wait(status, retry_after))
    return ClusterRefused(sentence, code, str(status.get("reason") or ""))


def create_error(what: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> DataflowError:
    """Return the error for the answer to a create. It is ClusterRefused only for AlreadyExists."""
    message = _message(code, status)
    sentence = f"{what}: {message}"
    if code == _CONFLICT and status.get("reason") == "AlreadyExists":
        return ClusterRefused(sentence, code, "AlreadyExists")
    if _namespace_gone(code, status, message):
        return NamespaceGone(sentence)
    if code == 429 or (code == 403 and _is_backpressure(message)):
        return Backpressure(sentence, _wait(status, retry_after))
    # A conflict is about the counters of a quota. After 401 and 5xx it is unknown whether the object was created.
    if code in (401, 408, _CONFLICT) or code >= 500:
        return CreateUncertain(sentence)
    return NotCreatable(sentence + _remedy(message))


def is_expired(code: int, status: Mapping[str, Any]) -> bool:
    """Return whether a list or watch can't continue, so that everything has to be listed again.

    This includes a resource version newer than that of the API server, which was restored from a backup.
    """
    return code == 410 or "ResourceVersionTooLarge" in _causes(status)


def is_gone(error: ClusterRefused) -> bool:
    """Return whether a patch or delete with a uid was refused because that object is gone or was replaced.

    Any other conflict means that another client changed the object at the same moment. Only the message names the uid:
    "UID in precondition: …" (409) or "metadata.uid: Invalid value" (422).
    """
    return error.code == 404 or (error.code in (_CONFLICT, 422) and "uid" in str(error).lower())


def _namespace_gone(code: int, status: Mapping[str, Any], message: str) -> bool:
    if code == 404:
        return _details(status).get("kind") == "namespaces"
    # Some servers name no cause, so the message is parsed.
    return code == 403 and ("NamespaceTerminating" in _causes(status) or "because it is being terminated" in message)


def _is_backpressure(message: str) -> bool:
    """Return whether a quota is used up, or a new namespace has no default service account yet.

    The API has no field for either, so the message is parsed. "failed quota: must specify limits" does not count,
    because waiting does not help.
    """
    new = re.search(r'serviceaccount "default" not found', message) is not None
    return "exceeded quota:" in message or new


def _remedy(message: str) -> str:
    """Return what to do about a missing service account. Only the message names it."""
    if re.search(r'serviceaccount "[^"]*" not found', message) is None:
        return ""
    return "; the chart creates the account of Spark drivers in the namespaces of its value spark.namespaces"


def _message(code: int, status: Mapping[str, Any]) -> str:
    message = str(status.get("message") or "").strip() or f"HTTP {code}"
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _wait(status: Mapping[str, Any], retry_after: float | None) -> float | None:
    if retry_after is not None:
        return retry_after
    seconds = _details(status).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int) and seconds > 0 else None


def _causes(status: Mapping[str, Any]) -> list[str]:
    causes = _details(status).get("causes")
    return [str(cause.get("reason")) for cause in causes or [] if isinstance(cause, Mapping)]


def _details(status: Mapping[str, Any]) -> Mapping[str, Any]:
    details = status.get("details")
    return details if isinstance(details, Mapping) else {}
