"""The address of the Kubernetes API and our credentials: from the service account of the pod, or from a kubeconfig.

Supports the fields that `kubectl` supports: certificates and tokens inside or beside the file, `tokenFile`, user and
password, and `exec` plugins. Credentials are read again when they expire or are refused. This module never sends a
request to the cluster.
"""

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from opendataflow.errors import ClusterUnreachable, InvalidInput

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS = 60.0
"""How long a token from a file is used before the file is read again; the kubelet renews it well before its end."""
EXEC_SECONDS = 60.0
"""The timeout of an `exec` plugin."""
_BEFORE_EXPIRY = 60.0


@dataclass(frozen=True)
class Identity:
    """Credentials: an Authorization header, or a client certificate with its key (PEM). `until`: when they expire."""

    header: str | None = None
    certificate: tuple[str, str] | None = None
    until: float = float("inf")


class Access:
    """The address of the API, with credentials.

    `identify`: returns the credentials. It may read files or wait for a program, so it is called in a thread.
    `authorities`: certificates of trusted authorities (PEM). `namespace`: the default namespace.
    """

    def __init__(
        self,
        server: str,
        identify: Callable[[], Identity],
        *,
        authorities: str | None = None,
        insecure: bool = False,
        server_name: str | None = None,
        namespace: str = "default",
    ) -> None:
        self.server = server.rstrip("/")
        self.server_name = server_name
        self.namespace = namespace
        self._identify = identify
        self._authorities = authorities
        self._insecure = insecure
        self._identity: Identity | None = None
        self._tls: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()

    async def header(self) -> str | None:
        """Return the value of the Authorization header; None if there is none, for example with a certificate."""
        return (await self._current()).header

    async def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for plain HTTP. It is the same object as long as the certificate is the same."""
        identity = await self._current()
        if self.server.startswith("https://") and self._tls is None:
            self._tls = await asyncio.to_thread(self._context, identity.certificate)
        return self._tls

    def invalidate(self) -> None:
        """Read the credentials again before the next request, because the API has refused them."""
        self._identity = None

    async def _current(self) -> Identity:
        async with self._lock:
            before = self._identity
            if before is None or time.time() >= before.until:
                self._identity = await asyncio.to_thread(self._identify)
                if self._identity.certificate is not None and self._identity != before:
                    self._tls = None
            assert self._identity is not None
            return self._identity

    def _context(self, certificate: tuple[str, str] | None) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self._authorities)
            # Many clusters have authorities without key identifiers. kubectl accepts them, too.
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
            if self._insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if certificate is not None:
                _load_certificate(context, *certificate)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"the certificates for {self.server} can't be used: {error}") from error
        return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate into a context. Python reads it from files only, so write one in a private folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_text(f"{certificate.strip()}\n{key.strip()}\n")
        context.load_cert_chain(path)


def find_access(
    environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT, context: str | None = None
) -> Access:
    """Return the access to the cluster of KUBECONFIG, else of the pod's service account, else of ~/.kube/config.

    `context`: of a kubeconfig; then the service account is ignored. Raises InvalidInput, with a remedy, if no cluster
    is configured.
    """
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return from_kubeconfig(named, context)
    if context is None and "KUBERNETES_SERVICE_HOST" in environ and (service_account / "token").exists():
        return in_cluster(environ, service_account)
    usual = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if usual.exists():
        return from_kubeconfig([usual], context)
    raise InvalidInput("no Kubernetes cluster is known here: set KUBECONFIG to the path of a kubeconfig file")


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of the pod's service account."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = folder / "namespace"
    return Access(
        f"https://{host}:{port}",
        lambda: _from_token_file(folder / "token"),
        authorities=_read(folder / "ca.crt"),
        namespace=_read(namespace).strip() if namespace.exists() else "default",
    )


def from_kubeconfig(paths: list[Path], context: str | None = None) -> Access:
    """Return the access of `context` (None: the current context). The first file that has an entry counts.

    Raises InvalidInput, with the place, if the files are invalid.
    """
    files = [(path, _parsed(path)) for path in paths if path.exists() or len(paths) == 1]
    chosen = context or next((str(file["current-context"]) for _, file in files if file.get("current-context")), None)
    if chosen is None:
        raise InvalidInput(f"{_names(paths)}: no current-context; choose one with `kubectl config use-context`")
    settings, _ = _named(files, "contexts", chosen)
    cluster, folder = _named(files, "clusters", settings.get("cluster"))
    user, user_folder = _named(files, "users", settings["user"]) if settings.get("user") else ({}, folder)
    if not cluster.get("server"):
        raise InvalidInput(f"{_names(paths)}: cluster {settings.get('cluster')} has no server")
    return Access(
        str(cluster["server"]),
        lambda: _identity_of(user, user_folder),
        authorities=_content(cluster, "certificate-authority", folder),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        server_name=cluster.get("tls-server-name"),
        namespace=settings.get("namespace") or "default",
    )


def _identity_of(user: Mapping[str, Any], folder: Path) -> Identity:
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    pair = (certificate, key) if certificate and key else None
    if "exec" in user:
        return _from_exec(user["exec"], folder)
    if user.get("token"):
        return Identity(f"Bearer {user['token']}", pair)
    if user.get("tokenFile"):
        found = _from_token_file(folder / user["tokenFile"])
        return Identity(found.header, pair, found.until)
    if user.get("username"):
        both = f"{user['username']}:{user.get('password', '')}"
        return Identity(f"Basic {base64.b64encode(both.encode()).decode()}", pair)
    if "auth-provider" in user:
        raise InvalidInput("kubeconfig: auth-provider is not supported (nor by kubectl any more); use an exec plugin")
    return Identity(None, pair)


def _from_token_file(path: Path) -> Identity:
    return Identity(f"Bearer {_read(path).strip()}", until=time.time() + TOKEN_SECONDS)


def _from_exec(plugin: Mapping[str, Any], folder: Path) -> Identity:
    import subprocess  # slow to import, and plugins are rare

    command = str(plugin.get("command", ""))
    if "/" in command:
        command = str(folder / command)
    wanted = {
        "apiVersion": plugin.get("apiVersion", "client.authentication.k8s.io/v1"),
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    given = {item["name"]: item["value"] for item in plugin.get("env") or []}
    env = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(wanted)}
    try:
        done = subprocess.run(
            [command, *(plugin.get("args") or [])],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=EXEC_SECONDS,
            check=False,
        )
        status = json.loads(done.stdout)["status"] if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise ClusterUnreachable(f"the credential plugin {command} gave none: {type(error).__name__}") from error
    if status is None:
        stderr = done.stderr.decode(errors="replace").strip().splitlines()
        raise ClusterUnreachable(
            f"the credential plugin {command} ended with exit code {done.returncode}: {stderr[-1] if stderr else ''}"
        )
    until = float("inf")
    if status.get("expirationTimestamp"):
        until = datetime.fromisoformat(status["expirationTimestamp"]).timestamp() - _BEFORE_EXPIRY
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    token = status.get("token")
    return Identity(f"Bearer {token}" if token else None, (certificate, key) if certificate and key else None, until)


def _named(files: list[tuple[Path, dict[str, Any]]], kind: str, name: Any) -> tuple[dict[str, Any], Path]:
    """Return the entry with a name, and the folder that its relative paths refer to."""
    for path, file in files:
        for item in file.get(kind) or []:
            if isinstance(item, dict) and item.get("name") == name:
                return item.get(kind.removesuffix("s")) or {}, path.absolute().parent
    raise InvalidInput(f"{_names([path for path, _ in files])}: there is no {kind.removesuffix('s')} {name}")


def _content(settings: Mapping[str, Any], field: str, folder: Path) -> str | None:
    """Return the content of a field: `client-key-data` holds base64 text, `client-key` holds a path."""
    try:
        if settings.get(f"{field}-data"):
            return base64.b64decode(settings[f"{field}-data"], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise InvalidInput(f"kubeconfig: {field}-data is no base64 text") from None
    return _read(folder / settings[field]) if settings.get(field) else None


def _parsed(path: Path) -> dict[str, Any]:
    try:
        parsed = yaml.safe_load(_read(path))
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is no YAML: {getattr(error, 'problem', None) or 'it can not be read'}") from None
    if not isinstance(parsed, dict):
        raise InvalidInput(f"{path} is no kubeconfig file")
    return parsed


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInput(f"{path} can't be read: {why}") from error


def _names(paths: list[Path]) -> str:
    return ", ".join(str(path) for path in paths)
