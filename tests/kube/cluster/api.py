"""Speaks plain JSON with an API server, for tests: whatever kubeconfig there is, `kubectl proxy` does the signing in.

The tests' own eyes and hands only; what is tested has its own client.
"""

import copy
import http.client
import json
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.kube.cluster.processes import Program
from tests.waiting import wait_until

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class Refused(Exception):
    """An answer that is not a success; `status` is its HTTP status, and the text what the API server says."""

    def __init__(self, status: int, answer: str) -> None:
        super().__init__(f"{status}: {answer}")
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=240)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class Api:
    """An administrator's access to one cluster."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = kubectl
        self._headers = {"Accept": "application/json"}
        self._folder = tempfile.TemporaryDirectory(prefix="dataflow-kube-")
        self.socket = Path(self._folder.name) / "proxy"
        command = [str(kubectl), f"--kubeconfig={kubeconfig}", "proxy", f"--unix-socket={self.socket}"]
        self._proxy = Program("kubectl-proxy", command, Path(self._folder.name) / "log")

    def __enter__(self) -> Self:
        self._proxy.start()
        try:
            wait_until(self._listens, "kubectl proxy has started")
        except BaseException:
            self.__exit__()
            raise
        return self

    def acting_as(self, user: str) -> "Api":
        """The same access with the rights of a user; not for `kubectl`."""
        made = copy.copy(self)
        made._headers = {**self._headers, "Impersonate-User": user}
        return made

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def __exit__(self, *_: object) -> None:
        self._proxy.kill()
        self._folder.cleanup()

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float | None = None) -> str:
        """Run kubectl to its end; return what it printed.

        Raises CalledProcessError, whose `stderr` is the output; TimeoutExpired after `seconds`. None: kubectl has
        limits of its own, such as `--timeout`, and each test has one.
        """
        done = subprocess.run(
            [self._kubectl, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr.strip())
        return done.stdout

    def text(self, method: str, path: str, body: object = None, kind: str = "application/json") -> str:
        """Send one request; return the body of the answer. Raises Refused, OSError. Bytes are sent unchanged."""
        connection = _Connection(self.socket)
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, sent, {**self._headers, "Content-Type": kind})
            with connection.getresponse() as answer:  # which keeps the socket, should it break off
                read = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, read)
        return read

    def _json(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Object:
        answer: Object = json.loads(self.text(method, path, body, kind))
        return answer

    def get(self, path: str) -> Object:
        """GET."""
        return self._json("GET", path)

    def find(self, path: str) -> Object | None:
        """GET; None where there is nothing."""
        try:
            return self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def items(self, path: str) -> list[Object]:
        """GET of a list."""
        found: list[Object] = self.get(path)["items"]
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """POST."""
        return self._json("POST", path, body)

    def patch(self, path: str, body: object, kind: str = MERGE) -> Object:
        """PATCH."""
        return self._json("PATCH", path, body, kind)

    def apply(self, path: str, body: object) -> Object:
        """Apply an object as `kubectl apply --server-side --force-conflicts` does, without starting a process."""
        return self._json("PATCH", f"{path}?fieldManager=kubectl&force=true&fieldValidation=Strict", body, _APPLY)

    def delete(self, path: str, **options: Any) -> Object:
        """DELETE; `options` as in DeleteOptions."""
        return self._json("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def wait(self, path: str, true: Callable[[Object], bool], what: str, seconds: float = 240) -> Object:
        """Look at an object until it is as wanted; return it then. Raises TimeoutError that shows its status."""
        seen: list[Object] = []

        def look() -> bool:
            found = self.find(path)
            seen[:] = [found] if found else []
            return found is not None and true(found)

        try:
            wait_until(look, what, seconds)
        except TimeoutError as late:
            state = (
                json.dumps({key: seen[0].get(key) for key in ("metadata", "status")}, indent=1) if seen else "nothing"
            )
            raise TimeoutError(f"{late}; there is: {state}") from None
        return seen[0]

    def wait_gone(self, path: str, seconds: float = 240) -> None:
        """Return when there is nothing at a path."""
        wait_until(lambda: self.find(path) is None, f"{path} is gone", seconds)
