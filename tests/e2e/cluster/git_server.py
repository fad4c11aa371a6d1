"""A git server for tests: `python git_server.py serve` answers https at 8443 with the certificate of /tls, everybody at
/public.git and at /private.git those who have the token in TOKEN, and ssh at 2222 with the key /ssh/server those who
have the private one of /ssh/user.pub; `python git_server.py commit FOLDER` commits what is in the folder, and prints
the commit. All need dulwich and paramiko, and share the repository in REPOSITORY.
"""

import base64
import os
import shlex
import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import paramiko
from dulwich import porcelain
from dulwich.errors import GitProtocolError
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend, UploadPackHandler, serve_command
from dulwich.web import make_wsgi_chain

REPOSITORY = Path(os.environ.get("REPOSITORY", "/data/repository"))
ME = b"me <me@example.org>"


def commit(folder: Path) -> str:
    """Commit the files of a folder as a ConfigMap has them; every commit has a tag: this server gives only
    commits that have a name."""
    if not REPOSITORY.exists():
        porcelain.init(str(REPOSITORY), symlinks=False).close()
    for file in folder.iterdir():
        inside = "" if file.name == "project.yml" else "pipelines/delays" if file.suffix == ".py" else "sources"
        if file.is_file():
            (REPOSITORY / inside).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, REPOSITORY / inside / file.name)
    with Repo(str(REPOSITORY)) as repo:
        porcelain.add(
            repo, [str(path) for path in REPOSITORY.rglob("*") if path.is_file() and ".git" not in path.parts]
        )
        made = porcelain.commit(repo, message=b"work", author=ME, committer=ME).decode()
        repo.refs[Ref(f"refs/tags/t{made}".encode())] = repo.head()
    return made


class GitLogin(paramiko.ServerInterface):  # type: ignore[misc]  # it has no types
    """Lets the user git with one key run `git-upload-pack` for what is served."""

    def __init__(self, allowed: str, served: DictBackend) -> None:
        """`allowed`: the public key, in base64."""
        self._allowed = allowed
        self._served = served

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 # a protocol
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        right = (username, key.get_base64()) == ("git", self._allowed)
        return int(paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002 # a protocol
        return int(paramiko.OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, shlex.split(command.decode())), daemon=True).start()
        return True

    def _answer(self, channel: paramiko.Channel, words: list[str]) -> None:
        with suppress(EOFError, OSError), closing(channel):  # whoever asks goes when he has what he wants
            if words[1] in self._served.repos:
                self._give(channel, words)
            else:
                channel.sendall_stderr(b"ERROR: Repository not found.\n")
            channel.send_exit_status(0)
            channel.shutdown_write()
            while channel.recv(1024):  # what is closed before its beginning was answered looks refused
                pass

    def _give(self, channel: paramiko.Channel, words: list[str]) -> None:
        try:
            serve_command(UploadPackHandler, words, self._served, channel.makefile("rb"), channel.makefile("wb"))
        except GitProtocolError as error:
            channel.sendall_stderr(f"fatal: {error}\n".encode())


def serve_by_ssh(listener: socket.socket, key: paramiko.PKey, allowed: str, served: DictBackend) -> None:
    """Answer until the socket is closed. `key`: of the server; `allowed`: see GitLogin."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        transport = paramiko.Transport(connection)
        transport.add_server_key(key)
        transport.start_server(event=threading.Event(), server=GitLogin(allowed, served))


def serve() -> None:
    """Answer, without an end."""
    served: dict[str, BackendRepo] = {path: Repo(str(REPOSITORY)) for path in ("/public.git", "/private.git")}
    app = make_wsgi_chain(DictBackend(served))
    ours, theirs = paramiko.ECDSAKey.from_private_key_file("/ssh/server"), Path("/ssh/user.pub").read_text("ascii")
    by_ssh = (socket.create_server(("", 2222)), ours, theirs, DictBackend(served))
    threading.Thread(target=serve_by_ssh, args=by_ssh, daemon=True).start()
    expected = "Basic " + base64.b64encode(f"deploy:{os.environ['TOKEN']}".encode()).decode()

    def guarded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/private") and environ.get("HTTP_AUTHORIZATION") != expected:
            start("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return [b""]
        return app(environ, start)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
    with make_server("", 8443, guarded) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(commit(Path(sys.argv[2])))
