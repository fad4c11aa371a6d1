"""A proxy in front of an API server that loses, delays and refuses requests as a test orders.

It ends TLS with a certificate of its own authority, signs in as the user of the kubeconfig it was given, and speaks
HTTP/1.1 with one request a connection: so it need not know where an answer ends.
"""

import asyncio
import base64
import json
import re
import ssl
import tempfile
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from tests.kube.cluster.certificates import Authority, write_kubeconfig

_CHUNK = 65536


@dataclass
class Fault:
    """What happens to the next `times` requests whose method and path (with its query) match.

    `delay`: seconds before anything else. `answer`: bytes to answer with, instead of asking the API server.
    `drop`: "request": the connection is cut before the API server hears of it; "reply": after it has done all of it.
    """

    method: str
    path: str
    times: int = 1
    delay: float = 0
    answer: bytes | None = None
    drop: str | None = None
    met: int = 0
    """How many requests it has met so far."""

    def matches(self, method: str, path: str) -> bool:
        """Whether it is for this request; `path` is searched for, as a regular expression."""
        return self.met < self.times and method == self.method and re.search(self.path, path) is not None


def refusal(status: int, reason: str, message: str = "made by the proxy of the tests", **headers: str) -> bytes:
    """An answer with a Status object; Retry_After="1" is the header Retry-After."""
    return _answer(f"{status} {reason}", _status(status, reason, message), headers)


def watch_error(status: int, reason: str) -> bytes:
    """The answer to a watch that ends with one ERROR event, as for a resource version that is gone (410, Expired)."""
    event = {"type": "ERROR", "object": _status(status, reason, "made by the proxy of the tests")}
    return _answer("200 OK", event, {})


def _status(code: int, reason: str, message: str) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _answer(line: str, body: object, headers: dict[str, str]) -> bytes:
    text = json.dumps(body).encode() + b"\n"
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {"Content-Type": "application/json", "Content-Length": str(len(text)), "Connection": "close", **given}
    lines = [f"HTTP/1.1 {line}", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + text


class Proxy:
    """Opened in a thread: clients use `proxy.kubeconfig`; `proxy.faults` says what goes wrong."""

    def __init__(self, kubeconfig: Path) -> None:
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, str]] = []
        """Method and path of every request that came."""
        self.streaming = 0
        """How many answers of the API server have begun and not ended."""
        self._folder = tempfile.TemporaryDirectory(prefix="dataflow-proxy-")
        self._home = Path(self._folder.name)
        self._upstream = kubeconfig
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def kubeconfig(self) -> Path:
        """For those who shall go through the proxy."""
        return self._home / "kubeconfig"

    def fail(self, fault: Fault) -> Fault:
        """Add a fault; returns it, so that a test can see how often it was met."""
        self.faults.append(fault)
        return fault

    async def __aenter__(self) -> Self:
        authority = Authority(self._home / "pki")
        authority.issue("proxy", "proxy", hosts=["127.0.0.1"])
        authority.issue("client", "client")
        accepts = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        accepts.load_cert_chain(self._home / "pki/proxy.crt", self._home / "pki/proxy.key")
        self._read_upstream()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=accepts)
        port = self._server.sockets[0].getsockname()[1]
        write_kubeconfig(self.kubeconfig, f"https://127.0.0.1:{port}", self._home / "pki", "client")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._cut()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._folder.cleanup()

    def cut(self) -> int:
        """Cut all open connections, watches too; return how many. For other threads than that of the proxy."""
        assert self._server is not None
        number: Future[int] = Future()
        self._server.get_loop().call_soon_threadsafe(lambda: number.set_result(self._cut()))
        return number.result(60)

    def _cut(self) -> int:
        for connection in self._connections:
            connection.cancel()
        return len(self._connections)

    def _read_upstream(self) -> None:
        config = yaml.safe_load(self._upstream.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        host, _, port = cluster["server"].removeprefix("https://").partition(":")
        self._address = (host, int(port or 443))
        for name, value in (("crt", user["client-certificate-data"]), ("key", user["client-key-data"])):
            (self._home / f"upstream.{name}").write_bytes(base64.b64decode(value))
        self._trust = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        self._trust.load_cert_chain(self._home / "upstream.crt", self._home / "upstream.key")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        future = asyncio.current_task()
        assert future is not None
        self._connections.add(future)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(future)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path = head.split(b" ", 2)[:2]
        body = await _body(head, reader)
        self.seen.append((method.decode(), path.decode()))
        fault = next((f for f in self.faults if f.matches(method.decode(), path.decode())), Fault("", ""))
        fault.met += 1
        await asyncio.sleep(fault.delay)
        if fault.drop == "request":
            raise ConnectionAbortedError
        if fault.answer is not None:
            writer.write(fault.answer)
            await writer.drain()
            return
        await self._forward(_closing(head) + body, writer, lost=fault.drop == "reply")

    async def _forward(self, request: bytes, writer: asyncio.StreamWriter, *, lost: bool) -> None:
        theirs, upstream = await asyncio.open_connection(*self._address, ssl=self._trust)
        try:
            upstream.write(request)
            read = await theirs.read(_CHUNK)
            self.streaming += 1
            try:
                while read:
                    if not lost:
                        writer.write(read)
                        await writer.drain()
                    read = await theirs.read(_CHUNK)
            finally:
                self.streaming -= 1
        finally:
            upstream.transport.abort()  # a goodbye in TLS would outlive the test
        if lost:
            raise ConnectionAbortedError


def _header(head: bytes, name: bytes) -> bytes:
    found = re.search(rb"(?mi)^" + name + rb":[ \t]*(.*?)\r$", head)
    return found.group(1) if found else b""


def _closing(head: bytes) -> bytes:
    """The head of a request, changed so that the connection ends with the answer."""
    kept = re.sub(rb"(?mi)^(connection|authorization):.*\r\n", b"", head)
    return kept[:-2] + b"Connection: close\r\n\r\n"


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"chunked" in _header(head, b"Transfer-Encoding").lower():
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += await reader.readuntil(b"\r\n")
        return read
    return await reader.readexactly(int(_header(head, b"Content-Length") or 0))
