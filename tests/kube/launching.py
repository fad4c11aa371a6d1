"""What the tests of launchers share: short pauses, a launcher over a cluster, and how they wait for an end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from opendataflow.launch.cluster import launcher as launching
from opendataflow.launch.cluster import releases
from opendataflow.launch.cluster.access import from_kubeconfig
from opendataflow.launch.cluster.api import Api
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.run import Ended

SECONDS = 240


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
