"""Connect by ssh with a given key, for dulwich in `fetching`. A pod has no ssh program.

Only the given servers are trusted. No file, agent or user setting is read. The key stays in memory, and no message
contains the key.
"""

import io
import logging
from collections.abc import Sequence
from typing import Any, NoReturn

import paramiko

from opendataflow.errors import DataflowError, StepFailed, Unanswered
from opendataflow.names import NO_ANSWER

_KINDS = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)
_PORT = 22
_DEFAULT_USER = "git"
"""The user if the url names none."""


class DeployKey:
    """Connects to the server of one repository. Implements dulwich's protocol of an ssh vendor."""

    def __init__(self, url: str, key: str, known_hosts: Sequence[str], seconds: float) -> None:
        """Set the credentials of a repository.

        `key`: a private key as ssh-keygen writes it. `known_hosts`: lines as ssh-keyscan prints them. `seconds`: the
        timeout for an answer of the server.
        """
        self._url = url
        self._key = key
        self._known = known_hosts
        self._seconds = seconds

    def run_command(
        self, host: str, command: bytes, username: str | None = None, port: int | None = None, **_: Any
    ) -> "_RemoteCommand":
        """Run a command on the server.

        Raises StepFailed if the server is unknown or refuses the key, Unanswered if the server does not answer.
        """
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # all its errors are raised below
        key, client = self._read_key(), paramiko.SSHClient()
        self._add_known_hosts(client.get_host_keys())
        client.set_missing_host_key_policy(_RejectUnknownHost(self._url))
        try:
            client.connect(
                host,
                port or _PORT,
                username or _DEFAULT_USER,
                pkey=key,
                allow_agent=False,
                look_for_keys=False,
                timeout=self._seconds,
                banner_timeout=self._seconds,
                auth_timeout=self._seconds,
                channel_timeout=self._seconds,
            )
            return _RemoteCommand(client, command, self._seconds)
        except (paramiko.SSHException, StepFailed, EOFError, OSError) as error:
            client.close()
            raise self._explain(error) from None

    def _explain(self, error: Exception) -> DataflowError:
        if isinstance(error, DataflowError):
            return error
        if isinstance(error, paramiko.BadHostKeyException):
            return StepFailed(
                f"{self._url}: the server has another key than knownHosts says; it was given a new one, or it is "
                "somebody else's"
            )
        if isinstance(error, paramiko.AuthenticationException):
            return StepFailed(f"{self._url} refuses access; look at the key that secretRef names, and what it may read")
        return Unanswered(f"{NO_ANSWER}: {self._url}: {str(error) or type(error).__name__}")

    def _read_key(self) -> paramiko.PKey:
        written = "\n".join(line.strip() for line in self._key.strip().splitlines()) + "\n"
        for kind in _KINDS:
            try:
                return kind.from_private_key(io.StringIO(written))
            except paramiko.PasswordRequiredException:
                raise StepFailed(
                    f"the key for {self._url} has a passphrase, which nobody can type here; make one without"
                ) from None
            except Exception:  # each kind of key raises other errors for keys of another kind
                continue
        raise StepFailed(
            f"what secretRef names for {self._url} is no private key of ssh; write a token for an https url only"
        )

    def _add_known_hosts(self, known: paramiko.HostKeys) -> None:
        for number, line in enumerate(self._known):
            try:
                found = paramiko.hostkeys.HostKeyEntry.from_line(" ".join(line.split()))
            except paramiko.SSHException:
                found = None
            if found is None:
                raise StepFailed(
                    f"{self._url}: knownHosts[{number}] is no key of a server; write it as ssh-keyscan does"
                )
            for name in found.hostnames:
                known.add(name, found.key.get_name(), found.key)


class _RejectUnknownHost(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # it has no types
    """Rejects every host whose key is unknown."""

    def __init__(self, url: str) -> None:
        self._url = url

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ARG002 # a protocol
        raise StepFailed(
            f"{self._url}: knownHosts has no key of {hostname}, which shows {key.get_name()} {key.fingerprint}; "
            "compare that with what its owner publishes, and add what ssh-keyscan prints"
        )


class _RemoteCommand:
    """A running command on the server. Implements the protocol that dulwich expects."""

    def __init__(self, client: paramiko.SSHClient, command: bytes, seconds: float) -> None:
        transport = client.get_transport()
        assert transport is not None  # it is connected
        self._client = client
        self._channel = transport.open_session()
        self._channel.settimeout(seconds)
        self._channel.exec_command(command)
        self._output = self._channel.makefile("rb")
        self.stderr = self._channel.makefile_stderr("rb")

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end."""
        return bytes(self._output.read(size))

    def write(self, data: bytes) -> int:
        """Send all data."""
        self._channel.sendall(data)
        return len(data)

    def can_read(self) -> bool:
        """Return whether data is available."""
        return bool(self._channel.recv_ready())

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
