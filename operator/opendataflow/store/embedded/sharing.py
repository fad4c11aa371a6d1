"""How processes share the server of a home: join, ensure, leave. Never touches a file or a process itself."""

import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.binaries import binaries_within_reach
from opendataflow.store.embedded.client import Answer, create_database, dsn, probe
from opendataflow.store.embedded.cluster import check_version, create_cluster
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.locks import Share, starting
from opendataflow.store.embedded.server import SETTINGS, settle, start, stop
from opendataflow.store.embedded.user import ServerUser


class EmbeddedPostgres:
    """The server of one home, as one process uses it.

    `home`: the folder of everything, made when it is not there. `options`: server settings that override
    ours, by name; they count when this process is the one that starts the server. As a context manager it
    joins, gives the URL, and leaves. All methods block and may be called from any thread; they raise
    EmbeddedPostgresError.
    """

    def __init__(self, home: Path, options: Mapping[str, str] | None = None) -> None:
        self._home = Home(home.resolve())
        self._settings = {**SETTINGS, **(options or {})}
        self._guard = threading.RLock()
        self._share: Share | None = None

    def join(self) -> str:
        """Become a user of the server and return its libpq URL; create and start it if need be.

        Takes some seconds the first time, up to ten minutes after a crash. A second call acts like `ensure`.
        """
        with self._guard, _told(self._home):
            if self._share is not None:
                return self.ensure()
            ServerUser(self._home.data).make_folder(self._home.path)
            with starting(self._home):
                self._share = Share(self._home)
                try:
                    self._bring_up()
                    create_database(self._home)
                except EmbeddedPostgresError:
                    self._leave(self._share)  # a server that is still recovering goes on: stopping it would lose that
                    raise
                except BaseException:
                    self._stop_if_last(self._share)
                    raise
            return dsn(self._home)

    def ensure(self) -> str:
        """Return the URL of a server that answers now, after starting it again if it has died.

        The port may have changed. Only between `join` and `leave`: else RuntimeError.
        """
        with self._guard, _told(self._home):
            if self._share is None:
                raise RuntimeError("ensure() is for a process between join() and leave()")
            if probe(self._home) is not Answer.OURS:
                with starting(self._home):
                    self._bring_up()
            return dsn(self._home)

    def leave(self) -> None:
        """Stop using the server; the last process to leave stops it. A second call does nothing."""
        with self._guard, _told(self._home):
            if self._share is None:
                return
            if self._share.inherited:
                self._leave(self._share)
                return
            with starting(self._home):
                self._stop_if_last(self._share)

    def __enter__(self) -> str:
        return self.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _bring_up(self) -> None:
        """Return when the server answers; start.lock is held. Creates and starts what is not there."""
        if settle(self._home):
            return
        check_version(self._home)
        user = ServerUser(self._home.data)
        durable = self._settings.get("fsync") != "off"
        binaries = binaries_within_reach(self._home, user, durable=durable)
        create_cluster(self._home, user, binaries, durable=durable)
        start(self._home, user, binaries, self._settings)

    def _stop_if_last(self, share: Share) -> None:
        """Give up this process' share and stop the server if nobody else has one; start.lock is held."""
        try:
            if share.is_last():
                stop(self._home)
        finally:
            self._leave(share)

    def _leave(self, share: Share) -> None:
        share.give_up()
        self._share = None


@contextmanager
def _told(home: Home) -> Iterator[None]:
    """Turn what the system refuses into a sentence."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres can't use its folder {home.path} ({error}): mend that, or set DATAFLOW_HOME "
            "to another folder."
        ) from error
