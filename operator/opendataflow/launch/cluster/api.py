"""The door to the Kubernetes API: requests and answers in plain JSON, errors of this project.

No model objects and no client library beside aiohttp (docs/decisions.md says what they cost). A request is sent once:
nothing here sends a create, a patch or a delete again, whoever calls decides that. It knows no pod's meaning.
"""

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

from opendataflow import names
from opendataflow.errors import (
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    DataflowError,
    NotCreatable,
    NotStarted,
)
from opendataflow.launch.cluster.access import Access
from opendataflow.launch.cluster.answers import create_refusal, refusal

REQUEST_SECONDS = 5.0
"""How long an answer may take. A lease lasts longer than this, so that a create never outlives it."""
LIST_SECONDS = 30.0
CONNECT_SECONDS = 4.0
PAGE = 250
"""Objects in a page of a list."""
CONNECTIONS = 64
WATCH_SILENCE = 120.0
"""Seconds without a byte after which a watch is taken for broken; the API sends a bookmark once a minute."""

_JSON = "application/json"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_METADATA = {"Accept": f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
_LIST_OF_METADATA = {"Accept": f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
"""Where nobody reads the answer: no spec and no status. A sweep is answered with all that it has deleted."""
_LOG_IS_GONE = "unable to retrieve container logs for "
"""So begins what a kubelet answers, as if it were the log, when it has removed the container: with forced deletions."""
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


@dataclass(frozen=True)
class Resource:
    """A kind of objects: `group` as in its path, like api/v1; `plural`: its name there."""

    group: str
    plural: str

    def path(self, namespace: str | None, *more: str) -> str:
        """Return the path of the collection or, with a name and perhaps a subresource, of an object."""
        place = ("namespaces", namespace) if namespace is not None else ()
        return "/" + "/".join((self.group, *place, self.plural, *more))


PODS = Resource("api/v1", "pods")
DEPLOYMENTS = Resource("apis/apps/v1", "deployments")
NODES = Resource("api/v1", "nodes")
NAMESPACES = Resource("api/v1", "namespaces")
EVENTS = Resource("apis/events.k8s.io/v1", "events")
APPLICATIONS = Resource("apis/sparkoperator.k8s.io/v1beta2", "sparkapplications")
"""Of the Kubeflow Spark operator: a cluster need not have them."""


def custom(plural: str) -> Resource:
    """Return one of this project's own kinds."""
    return Resource(f"apis/{names.API_VERSION}", plural)


class Api:
    """One cluster. `told`: hears the method and the status of each answer, 0 for none.

    Every call but `create` may raise ClusterUnreachable (also: ask later) and ClusterRefused."""

    def __init__(self, access: Access, told: Callable[[str, int], None] = lambda _verb, _code: None) -> None:
        self.access = access
        self._told = told
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask_version(self) -> dict[str, Any]:
        """Return the version of the API server: everybody may ask that, also to see whether there is an answer."""
        return await self._json("GET", "/version", "version of the API server")

    async def ask_schemas(self, group_version: str) -> dict[str, Any]:
        """Return what the API server publishes of a group's kinds (OpenAPI 3): everybody may ask that, too."""
        path = f"/openapi/v3/apis/{group_version}"
        return await self._json("GET", path, f"schemas of {group_version}", seconds=LIST_SECONDS)

    async def ask(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask a question that is put as an object which is answered and not kept, like an access review."""
        try:
            return await self._json("POST", resource.path(None), f"ask {resource.plural}", body=body)
        except NotCreatable as error:
            raise ClusterRefused(str(error), 403) from error
        except NotStarted as error:
            raise ClusterUnreachable(str(error)) from error

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, dry: bool = False
    ) -> dict[str, Any]:
        """Create an object and return it as it is now. Unknown fields are refused rather than dropped. `dry`: only see
        whether it could be.

        Raises CreateUncertain, Backpressure, NotCreatable, NamespaceGone; ClusterRefused only for AlreadyExists.
        """
        what = f"create {resource.plural} {_title(namespace, body)}"
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
        try:
            return await self._json("POST", resource.path(namespace), what, query=query, body=body)
        except ClusterUnreachable as error:
            raise CreateUncertain(str(error)) from error

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """Return an object; ClusterRefused with code 404 where it is not there."""
        return await self._json("GET", resource.path(namespace, name), f"get {resource.plural} {name}")

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, selector: str = "", size: int = PAGE
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], str], None]:
        """Yield (objects, resource version) page by page; all pages show the same moment.

        ClusterRefused with code 410 where that moment is gone before the last page: begin anew.
        """
        more, what = "", f"list {resource.plural}"
        while True:
            query = {"limit": str(size), "labelSelector": selector, "continue": more}
            query = {name: value for name, value in query.items() if value}
            page = await self._json("GET", resource.path(namespace), what, query=query, seconds=LIST_SECONDS)
            metadata = page.get("metadata") or {}
            yield page.get("items") or [], metadata.get("resourceVersion", "")
            more = metadata.get("continue", "")
            if not more:
                return

    async def watch(
        self, resource: Resource, namespace: str | None, *, selector: str, version: str, seconds: int
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events after a resource version, bookmarks among them, until the API ends it after `seconds`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=WATCH_SILENCE)
        what = f"watch {resource.plural}"
        async with self._asked("GET", resource.path(namespace), what, query=query, timeout=timeout) as response:
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n") if b"\n" in piece else [rest + piece]
                for line in lines:
                    yield _object(line, what)

    async def patch_merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any], *, status: bool = False
    ) -> dict[str, Any]:
        """Change an object, or its status, by a JSON merge patch."""
        path = (name, "status") if status else (name,)
        what = f"patch {resource.plural} {'/'.join(path)}"
        return await self._json("PATCH", resource.path(namespace, *path), what, body=patch, headers=_MERGE)

    async def patch_strategic(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> None:
        """Change an object of Kubernetes' own kinds; with `metadata.uid` in it: of no other of the same name."""
        what = f"patch {resource.plural} {name}"
        path = resource.path(namespace, name)
        await self._answer("PATCH", path, what, body=patch, headers=_STRATEGIC | _METADATA)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None
    ) -> None:
        """Delete an object, with `uid` none but that one. `grace`: seconds, None for the object's own.

        ClusterRefused: 404 where it is not there, 409 where another one is.
        """
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._json("DELETE", resource.path(namespace, name), f"delete {resource.plural} {name}", body=body)

    async def delete_collection(self, resource: Resource, namespace: str, selector: str) -> None:
        """Delete all objects of a namespace that a label selector finds; it must not be empty."""
        if not selector:
            raise ValueError("a selector is needed: everything would be deleted")
        query = {"labelSelector": selector}
        what = f"delete {resource.plural} in {namespace}"
        path = resource.path(namespace)
        await self._answer("DELETE", path, what, query=query, headers=_LIST_OF_METADATA, seconds=LIST_SECONDS)

    async def log_tail(self, namespace: str, pod: str, container: str, *, size: int) -> str:
        """Return the last `size` bytes of what a container has printed, or a little less; nothing where that is gone.

        The API counts lines from the end but bytes from there onwards, so that a few long lines need another question.
        """
        limit = 16 * size
        text = b""
        for lines in (2000, 100, 5):
            text, total = await self._log(namespace, pod, container, lines, limit, size)
            if total < limit:
                break
        log = text.decode(errors="replace")
        return "" if log.startswith(_LOG_IS_GONE) and "\n" not in log.rstrip() else log

    async def _log(
        self, namespace: str, pod: str, container: str, lines: int, limit: int, size: int
    ) -> tuple[bytes, int]:
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(limit)}
        what, kept, total = f"log of pod {pod}", b"", 0
        async with self._asked("GET", PODS.path(namespace, pod, "log"), what, query=query) as response:
            async for piece in response.content.iter_any():
                total += len(piece)
                kept = (kept + piece)[-size:]
        return kept, total

    async def _json(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        answer = await self._answer(method, path, what, query=query, body=body, headers=headers, seconds=seconds)
        return _object(answer, what)

    async def _answer(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        asked = self._asked(method, path, what, query=query, data=data, headers=headers, timeout=timeout)
        async with asked as response:
            return await response.read()

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109  handed on to the client
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; credentials that are refused (so nothing was done) are read anew, once."""
        timeout = timeout or aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        session = self._opened()
        for again in (True, False):
            tls, authorization = await self.access.tls(), await self.access.header()
            sent = {"Accept": _JSON, **({"Content-Type": _JSON} if data is not None else {}), **(headers or {})}
            if authorization is not None:
                sent["Authorization"] = authorization
            try:
                async with session.request(
                    method,
                    self.access.server + path,
                    params=query,
                    data=data,
                    headers=sent,
                    ssl=tls if tls is not None else True,
                    server_hostname=self.access.server_name,
                    timeout=timeout,
                    allow_redirects=False,
                ) as response:
                    self._told(method, response.status)
                    if response.status == 401 and again:
                        self.access.doubt()
                        continue
                    if response.status >= 300:
                        raise await _failed(method, what, response)
                    yield response
                    return
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._told(method, 0)
                raise ClusterUnreachable(_no_answer(what, self.access.server, error)) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=_socket),
                response_class=_Answer,
                headers={"User-Agent": "opendataflow", "Accept-Encoding": "identity"},
            )
        return self._session


class _Answer(aiohttp.ClientResponse):
    """Cuts its connection where nobody waits for it any more, or reads it to its end. To say goodbye in TLS would take
    an answer from the other side, which may not come before the loop ends, or not for half a minute."""

    def close(self) -> None:
        """It was given up before it had begun."""
        self._cut()
        super().close()

    def release(self) -> Any:
        """What it was asked for is over; one that was read has no connection any more."""
        self._cut()
        return super().release()

    def _cut(self) -> None:
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that finds out within half a minute that its peer is gone; watches have nothing else to tell them."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _failed(method: str, what: str, response: aiohttp.ClientResponse) -> DataflowError:
    body = await response.read()
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    judge = create_refusal if method == "POST" else refusal
    after = response.headers.get("Retry-After", "")
    return judge(
        what,
        response.status,
        status if isinstance(status, dict) else {},
        float(after) if after.isascii() and after.isdigit() else None,
    )


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ClusterUnreachable(f"{what}: the answer is no JSON object: is this the Kubernetes API?")
    return found


def _no_answer(what: str, server: str, error: Exception) -> str:
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return f"{what}: the Kubernetes API at {server} does not answer: {why}"


def _title(namespace: str | None, body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
    return name if namespace is None else f"{namespace}/{name}"


def selector(have: Mapping[str, str], more: Iterable[str] = ()) -> str:
    """Return a label selector: each label equals its value, and whatever is said beside."""
    return ",".join([*(f"{label}={value}" for label, value in have.items()), *more])
