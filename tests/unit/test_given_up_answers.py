"""Connections to the Kubernetes API whose answers nobody waits for: they are cut, whatever the other side does."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from opendataflow.launch.cluster.access import Access, Identity
from opendataflow.launch.cluster.api import PODS, Api
from tests.kube.cluster.certificates import Authority

LIST_BEGINS = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"items": ['
REFUSAL_BEGINS = LIST_BEGINS.replace(b"200 OK", b"500 Internal Server Error")


class HalfAnswer:
    """A server that begins an answer at the most, and then neither reads nor says goodbye."""

    def __init__(self, folder: Path) -> None:
        Authority(folder).issue("server", "server", hosts=["127.0.0.1"])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.authorities = (folder / "ca.crt").read_text()
        self.port = self._listens.getsockname()[1]
        self.begins = b""
        self.asked, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listens.accept()
        with self._listens, self._context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(4096)
            secured.sendall(self.begins)
            self.asked.set()
            self.over.wait()

    def leave(self) -> None:
        self.over.set()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HalfAnswer]:
    made = HalfAnswer(tmp_path / "pki")
    yield made
    made.leave()


@pytest.mark.parametrize("begins", [b"", LIST_BEGINS, REFUSAL_BEGINS], ids=["nothing", "a list", "a refusal"])
def test_a_question_that_is_cancelled_leaves_no_connection_when_the_loop_ends(
    server: HalfAnswer, begins: bytes
) -> None:
    async def ask() -> None:
        access = Access(f"https://127.0.0.1:{server.port}", Identity, authorities=server.authorities)
        begun = asyncio.Event()
        async with Api(access, lambda _verb, _code: begun.set()) as api:
            question = asyncio.create_task(api.get(PODS, "n", "a"))
            await (begun.wait() if begins else asyncio.to_thread(server.asked.wait))
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)

    server.begins = begins
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        asyncio.run(ask())
        gc.collect()
    assert [str(one.message) for one in raised] == []
