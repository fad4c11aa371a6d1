"""What the tests of launchers share: short pauses, a launcher over a cluster, and how they wait for an end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opendataflow.launch.cluster import launcher as launching
from opendataflow.launch.cluster import releases
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.run import Ended
from tests.kube.cluster.api import Api as Admin
from tests.kube.cluster.api import Object
from tests.kube.cluster.proxy import Proxy

SECONDS = 240


class EnginePlace:
    """A namespace with an engine of its own: its identity is the namespace's name."""

    def __init__(self, admin: Admin, namespace: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.notes: list[str] = []

    def launcher(self, proxy: Proxy | None = None, **more: Any) -> AbstractAsyncContextManager[ClusterLauncher]:
        kubeconfig = self.admin.kubeconfig if proxy is None else proxy.kubeconfig
        return new_launcher(kubeconfig, self.namespace, self.notes.append, **more)

    async def wait(self, path: str, true: Any, what: str = "it is so") -> Object:
        return await asyncio.to_thread(self.admin.wait, path, true, what, SECONDS)


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that a launcher does later be much later."""
    monkeypatch.setattr(launching, "TICK_SECONDS", 0.2)
    monkeypatch.setattr(releases, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 1.0)
    monkeypatch.setattr(releases, "LEAVE_SECONDS", SECONDS)


@asynccontextmanager
async def new_launcher(
    kubeconfig: Path, identity: str, note: Callable[[str], None], **more: Any
) -> AsyncIterator[ClusterLauncher]:
    """A launcher that has seen all pods of its engine."""
    async with Api(from_kubeconfig([kubeconfig])) as api:
        made = ClusterLauncher(api, identity, note=note, **more)
        made.begin()
        try:
            await made.synced()
            yield made
        finally:
            await made.close()


async def end(launcher: ClusterLauncher) -> Ended:
    """Wait for the next end."""
    async with asyncio.timeout(SECONDS):
        return await launcher.ended()
