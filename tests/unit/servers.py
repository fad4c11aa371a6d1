"""Real servers on the loopback interface for the tests of notifications: for mail, and one that never answers."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Self

CLOSED_PORT = 1
"""Where nobody listens, nor will: the system gives it to nobody who asks for any port."""


@contextmanager
def silent_server() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def full_server() -> Iterator[int]:
    """A server that is there and takes no connection any more."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as waiting:
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


class _Conversation(socketserver.StreamRequestHandler):
    """Speaks SMTP with one client."""

    server: "_MailServer"

    def handle(self) -> None:
        self._sender, self._recipients = "", list[str]()
        self._say("220 box")
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            self.server.box.heard.append(line)
            word = line.split()[0].upper()
            self._say(self._answer(word, line) if word != self.server.box.refuse else "550 not you")
            if word == "QUIT":
                return

    def _answer(self, word: str, line: str) -> str:
        if word == "MAIL":
            self._sender = line.split("<")[1].split(">")[0]
        elif word == "RCPT":
            self._recipients.append(line.split("<")[1].split(">")[0])
        elif word == "DATA":
            self._say("354 go on")
            self.server.box.received.append((self._sender, self._recipients, self._message()))
        return "250 ok" if word != "QUIT" else "221 bye"

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def _message(self) -> EmailMessage:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b"."))
        parsed = message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed


class _MailServer(socketserver.ThreadingTCPServer):
    def __init__(self, box: "MailBox") -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.box = box


class MailBox:
    """A mail server without TLS that keeps what it gets, or refuses a command."""

    def __init__(self, refuse: str | None = None) -> None:
        self.refuse = refuse
        self.received: list[tuple[str, list[str], EmailMessage]] = []
        self.heard: list[str] = []
        self._server = _MailServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
