"""Watches the custom resources by kopf, and hands on what it sees. Every word to kopf is here.

Only `on.event`: it writes no annotation, no finalizer and no progress into the resources. Handlers translate and return
nothing; what they have seen is worked on elsewhere.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import aiohttp
import kopf

from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.launch.cluster.access import Access
from opendataflow.names import GROUP, VERSION

Seen = Callable[[str, Mapping[str, Any], bool], None]
"""Is told the kind, the body and whether the resource is gone."""

LOGIN_MINUTES = 10
"""How long kopf uses what it got at a login; tokens of service accounts last an hour."""

END_SECONDS = 5.0

AGAIN_SECONDS = 2.0
"""The pause before a watch is begun anew that has failed."""

logger = logging.getLogger(__name__)


def _worth_saying(record: logging.LogRecord) -> bool:
    """Whether what kopf says about itself is news: we take the signals, and tell of a watch that was refused."""
    error = record.exc_info[1] if record.exc_info else None
    refused = type(error).__module__.startswith("kopf._cogs.clients.")
    return not refused and "OS signals are ignored" not in record.getMessage()


for _name in ("running", "orchestration"):
    logging.getLogger(f"kopf._core.reactor.{_name}").addFilter(_worth_saying)


class Sight(Protocol):
    """Which namespaces may be watched. `moved` is set when that changes."""

    moved: asyncio.Event

    def visible(self) -> Collection[str] | None:
        """They; empty for all, None for nothing."""


async def watch(seen: Seen, find_access: Callable[[], Access], sight: Sight, missed: Callable[[], None]) -> None:
    """Watch until cancelled. `find_access`: how to reach the API server.

    When kopf has failed it is begun anew, and when other namespaces may be watched. `missed` is called each
    time that it has listed something: of what was deleted before that it tells nothing, at its start no less than after
    a failure. Also each time that it has looked which kinds there are: it is silent about one that is gone.
    """
    here = asyncio.get_running_loop()

    def hand_on(kind: str, body: Mapping[str, Any], gone: bool) -> None:
        here.call_soon_threadsafe(seen, kind, body, gone)

    sparing = Sparing(logger)
    while True:
        sight.moved.clear()
        namespaces = sight.visible()
        if namespaces is None:
            await sight.moved.wait()
            continue
        kopf_ = _Kopf(hand_on, find_access, namespaces, lambda: here.call_soon_threadsafe(missed))
        moved = asyncio.create_task(sight.moved.wait())
        either: list[asyncio.Future[Any]] = [moved, kopf_.over]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            await kopf_.end()
        if sight.moved.is_set():
            continue
        error = kopf_.over.result()
        said = str(error.args[0]) if error is not None and error.args else "no reason is known"
        sparing.warn(f"the watch of resources is begun anew: {said}")
        await asyncio.sleep(AGAIN_SECONDS)


class _Kopf:
    """One life of kopf, from its start until it fails or is ended, in a thread with a loop of its own.

    An API server that ends a watch by an error is the end of kopf. Its own way to end cancels every future of the loop
    that is younger than it, and may wait for ever for one of its own; in a main thread it takes the signals, too.
    """

    def __init__(
        self, seen: Seen, find_access: Callable[[], Access], namespaces: Collection[str], listed: Callable[[], object]
    ) -> None:
        self._seen = seen
        self._find_access = find_access
        self._namespaces = namespaces
        self._trace = aiohttp.TraceConfig()
        self._trace.on_request_end.append(_when_listed(listed))
        self._sessions: list[aiohttp.ClientSession] = []
        self._over: Future[BaseException | None] = Future()
        self._over.set_running_or_notify_cancel()  # who waits for it can't cancel it
        self.over = asyncio.wrap_future(self._over)
        """Done when it has failed, with the reason."""
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(tell_briefly)
        self._thread = threading.Thread(target=self._main, name="kopf", daemon=True)
        self._thread.start()

    async def end(self) -> None:
        """End it, and wait for that a little; what does not end then ends with the process."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._ending.set)
        await asyncio.to_thread(self._thread.join, END_SECONDS)

    def _main(self) -> None:
        try:
            self._over.set_result(self._loop.run_until_complete(self._live()))
        except Exception as error:
            self._over.set_result(error)
        self._loop.run_until_complete(self._clean_up())
        self._loop.close()

    async def _live(self) -> BaseException | None:
        registry = kopf.OperatorRegistry()
        for kind, plural in PLURALS.items():
            kopf.on.event(GROUP, VERSION, plural, registry=registry, id=f"see-{plural}")(_handler(kind, self._seen))
        access = self._find_access()

        async def login(**_: Any) -> kopf.AiohttpSession:
            return await self._session(access)

        kopf.on.login(registry=registry, id="login")(login)
        parts = await kopf.spawn_tasks(
            registry=registry,
            settings=_settings(self._namespaces),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=list(self._namespaces),
        )
        ending = asyncio.create_task(self._ending.wait())
        done, _ = await asyncio.wait([*parts, ending], return_when=asyncio.FIRST_COMPLETED)
        return next((part.exception() for part in done if part is not ending and not part.cancelled()), None)

    async def _clean_up(self) -> None:
        """End what is left of it: some of its futures have to be asked more than once, and some never end."""
        for _ in range(3):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if not left:
                break
            for future in left:
                future.cancel()
            await asyncio.wait(left, timeout=1)
        for session in self._sessions:
            await session.close()

    async def _session(self, access: Access) -> kopf.AiohttpSession:
        """A connection as the door has it; kopf closes it and asks again when it is refused or has expired."""
        access.doubt()
        tls, header = await access.tls(), await access.header()
        session = aiohttp.ClientSession(
            trace_configs=[self._trace],
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True),
            headers={"User-Agent": "opendataflow", **({"Authorization": header} if header else {})},
        )
        self._sessions = [*(one for one in self._sessions if not one.closed), session]
        expiration = datetime.now(UTC) + timedelta(minutes=LOGIN_MINUTES) if header else None
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session, expiration=expiration)


def tell_briefly(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Say in a line what went wrong in a callback. kopf cuts a request short by one that fails each time, as no
    future is at work there: that is no news, since the request ends with kopf."""
    if "request_cancel_callback" not in context["message"]:
        logger.warning("in the watch of resources: %s: %r", context["message"], context.get("exception"))


def _when_listed(tell: Callable[[], object]) -> Callable[..., Awaitable[None]]:
    """Make what aiohttp calls at the end of each request."""

    async def ended(_session: object, _context: object, request: aiohttp.TraceRequestEndParams) -> None:
        if request.method != "GET" or request.response.status != 200:
            return
        listed = request.url.name in PLURALS.values() and "watch" not in request.url.query
        if listed or request.url.name == "apis":
            tell()

    return ended


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
