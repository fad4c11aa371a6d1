"""A cluster in a process of its own, shared by those who hold its folder, and gone when nobody does.

    FOLDER/
    ├── start.lock       flock, exclusive: held while somebody looks whether the cluster is there, or starts it
    ├── users.lock       flock, shared: held by every process that uses the cluster, for its life
    ├── supervisor.lock  flock, exclusive: held by the supervisor, for its life
    ├── ready            the path of the kubeconfig, while the cluster is up
    ├── pid, log         of the supervisor
    └── cluster/         the cluster's own

A flock ends with its process, however it ends. So a test run that is killed leaves no cluster behind, and the workers
of `pytest -n` share one. `keep` starts a cluster that nobody has to hold, until `end`.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from tests.kube.cluster.api import Api
from tests.kube.cluster.control_plane import PROGRAMS, ControlPlane
from tests.kube.cluster.nodes import add_nodes
from tests.waiting import wait_until

NODES = tuple(f"node-{number}" for number in range(10))
_LOOK_SECONDS = 0.5
_START_SECONDS = 600
_spawned: list[subprocess.Popen[bytes]] = []
"""Supervisors outlive those who start them on purpose; nobody waits for them."""


def fake_nodes_command(programs: Mapping[str, Path]) -> list[str]:
    """What supervises a cluster with fake nodes: the arguments of a Python that runs it."""
    return ["tests.kube.cluster", "supervise", *(f"{name}={path}" for name, path in programs.items())]


@contextmanager
def shared(folder: Path, command: Sequence[str]) -> Iterator[Path]:
    """Use the cluster of a folder; start it when nobody has. Gives the path of an administrator's kubeconfig.

    `command`: a module and its arguments, to which the folder and `held` or `kept` are added; it calls `supervise`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users.lock").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield _started(folder, command, "held")


def keep(folder: Path, command: Sequence[str]) -> Path:
    """Start the cluster of a folder, to stay until `end`; the one that runs there will do. Gives its kubeconfig."""
    folder.mkdir(parents=True, exist_ok=True)
    return _started(folder, command, "kept")


def end(folder: Path, seconds: float = 240) -> bool:
    """End a cluster that was started by `keep`; False: there is none."""
    if not folder.exists() or not runs(folder):
        return False
    os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
    wait_until(lambda: not runs(folder), "the supervisor has ended", seconds)
    return True


def _started(folder: Path, command: Sequence[str], how: str) -> Path:
    ready = folder / "ready"
    with (folder / "start.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() or not runs(folder):
            ready.unlink(missing_ok=True)
            with (folder / "log").open("ab") as log:
                process = _spawn([*command, str(folder), how], log)
                _spawned.append(process)

            def up() -> bool:
                if process.poll() is not None:
                    raise RuntimeError(f"the test cluster has not started:\n{(folder / 'log').read_text()[-4000:]}")
                return ready.exists()

            wait_until(up, f"the test cluster is up: see {folder}", _START_SECONDS)
    return Path(ready.read_text())


def _spawn(arguments: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def runs(folder: Path) -> bool:
    """Whether the cluster of a folder has a supervisor, be it about to start or to end."""
    with (folder / "supervisor.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def with_fake_nodes(folder: Path, programs: Mapping[str, Path]) -> Iterator[Path]:
    """A cluster with ten fake nodes; gives its kubeconfig."""
    with ControlPlane(folder / "cluster", {name: programs[name] for name in PROGRAMS}) as plane:
        with Api(programs["kubectl"], plane.kubeconfig) as api:
            add_nodes(api, NODES)
        yield plane.kubeconfig


def supervise(folder: Path, how: str, cluster: AbstractContextManager[Path]) -> None:
    """The supervisor's own process: start the cluster, stay until nobody holds it (how = held) or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ready = folder / "ready"
    # Taken at the end and kept until this process is gone: who comes then waits, and starts another cluster.
    with (folder / "supervisor.lock").open("a") as alive, (folder / "users.lock").open("a") as users:
        fcntl.flock(alive, fcntl.LOCK_EX)
        (folder / "pid").write_text(str(os.getpid()))
        try:
            with cluster as kubeconfig:
                fresh = folder / "ready.new"
                fresh.write_text(str(kubeconfig))
                fresh.rename(ready)
                while how == "kept" or not _taken(users):
                    time.sleep(_LOOK_SECONDS)
        finally:
            ready.unlink(missing_ok=True)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
