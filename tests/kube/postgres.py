"""A Postgres of one test module that can be stopped, killed and paused, and a proxy in front of one that loses what it
is told to: requests, or replies to what the server has committed.
"""

import asyncio
import os
import re
import signal
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.migrations.schema import migrate
from tests.waiting import wait_until


class Server:
    """Starts in `folder`. What it has committed it has still after `crash`; its port stays the same."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "postgres" / "data"
        self._embedded = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
        self.dsn = self._embedded.join()

    def database(self, name: str) -> str:
        """Make a database with the current schema; return its address."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        dsn = make_conninfo(self.dsn, dbname=name)

        async def fill() -> None:
            async with await connect(dsn) as connection:
                await migrate(connection)

        asyncio.run(fill())
        return dsn

    def stop(self) -> None:
        """As an administrator does it: sessions are ended."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """As when its machine loses power; it has to recover."""
        self._end(signal.SIGQUIT)

    def start(self) -> None:
        """Start it again after `stop` or `crash`; return when it answers."""
        before = conninfo_to_dict(self.dsn)["port"]
        self.dsn = self._embedded.ensure()
        assert conninfo_to_dict(self.dsn)["port"] == before

    def pause(self) -> None:
        """Let it hang: connections stay open, new ones are taken by the kernel, and nobody answers."""
        os.kill(self._postmaster(), signal.SIGSTOP)  # the first: it starts no others then
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._send(signal.SIGCONT)

    def leave(self) -> None:
        """End it."""
        self.resume()
        self._embedded.leave()

    def _postmaster(self) -> int:
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def _send(self, number: int) -> None:
        for pid in self._processes():
            with suppress(ProcessLookupError):  # a session that has just ended
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        try:
            postmaster = self._postmaster()
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        except OSError:
            return []
        return [postmaster, *map(int, children)]

    def _end(self, number: int) -> None:
        postmaster = self._postmaster()
        os.kill(postmaster, number)
        wait_until(lambda: not Path(f"/proc/{postmaster}").exists(), "Postgres has ended")


@dataclass
class Loss:
    """What is lost: the next `times` statements that `pattern` is found in. `reply`: after all of it is done, else
    before the server hears of it. `met`: how often it has happened."""

    pattern: str
    reply: bool = True
    times: int = 1
    met: int = 0


@dataclass
class PostgresProxy:
    """In front of the server at `dsn`; clients use `through`. Runs in a thread of its own: see `postgres_proxy`."""

    dsn: str
    through: str = ""
    losses: list[Loss] = field(default_factory=list)

    def lose(self, pattern: str, *, reply: bool = True, times: int = 1) -> Loss:
        """Lose something from now on; returns it, so that a test can see how often that has happened."""
        loss = Loss(pattern, reply, times)
        self.losses.append(loss)
        return loss

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.through = make_conninfo(self.dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        try:
            yield
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = conninfo_to_dict(self.dsn)
        try:
            theirs, upstream = await asyncio.open_connection(str(parts["host"]), int(str(parts["port"])))
        except OSError:
            writer.transport.abort()
            return
        session = _Session(self.losses)
        pumps = [
            asyncio.create_task(session.requests(reader, upstream)),
            asyncio.create_task(session.replies(theirs, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            upstream.transport.abort()
            writer.transport.abort()


class _Session:
    """One connection. Reads as much of the protocol as it takes to know which statement is about to be executed."""

    def __init__(self, losses: list[Loss]) -> None:
        self._losses = losses
        self._statements: dict[bytes, str] = {}
        self._losing = False

    async def requests(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        server.write(await _untyped(client))
        while True:
            kind, body = await _message(client)
            loss = self._loss_of(kind, body)
            if loss is not None:
                loss.met += 1
                if not loss.reply:
                    return
                self._losing = True
            server.write(kind + struct.pack("!I", len(body) + 4) + body)
            await server.drain()

    async def replies(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while True:
            kind, body = await _message(server)
            if self._losing:
                if kind == b"Z":  # all of it is done, and committed where it commits by itself
                    return
                continue
            client.write(kind + struct.pack("!I", len(body) + 4) + body)
            await client.drain()

    def _loss_of(self, kind: bytes, body: bytes) -> Loss | None:
        statement = self._statement(kind, body)
        if statement is None:
            return None
        return next(
            (loss for loss in self._losses if loss.met < loss.times and re.search(loss.pattern, statement)), None
        )

    def _statement(self, kind: bytes, body: bytes) -> str | None:
        """The statement that a message executes, or is about to."""
        if kind == b"P":
            name, query, _ = body.split(b"\0", 2)
            self._statements[name] = query.decode()
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._statements.get(name)
        elif kind == b"Q":
            return body.rstrip(b"\0").decode()
        return None


async def _untyped(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack("!I", length)[0] - 4)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


@contextmanager
def postgres_proxy(dsn: str) -> Iterator[PostgresProxy]:
    """A proxy for the time of the block."""
    proxy = PostgresProxy(dsn)
    with in_a_thread(proxy.serving):
        yield proxy


@contextmanager
def in_a_thread(opened: Callable[[], AbstractAsyncContextManager[object]]) -> Iterator[None]:
    """Keep an asynchronous context open in a thread with a loop of its own, for tests that are not asynchronous."""
    begun: Future[None] = Future()
    stop = threading.Event()

    async def work() -> None:
        async with opened():
            begun.set_result(None)
            await asyncio.to_thread(stop.wait)

    def main() -> None:
        try:
            asyncio.run(work())
        except Exception as error:
            if begun.done():
                raise
            begun.set_exception(error)

    thread = threading.Thread(target=main)
    thread.start()
    try:
        begun.result(300)
        yield
    finally:
        stop.set()
        thread.join()
