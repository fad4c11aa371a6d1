"""One cluster for several processes of tests: `python -m tests.e2e.cluster test` holds it for all of them.

The variable names a folder. The file `kubeconfig` in it has the path of the kubeconfig; its other files are locks, and
marks of what was done once for all processes.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster.provider import Provider

VARIABLE = "DATAFLOW_E2E_HELD"


@contextmanager
def hold(provider: Provider) -> Iterator[Mapping[str, str]]:
    """Use a cluster; give the variables by which other processes find it. Raises Unavailable."""
    with provider.use() as kubeconfig, tempfile.TemporaryDirectory(prefix="dataflow-held-") as folder:
        Path(folder, "kubeconfig").write_text(str(kubeconfig))
        yield {VARIABLE: folder}


def kubeconfig() -> Path | None:
    """The one of the cluster that another process holds for this one."""
    folder = _folder()
    return Path((folder / "kubeconfig").read_text()) if folder else None


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Keep what the processes of one cluster would do at once from being done at once."""
    folder = _folder()
    if folder is None:
        yield
        return
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def once(name: str) -> Iterator[bool]:
    """Whether this process is the first one to do something; others wait until it has been done."""
    folder = _folder()
    with one_at_a_time(name):
        done = folder / name if folder else None
        yield done is None or not done.exists()
        if done is not None:
            done.touch()


def _folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None
