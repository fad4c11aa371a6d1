"""Kubernetes API client: requests and answers are plain JSON, and errors are those of this project.

It uses no model objects and no client library except aiohttp; docs/decisions.md gives the reason. It sends each create,
patch and delete once: the caller decides on retries. It never interprets the state of an object.
"""

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

from opendataflow import names
from opendataflow.core.kubernetes.nesting import decode
from opendataflow.errors import (
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    DataflowError,
    NotCreatable,
    NotStarted,
)
from opendataflow.launch.cluster.access import Access
from opendataflow.launch.cluster.answers import create_error, error_of

REQUEST_SECONDS = 5.0
"""The timeout of a request. It is shorter than a lease, so that a create never outlives the lease."""
LIST_SECONDS = 30.0
CONNECT_SECONDS = 4.0
PAGE = 250
"""Objects in a page of a list."""
CONNECTIONS = 64
WATCH_SILENCE = 120.0
"""Seconds without a byte after which a watch counts as broken. The API sends a bookmark once a minute."""

_JSON = "application/json"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_METADATA = {"Accept": f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
_LIST_OF_METADATA = {"Accept": f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
"""For answers that are not read: without spec and status. A collection delete answers with all deleted objects."""
_LOG_IS_GONE = "unable to retrieve container logs for "
"""Prefix of a kubelet's answer, sent as if it were the log, if a forced deletion has removed the container."""
_KEEP_ALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


@dataclass(frozen=True)
class Resource:
    """A kind of objects. `group`: the group in its path, like api/v1. `plural`: its name in the path."""

    group: str
    plural: str

    def path(self, namespace: str | None, *more: str) -> str:
        """Return the path of the collection. `more`: the name of an object, and perhaps a subresource."""
        place = ("namespaces", namespace) if namespace is not None else ()
        return "/" + "/".join((self.group, *place, self.plural, *more))


PODS = Resource("api/v1", "pods")
DEPLOYMENTS = Resource("apis/apps/v1", "deployments")
NODES = Resource("api/v1", "nodes")
NAMESPACES = Resource("api/v1", "namespaces")
EVENTS = Resource("apis/events.k8s.io/v1", "events")
APPLICATIONS = Resource("apis/sparkoperator.k8s.io/v1beta2", "sparkapplications")
"""The kind of the Kubeflow Spark operator. A cluster need not have it."""


def custom(plural: str) -> Resource:
    """Return a kind of this project."""
    return Resource(f"apis/{names.API_VERSION}", plural)


class Api:
    """The client for one cluster. `on_answer`: called with the method and the HTTP status of each answer; 0 for none.

    Every call except `create` may raise ClusterUnreachable and ClusterRefused."""

    def __init__(self, access: Access, on_answer: Callable[[str, int], None] = lambda _verb, _code: None) -> None:
        self.access = access
        self._on_answer = on_answer
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

    async def get_version(self) -> dict[str, Any]:
        """Return the version of the API server. It needs no rights, so it also serves as a health check."""
        return await self._json("GET", "/version", "version of the API server")

    async def get_schemas(self, group_version: str) -> dict[str, Any]:
        """Return the OpenAPI 3 schemas of a group. It needs no rights."""
        path = f"/openapi/v3/apis/{group_version}"
        return await self._json("GET", path, f"schemas of {group_version}", seconds=LIST_SECONDS)

    async def review(self, resource: Resource, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object that the API answers and does not store, such as an access review."""
        try:
            return await self._json("POST", resource.path(None), f"ask {resource.plural}", body=body)
        except NotCreatable as error:
            raise ClusterRefused(str(error), 403) from error
        except NotStarted as error:
            raise ClusterUnreachable(str(error)) from error

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any], *, dry: bool = False
    ) -> dict[str, Any]:
        """Create an object and return it. The API refuses unknown fields. `dry`: validate only, create nothing.

        Raises CreateUncertain, Backpressure, NotCreatable, NamespaceGone; ClusterRefused only for AlreadyExists.
        """
        what = f"create {resource.plural} {_title(namespace, body)}"
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry else {})}
        try:
            return await self._json("POST", resource.path(namespace), what, query=query, body=body)
        except ClusterUnreachable as error:
            raise CreateUncertain(str(error)) from error

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """Return an object. Raises ClusterRefused with code 404 if it does not exist."""
        return await self._json("GET", resource.path(namespace, name), f"get {resource.plural} {name}")

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, selector: str = "", size: int = PAGE
    ) -> AsyncGenerator[tuple[list[dict[str, Any]], str], None]:
        """Yield (objects, resource version) page by page. All pages are a snapshot of the same moment.

        Raises ClusterRefused with code 410 if the snapshot expires before the last page. The caller has to start again.
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
        """Yield the events after a resource version, with bookmarks, until the API ends the watch after `seconds`."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=WATCH_SILENCE)
        what = f"watch {resource.plural}"
        async with self._request("GET", resource.path(namespace), what, query=query, timeout=timeout) as response:
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n") if b"\n" in piece else [rest + piece]
                for line in lines:
                    yield _object(line, what)

    async def patch_merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any], *, status: bool = False
    ) -> dict[str, Any]:
        """Change an object, or with `status` its status, by a JSON merge patch. Return the object."""
        path = (name, "status") if status else (name,)
        what = f"patch {resource.plural} {'/'.join(path)}"
        return await self._json("PATCH", resource.path(namespace, *path), what, body=patch, headers=_MERGE)

    async def patch_strategic(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> None:
        """Change an object of a built-in kind by a strategic merge patch.

        With `metadata.uid` in the patch, no other object of the same name is changed.
        """
        what = f"patch {resource.plural} {name}"
        path = resource.path(namespace, name)
        await self._send("PATCH", path, what, body=patch, headers=_STRATEGIC | _METADATA)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None, grace: int | None = None
    ) -> None:
        """Delete an object. With `uid`, delete no other object of its name. `grace`: seconds; None: its own period.

        Raises ClusterRefused with code 404 if it does not exist, and 409 if another object has the name.
        """
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._json("DELETE", resource.path(namespace, name), f"delete {resource.plural} {name}", body=body)

    async def delete_collection(self, resource: Resource, namespace: str, selector: str) -> None:
        """Delete all objects of a namespace that match a label selector, which must not be empty."""
        if not selector:
            raise ValueError("a selector is needed: everything would be deleted")
        query = {"labelSelector": selector}
        what = f"delete {resource.plural} in {namespace}"
        path = resource.path(namespace)
        await self._send("DELETE", path, what, query=query, headers=_LIST_OF_METADATA, seconds=LIST_SECONDS)

    async def log_tail(self, namespace: str, pod: str, container: str, *, size: int) -> str:
        """Return about the last `size` bytes of a container's log; an empty text if the log is gone.

        The API counts lines from the end, but limits bytes from there on. So long lines need further requests with
        fewer lines.
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
        async with self._request("GET", PODS.path(namespace, pod, "log"), what, query=query) as response:
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
        answer = await self._send(method, path, what, query=query, body=body, headers=headers, seconds=seconds)
        return _object(answer, what)

    async def _send(
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
        request = self._request(method, path, what, query=query, data=data, headers=headers, timeout=timeout)
        async with request as response:
            return await response.read()

    @asynccontextmanager
    async def _request(
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
        """Send a request. If the API refuses the credentials, read them again and repeat the request once."""
        timeout = timeout or aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        session = self._get_session()
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
                    self._on_answer(method, response.status)
                    if response.status == 401 and again:
                        self.access.invalidate()
                        continue
                    if response.status >= 300:
                        raise await _failed(method, what, response)
                    yield response
                    return
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._on_answer(method, 0)
                raise ClusterUnreachable(_no_answer_sentence(what, self.access.server, error)) from error

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=_socket),
                response_class=_Response,
                headers={"User-Agent": "opendataflow", "Accept-Encoding": "identity"},
            )
        return self._session


class _Response(aiohttp.ClientResponse):
    """A response that aborts its connection if it is not read to the end.

    A regular TLS shutdown waits for the other side, which may take half a minute, or longer than the event loop lives.
    """

    def close(self) -> None:
        """Abort a response that was given up before its body."""
        self._cut()
        super().close()

    def release(self) -> Any:
        """Abort a response that was not read to the end. One that was read has no connection any more."""
        self._cut()
        return super().release()

    def _cut(self) -> None:
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that detects a dead peer within half a minute. A watch has no other way to detect it."""
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
        status = decode(body)
    except ValueError:
        status = None
    judge = create_error if method == "POST" else error_of
    after = response.headers.get("Retry-After", "")
    return judge(
        what,
        response.status,
        status if isinstance(status, dict) else {},
        float(after) if after.isascii() and after.isdigit() else None,
    )


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = decode(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ClusterUnreachable(f"{what}: the answer is no JSON object: is this the Kubernetes API?")
    return found


def _no_answer_sentence(what: str, server: str, error: Exception) -> str:
    why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return f"{what}: the Kubernetes API at {server} does not answer: {why}"


def _title(namespace: str | None, body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
    return name if namespace is None else f"{namespace}/{name}"


def selector(have: Mapping[str, str], more: Iterable[str] = ()) -> str:
    """Return a label selector. `have`: labels with their values. `more`: other requirements, unchanged."""
    return ",".join([*(f"{label}={value}" for label, value in have.items()), *more])
