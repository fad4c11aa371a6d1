"""Watches the custom resources by kopf, and hands on what it sees. Every word to kopf is here.

Only `on.event`: it writes no annotation, no finalizer and no progress into the resources. Handlers translate and return
nothing; what they have seen is worked on elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
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


AGAIN_SECONDS = 2.0
"""The pause before a watch is begun anew that has failed."""

logger = logging.getLogger(__name__)


async def watch(seen: Seen, access: Access, namespaces: Collection[str], begun: Callable[[bool], None]) -> None:
    """Watch until cancelled, or until kopf has got a signal. `namespaces`: none means all.

    `begun`: is called when kopf has taken the signals; with True where it has failed before (it does where the API
    server ends a watch by an error): of what was deleted meanwhile it tells nothing.
    """
    again = False
    while True:
        ready = asyncio.Event()
        telling = asyncio.create_task(_after(ready, partial(begun, again)))
        try:
            return await _watch(seen, access, namespaces, ready)
        except Exception as error:  # whatever it is, a new watch begins with a list of everything
            said = str(error.args[0]) if error.args else ""
            logger.warning("the watch of resources is begun anew: %s: %s", type(error).__name__, said)
        finally:
            telling.cancel()
        again = True
        await asyncio.sleep(AGAIN_SECONDS)


async def _after(ready: asyncio.Event, tell: Callable[[], None]) -> None:
    await ready.wait()
    tell()


async def _watch(seen: Seen, access: Access, namespaces: Collection[str], ready: asyncio.Event) -> None:
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
