"""What an answer of the Kubernetes API means that is no success, as an error of this project. Pure.

Nothing is read from a message where the API has a field for it; the places where it has none are marked.
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


def refusal(what: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> DataflowError:
    """Return the error for an answer to anything but a create. `what`: like "get pods a/b". `status`: the API's Status
    object, empty where the answer was none. `retry_after`: seconds, from the answer's header."""
    sentence = f"{what}: {_said(code, status)}"
    if code == 401:
        return ClusterUnreachable(f"{sentence} (the Kubernetes API does not accept our credentials)")
    if code == 429 or code >= 500:
        return ClusterUnreachable(sentence, _wait(status, retry_after))
    return ClusterRefused(sentence, code, str(status.get("reason") or ""))


def create_refusal(what: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> DataflowError:
    """Return the error for an answer to a create; ClusterRefused only for AlreadyExists."""
    said = _said(code, status)
    sentence = f"{what}: {said}"
    if code == _CONFLICT and status.get("reason") == "AlreadyExists":
        return ClusterRefused(sentence, code, "AlreadyExists")
    if _namespace_gone(code, status, said):
        return NamespaceGone(sentence)
    if code == 429 or (code == 403 and _no_room(said)):
        return Backpressure(sentence, _wait(status, retry_after))
    # A conflict is about the quota's counters; 401 and 5xx tell nothing about the object.
    if code in (401, 408, _CONFLICT) or code >= 500:
        return CreateUncertain(sentence)
    return NotCreatable(sentence)


def expired(code: int, status: Mapping[str, Any]) -> bool:
    """Whether a list or watch can't go on from where it was, so that everything has to be listed anew.

    Also where the version is newer than the API's own: it was restored from a backup.
    """
    return code == 410 or "ResourceVersionTooLarge" in _causes(status)


def is_not_there(error: ClusterRefused) -> bool:
    """Whether a patch or delete with a uid was refused because that object is gone, perhaps for another of its name.

    Any other conflict says nothing of the kind: the object was changed by somebody at the same moment. The uid is named
    in the message only: "UID in precondition: …" (409) or "metadata.uid: Invalid value" (422).
    """
    return error.code == 404 or (error.code in (_CONFLICT, 422) and "uid" in str(error).lower())


def _namespace_gone(code: int, status: Mapping[str, Any], said: str) -> bool:
    if code == 404:
        return _details(status).get("kind") == "namespaces"
    # The message: from servers that name no cause.
    return code == 403 and ("NamespaceTerminating" in _causes(status) or "because it is being terminated" in said)


def _no_room(said: str) -> bool:
    """Whether it is about a quota that is used up, or a namespace so new that its account is not there yet. The API
    has no field for either; "failed quota: must specify limits" is not meant, as that never gets better."""
    new = re.search(r'serviceaccount "default" not found', said) is not None
    return "exceeded quota:" in said or new


def _said(code: int, status: Mapping[str, Any]) -> str:
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
