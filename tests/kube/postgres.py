"""A Postgres of one test module that can be stopped, killed and paused, and a proxy in front of one that loses what it
is configured to: requests, or replies to what the server has committed. It can also cut connections at every statement.
"""

import asyncio
import os
import re
import shutil
import signal
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.embedded.user import ServerUser
from opendataflow.store.migrations.schema import migrate
from tests.waiting import wait_until


class Server:
    """Starts in `folder`. What it has committed it has still after `crash`; its port stays the same."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "postgres" / "data"
        self._embedded = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
        self.dsn = self._embedded.join()

    def replica(self, folder: Path) -> "Server":
        """Start a server in `folder` that streams from this one, asynchronously."""
        home, other = self._data.parent, folder / "postgres"
        user = ServerUser(other / "data")
        user.make_folder(other)
        with tempfile.TemporaryDirectory(dir=other) as made:  # the server's user may create nothing beside it
            user.own(Path(made))
            copy = [str(self._program("pg_basebackup")), f"--pgdata={made}/data", f"--dbname={self.dsn}"]
            done = user.run([*copy, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            assert done.returncode == 0, done.stderr.decode()
            Path(made, "data").rename(other / "data")
        shutil.copy(home / "password", other / "password")
        return Server(folder)

    def cut_off(self) -> None:
        """Let a replica receive nothing more."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
            receives = "SELECT FROM pg_stat_wal_receiver"
            wait_until(lambda: not connection.execute(receives).fetchall(), "the replica receives nothing")

    def promote(self) -> None:
        """Make a replica the primary server."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 600)")

    def _program(self, name: str) -> Path:
        """A program that belongs to the running server."""
        return Path(f"/proc/{self._postmaster()}/exe").readlink().with_name(name)

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


class Cut(Enum):
    """How a connection ends at a statement."""

    REQUEST_LOST = "the server never hears of the statement"
    REPLY_LOST = "the server has executed the statement, and nobody hears of it"
    TERMINATED = "the server ends the session instead, and says so"


_TERMINATED = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"


@dataclass
class Cuts:
    """Every statement is cut the first times that it comes, once in each of `ways`. `met`: how often each was cut."""

    ways: tuple[Cut, ...]
    met: Counter[str] = field(default_factory=Counter)

    def next(self, statement: str) -> Cut | None:
        """Return how this statement is cut now; None: not any more."""
        number = self.met[statement]
        if number == len(self.ways):
            return None
        self.met[statement] += 1
        return self.ways[number]

    @property
    def left(self) -> list[str]:
        """Statements that have come and are to be cut again."""
        return [statement for statement, number in list(self.met.items()) if number < len(self.ways)]


@dataclass
class PostgresProxy:
    """In front of the server at `dsn`; clients use `through`. Runs in a thread of its own: see `postgres_proxy`."""

    dsn: str
    through: str = ""
    losses: list[Loss] = field(default_factory=list)
    cuts: Cuts | None = None

    def lose(self, pattern: str, *, reply: bool = True, times: int = 1) -> Loss:
        """Lose something from now on; returns it, so that a test can see how often that has happened."""
        loss = Loss(pattern, reply, times)
        self.losses.append(loss)
        return loss

    def cut_all(self, *ways: Cut) -> Cuts:
        """Cut every statement from now on, once in each way, which are all by default; a test can see it happen."""
        self.cuts = Cuts(ways or tuple(Cut))
        return self.cuts

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        sessions: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            session = asyncio.create_task(self._accept(reader, writer))
            sessions.add(session)
            session.add_done_callback(sessions.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.through = make_conninfo(self.dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        try:
            yield
        finally:
            server.close()
            for session in sessions:
                session.cancel()
            await asyncio.gather(*sessions, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = conninfo_to_dict(self.dsn)
        try:
            theirs, upstream = await asyncio.open_connection(str(parts["host"]), int(str(parts["port"])))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        session = _Session(self)
        pumps = [
            asyncio.create_task(session.requests(reader, upstream, writer)),
            asyncio.create_task(session.replies(theirs, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            upstream.transport.abort()
            writer.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)


class _Session:
    """One connection. Reads as much of the protocol as it takes to know which statement is about to be executed."""

    def __init__(self, proxy: PostgresProxy) -> None:
        self._proxy = proxy
        self._statements: dict[bytes, str] = {}
        self._losing = False

    async def requests(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        server.write(await _untyped(client))
        while True:
            kind, body = await _message(client)
            cut = self._cut(kind, body)
            if cut is Cut.TERMINATED:
                back.write(b"E" + struct.pack("!I", len(_TERMINATED) + 4) + _TERMINATED)
                await back.drain()
            if cut in (Cut.TERMINATED, Cut.REQUEST_LOST):
                return
            self._losing = self._losing or cut is Cut.REPLY_LOST
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

    def _cut(self, kind: bytes, body: bytes) -> Cut | None:
        statement = self._statement(kind, body)
        if statement is None:
            return None
        for loss in self._proxy.losses:
            if loss.met < loss.times and re.search(loss.pattern, statement):
                loss.met += 1
                return Cut.REPLY_LOST if loss.reply else Cut.REQUEST_LOST
        return None if self._proxy.cuts is None else self._proxy.cuts.next(statement)

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
