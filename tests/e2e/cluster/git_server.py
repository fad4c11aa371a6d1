"""A git server for tests: `python git_server.py serve` answers https at 8443 with the certificate of /tls, everybody at
/public.git and at /private.git those who have the token in TOKEN; `python git_server.py commit FOLDER` commits what is
in the folder, and prints the commit. Both need dulwich, and share the repository in REPOSITORY.
"""

import base64
import os
import shutil
import ssl
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

from dulwich import porcelain
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend
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


def serve() -> None:
    """Answer, without an end."""
    served: dict[str, BackendRepo] = {path: Repo(str(REPOSITORY)) for path in ("/public.git", "/private.git")}
    app = make_wsgi_chain(DictBackend(served))
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
