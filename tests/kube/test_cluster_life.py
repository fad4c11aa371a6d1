"""How long a cluster lives: as long as somebody uses it, however they end."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kube.cluster.supervisor import runs
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
USER = """
import sys, time
from pathlib import Path
from tests.kube.cluster.supervisor import fake_nodes_command, shared
programs = dict(word.split("=") for word in sys.argv[2:])
with shared(Path(sys.argv[1]), fake_nodes_command(programs)) as kubeconfig:
    print(kubeconfig, flush=True)
    time.sleep(600)
"""


def _use(folder: Path, programs: Mapping[str, Path]) -> subprocess.Popen[str]:
    words = [f"{name}={path}" for name, path in programs.items()]
    return subprocess.Popen(
        [sys.executable, "-c", USER, str(folder), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def _kubeconfig(user: subprocess.Popen[str]) -> Path:
    assert user.stdout is not None
    return Path(user.stdout.readline().strip())


def _kill(user: subprocess.Popen[str]) -> None:
    with user:
        user.kill()


def _processes_of(folder: Path) -> list[str]:
    """Command lines that name a folder: all programs of its cluster do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{folder}/cluster" in line:
            found.append(line)
    return found


def test_users_share_a_cluster_and_nothing_is_left_of_it_when_the_last_one_was_killed(
    tmp_path: Path, cluster_programs: Mapping[str, Path]
) -> None:
    first, second = _use(tmp_path, cluster_programs), _use(tmp_path, cluster_programs)
    assert _kubeconfig(first) == _kubeconfig(second) == tmp_path / "cluster" / "kubeconfig"
    assert len(_processes_of(tmp_path)) == 5
    _kill(first)
    assert runs(tmp_path)
    _kill(second)
    wait_until(lambda: not runs(tmp_path), "the cluster has ended")
    assert _processes_of(tmp_path) == []
    assert not (tmp_path / "cluster").exists()


def test_nothing_is_left_when_the_supervisor_was_killed_and_the_next_user_gets_another_cluster(
    tmp_path: Path, cluster_programs: Mapping[str, Path]
) -> None:
    first = _use(tmp_path, cluster_programs)
    _kubeconfig(first)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    wait_until(lambda: not _processes_of(tmp_path), "its programs have ended")
    second = _use(tmp_path, cluster_programs)
    _kubeconfig(second)
    assert len(_processes_of(tmp_path)) == 5
    _kill(first)
    _kill(second)
    wait_until(lambda: not runs(tmp_path), "the cluster has ended")
