"""Parses the targets that the environment configures. An error message never shows a whole address."""

import os
import shlex
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from opendataflow.errors import InvalidInput
from opendataflow.notify.command import CommandTarget
from opendataflow.notify.delivery import SECONDS
from opendataflow.notify.mail import MailServer, MailTarget
from opendataflow.notify.webhook import WebhookTarget
from opendataflow.settings import Notifications

Target = CommandTarget | WebhookTarget | MailTarget

_SMTP = "smtp://user@host:587/?from=dataflow@example.org&to=me@example.org,you@example.org"


def configured_targets(
    notifications: Notifications, environ: Mapping[str, str] = os.environ, seconds: float = SECONDS
) -> list[Target]:
    """Return the configured targets. Raise InvalidInput if a setting is invalid.

    `seconds`: the time-out of one delivery.
    """
    targets: list[Target] = []
    if notifications.command:
        targets.append(CommandTarget(_argv(notifications.command), environ, seconds))
    if notifications.webhook:
        targets.append(WebhookTarget(_webhook(notifications.webhook), seconds))
    if notifications.smtp:
        targets.append(_mail(notifications.smtp, notifications.smtp_password, seconds))
    return targets


def _argv(command: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidInput(f"DATAFLOW_NOTIFY_COMMAND can't be divided into words: {error}") from None
    if not argv:
        raise InvalidInput("DATAFLOW_NOTIFY_COMMAND is blank: write a program and its arguments, or unset it")
    return argv


def _webhook(url: str) -> str:
    parts = _split(url, "DATAFLOW_NOTIFY_WEBHOOK", "https://host/path", ("http", "https"))
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            "DATAFLOW_NOTIFY_WEBHOOK has a user in front of its host, which is not supported: use a token"
        )
    if not url.isascii() or any(letter.isspace() for letter in url):
        raise InvalidInput("DATAFLOW_NOTIFY_WEBHOOK has characters that a URL can't have: write them as %XX")
    return url


def _mail(url: str, password: str | None, seconds: float) -> MailTarget:
    parts = _split(url, "DATAFLOW_NOTIFY_SMTP", _SMTP, ("smtp", "smtps"))
    if parts.password is not None:
        raise InvalidInput(
            "DATAFLOW_NOTIFY_SMTP has a password in it: give it in DATAFLOW_NOTIFY_SMTP_PASSWORD instead"
        )
    user = unquote(parts.username) if parts.username else None
    if (user is None) != (password is None):
        missing = "a user in DATAFLOW_NOTIFY_SMTP" if user is None else "DATAFLOW_NOTIFY_SMTP_PASSWORD"
        raise InvalidInput(f"of the user and the password for mail one is missing: set {missing}")
    query = parse_qs(parts.query)
    unknown = sorted(set(query) - {"from", "to"})
    if unknown:
        raise InvalidInput(f"DATAFLOW_NOTIFY_SMTP has {unknown[0]}= in it, which means nothing; it looks like {_SMTP}")
    sender, recipients = _addresses(query, "from"), _addresses(query, "to")
    if len(sender) != 1:
        raise InvalidInput(f"DATAFLOW_NOTIFY_SMTP needs one sender in from=; it looks like {_SMTP}")
    tls = parts.scheme == "smtps"
    port = parts.port or (465 if tls else 587 if user else 25)
    server = MailServer(str(parts.hostname), port, tls, user, password)
    return MailTarget(server, sender[0], recipients, seconds)


def _addresses(query: Mapping[str, list[str]], name: str) -> tuple[str, ...]:
    found = tuple(part.strip() for value in query.get(name, []) for part in value.split(",") if part.strip())
    if not found or any("@" not in address or any(c.isspace() for c in address) for address in found):
        raise InvalidInput(f"DATAFLOW_NOTIFY_SMTP needs mail addresses in {name}=; it looks like {_SMTP}")
    return found


def _split(url: str, variable: str, example: str, schemes: tuple[str, ...]) -> SplitResult:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise InvalidInput(f"{variable} is no {' or '.join(schemes)} address: one looks like {example}")
    return parts
