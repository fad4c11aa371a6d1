"""Watches the custom resources by kopf, and hands on what it sees. Every word to kopf is here.

Only `on.event`: it writes no annotation, no finalizer and no progress into the resources. Handlers translate and return
nothing; what they have seen is worked on elsewhere.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import kopf

from opendataflow.control.bodies import PLURALS
from opendataflow.launch.cluster.access import Access
from opendataflow.names import GROUP, VERSION

Seen = Callable[[str, Mapping[str, Any], bool], None]
"""Is told the kind, the body and whether the resource is gone."""

LOGIN_MINUTES = 10
"""How long kopf uses what it got at a login; tokens of service accounts last an hour."""


async def watch(seen: Seen, access: Access, namespaces: Collection[str], ready: asyncio.Event) -> None:
    """Watch until cancelled. `namespaces`: none means all. `ready`: is set when kopf has taken the signals."""
    registry = kopf.OperatorRegistry()
    for kind, plural in PLURALS.items():
        kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"see-{plural}")(_handler(kind, seen))

    async def login(**_: Any) -> kopf.AiohttpSession:
        return await _session(access)

    kopf.on.login(registry=registry, id="login")(login)
    await kopf.operator(
        registry=registry,
        settings=_settings(namespaces),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        ready_flag=ready,
    )


async def _session(access: Access) -> kopf.AiohttpSession:
    """A connection as the door has it; kopf closes it and asks again when it is refused or has expired."""
    access.doubt()
    tls, header = await access.tls(), await access.header()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True),
        headers={"User-Agent": "opendataflow", **({"Authorization": header} if header else {})},
    )
    expiration = datetime.now(UTC) + timedelta(minutes=LOGIN_MINUTES) if header else None
    return kopf.AiohttpSession(server=access.server, aiohttp_session=session, expiration=expiration)


def _handler(kind: str, seen: Seen) -> Callable[..., None]:
    def see(event: Mapping[str, Any], **_: Any) -> None:
        seen(kind, event["object"], event["type"] == "DELETED")

    return see


def _settings(namespaces: Collection[str]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.request_timeout = 10
    settings.networking.error_backoffs = Endless()
    settings.watching.chunk_size = 250
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 5
    settings.scanning.disabled = bool(namespaces)  # a namespaced role can't list what the cluster has
    settings.process.ultimate_exiting_timeout = None
    return settings


class Endless:
    """Pauses between trials, again and again: the API server may be away for hours."""

    def __iter__(self) -> Any:
        yield from (0.5, 1, 2)
        while True:
            yield 5
