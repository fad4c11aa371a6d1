"""Watches the custom resources with kopf, and passes each event on. Only this module uses kopf.

It uses `on.event` only, so kopf writes no annotation, finalizer or progress into the resources. The handlers pass the
body on and return nothing; other modules process it.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self, cast

import aiohttp
import kopf

from opendataflow.control.monitoring.logs import RateLimitedLogger
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.core.kubernetes.nesting import shallow
from opendataflow.launch.cluster.access import Access
from opendataflow.names import GROUP, VERSION

Seen = Callable[[str, Mapping[str, Any], bool], None]
"""Called with the kind, the body, and whether the resource was deleted."""

LOGIN_MINUTES = 10
"""How long kopf uses the credentials of a login. Tokens of service accounts last an hour."""

END_SECONDS = 5.0

RETRY_SECONDS = 2.0
"""The pause before a failed watch starts again."""

logger = logging.getLogger(__name__)


def _should_log(record: logging.LogRecord) -> bool:
    """Return whether to log a record of kopf. The operator handles signals, and reports refused watches, itself."""
    error = record.exc_info[1] if record.exc_info else None
    refused = type(error).__module__.startswith("kopf._cogs.clients.")
    return not refused and "OS signals are ignored" not in record.getMessage()


for _name in ("running", "orchestration"):
    logging.getLogger(f"kopf._core.reactor.{_name}").addFilter(_should_log)


class VisibleNamespaces(Protocol):
    """The namespaces that may be watched. The event `visibility_changed` is set when they change."""

    visibility_changed: asyncio.Event

    def visible_namespaces(self) -> Collection[str] | None:
        """Return the namespaces: empty means all, None means none."""


async def watch(
    seen: Seen, find_access: Callable[[], Access], sight: VisibleNamespaces, missed: Callable[[], None]
) -> None:
    """Watch until cancelled. Restart kopf when it fails, and when the visible namespaces change.

    `seen`: called with each event. `find_access`: returns the access to the API server. `missed`: called when events
    may have been missed. kopf does not report objects that were deleted before a list, at its start or after a failure.
    Also, it does not report that a kind was deleted. So `missed` is called after each list, and after each discovery of
    kinds.
    """
    here = asyncio.get_running_loop()

    def hand_on(kind: str, body: Mapping[str, Any], gone: bool) -> None:
        here.call_soon_threadsafe(seen, kind, body, gone)

    limited_logger = RateLimitedLogger(logger)
    while True:
        sight.visibility_changed.clear()
        namespaces = sight.visible_namespaces()
        if namespaces is None:
            await sight.visibility_changed.wait()
            continue
        kopf_ = _KopfThread(hand_on, find_access, namespaces, lambda: here.call_soon_threadsafe(missed))
        moved = asyncio.create_task(sight.visibility_changed.wait())
        either: list[asyncio.Future[Any]] = [moved, kopf_.over]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            moved.cancel()
            await kopf_.end()
        if sight.visibility_changed.is_set():
            continue
        error = kopf_.over.result()
        reason = str(error.args[0]) if error is not None and error.args else "no reason is known"
        limited_logger.warn(f"the watch of resources starts again: {reason}")
        await asyncio.sleep(RETRY_SECONDS)


class _KopfThread:
    """One run of kopf, from its start until it fails or is ended, in a thread with an event loop of its own.

    kopf ends if the API server ends a watch with an error. At its end it cancels every future of the loop that is
    younger, and may wait forever for one of its own. In the main thread it would also handle signals.
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
        self._over.set_running_or_notify_cancel()  # a waiting coroutine must not cancel it
        self.over = asyncio.wrap_future(self._over)
        """Done when kopf has ended. The result is the error, or None."""
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(log_callback_error)
        self._thread = threading.Thread(target=self._main, name="kopf", daemon=True)
        self._thread.start()

    async def end(self) -> None:
        """End kopf, and wait for its thread for at most `END_SECONDS`. After that it ends with the process."""
        with suppress(RuntimeError):  # the loop is closed already
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
        """Cancel the remaining futures of kopf. Some need several cancellations, and some never end."""
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
        """Return a session with our credentials. kopf closes it, and asks again, if it is refused or expires."""
        access.invalidate()
        tls, header = await access.tls(), await access.header()
        session = aiohttp.ClientSession(
            trace_configs=[self._trace],
            response_class=_ShallowResponse,
            connector=aiohttp.TCPConnector(ssl=tls if tls is not None else True),
            headers={"User-Agent": "opendataflow", **({"Authorization": header} if header else {})},
        )
        self._sessions = [*(one for one in self._sessions if not one.closed), session]
        expiration = datetime.now(UTC) + timedelta(minutes=LOGIN_MINUTES) if header else None
        return kopf.AiohttpSession(server=access.server, aiohttp_session=session, expiration=expiration)


class _ShallowResponse(aiohttp.ClientResponse):
    """A response whose JSON texts kopf can decode at any depth. One deep resource must not end the watch of all."""

    async def start(self, connection: Any) -> Self:
        """Start to read the response."""
        await super().start(connection)
        self.content = cast("aiohttp.StreamReader", _ShallowStream(self.content))
        return self


class _ShallowStream:
    """The part of StreamReader that kopf and aiohttp use. It yields whole lines."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self) -> bytes:
        """Read all."""
        return shallow(await self._stream.read())

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield pieces that end with a line. `size`: the maximum number of bytes of one read."""
        pieces: list[bytes] = []
        async for piece in self._stream.iter_chunked(size):
            head, end, rest = piece.rpartition(b"\n")
            if end:
                lines = b"".join([*pieces, head]).split(b"\n")
                yield b"".join(shallow(line) + b"\n" for line in lines)
                pieces = []
            pieces.append(rest)
        yield shallow(b"".join(pieces))


class _NoDifferences(kopf.DiffBaseStorage):
    """Stores no earlier state of a resource, and computes no difference to it. Only other kinds of handlers need that.

    kopf's own class copies each body by a recursive function, and parses an annotation that anybody may write.
    """

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:  # noqa: ARG002
        """Return no fields."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002
        """Return no earlier state."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def log_callback_error(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log the error of a callback in one line.

    Errors of `request_cancel_callback` are not logged. kopf cancels a request with this callback, which always fails
    outside of a future. The request ends with kopf anyway.
    """
    if "request_cancel_callback" not in context["message"]:
        logger.warning("in the watch of resources: %s: %r", context["message"], context.get("exception"))


def _when_listed(listed: Callable[[], object]) -> Callable[..., Awaitable[None]]:
    """Return the callback for the end of each request of aiohttp. It calls `listed` after a list or a discovery."""

    async def ended(_session: object, _context: object, request: aiohttp.TraceRequestEndParams) -> None:
        if request.method != "GET" or request.response.status != 200:
            return
        is_list = request.url.name in PLURALS.values() and "watch" not in request.url.query
        if is_list or request.url.name == "apis":
            listed()

    return ended


def _handler(kind: str, seen: Seen) -> Callable[..., None]:
    def see(event: Mapping[str, Any], **_: Any) -> None:
        seen(kind, event["object"], event["type"] == "DELETED")

    return see


def _settings(namespaces: Collection[str]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDifferences()
    settings.networking.request_timeout = 10
    settings.networking.error_backoffs = EndlessBackoff()
    settings.watching.chunk_size = 250
    settings.watching.server_timeout = 300
    settings.watching.connect_timeout = 5
    settings.scanning.disabled = bool(namespaces)  # a namespaced role can't list cluster resources
    settings.process.ultimate_exiting_timeout = None
    return settings


class EndlessBackoff:
    """Endless pauses between tries, in seconds: the API server may be unreachable for hours."""

    def __iter__(self) -> Any:
        yield from (0.5, 1, 2)
        while True:
            yield 5
