"""Clears away all that a node on this host has made: also after somebody has killed everything that could have done it.

It goes by names that only our node has (its folder, its bridge, its cgroup, its network's name), and touches nothing
else, but for kube-proxy's chains: `host` starts no node where another kubelet runs.
"""

import ctypes
import ctypes.util
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.e2e.cluster.commands import run
from tests.waiting import wait_until

BRIDGE = "odf-e2e0"
NETWORK = "opendataflow-e2e"
CGROUP = "opendataflow-e2e"
_OURS = {
    "containerd",
    "containerd-shim-runc-v2",
    "containerd-shim",
    "runc",
    "kubelet",
    "kube-proxy",
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
}
_MNT_DETACH = 2
_CNI = Path("/var/lib/cni")
_LINKS_TO_LOGS = Path("/var/log/containers")
_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_SHIMS = Path("/run/containerd/s")
_SYSCTLS = Path("/proc/sys")
_libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


def clear(folder: Path) -> None:
    """Leave nothing of the node and the control plane that live in the subfolders of `folder`."""
    _end_programs(folder)
    _end_containers()
    for socket in _sockets_of_shims(folder):
        socket.unlink(missing_ok=True)
    _forget_traces(folder)
    _unmount(folder)
    _forget_network()
    _forget_rules()
    _restore_sysctls(folder)
    for cgroup in cgroups():
        _remove_cgroup(cgroup)
    for part in ("node", "plane"):
        shutil.rmtree(folder / part, ignore_errors=True)


def mounted(below: Path) -> list[Path]:
    """What is mounted somewhere in a folder, the last mount first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    paths = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return [path for path in reversed(paths) if path.is_relative_to(below)]


def cgroups() -> list[Path]:
    """Where our cgroup is, or would be: in each hierarchy of version 1, or in the one of version 2."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        if kind.split()[0] in {"cgroup", "cgroup2"}:
            found.append(Path(place.split()[4]) / CGROUP)
    return found


def set_sysctls(folder: Path, wanted: dict[str, str]) -> None:
    """Set kernel settings by path; `clear` sets them as they were. What the kernel does not have is left out."""
    paths = {name: _SYSCTLS / name for name in wanted if (_SYSCTLS / name).exists()}
    (folder / "node" / "sysctls.json").write_text(json.dumps({name: path.read_text() for name, path in paths.items()}))
    for name, path in paths.items():
        path.write_text(wanted[name])


def _restore_sysctls(folder: Path) -> None:
    saved = folder / "node" / "sysctls.json"
    if saved.exists():
        for name, value in json.loads(saved.read_text()).items():
            (_SYSCTLS / name).write_text(value)


def programs_of(folder: Path) -> list[int]:
    """Ids of the processes that work in the subfolders of `folder`."""
    return [pid for pid, command in _processes() if Path(command[0]).name in _OURS and _names(command, folder)]


def _names(command: list[str], folder: Path) -> bool:
    return any(f"{folder}/{part}/" in word for word in command for part in ("node", "plane"))


def _processes() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text(errors="replace").split("\0")
        except OSError:  # it has ended meanwhile
            continue
        yield int(path.parent.name), command


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_programs(folder: Path) -> None:
    def gone() -> bool:
        left = programs_of(folder)
        _kill(left)
        return not left

    wait_until(gone, "the programs of the node have ended")


def _end_containers() -> None:
    def inside() -> list[int]:
        lists = [path for cgroup in cgroups() for path in cgroup.rglob("cgroup.procs")]
        return sorted({int(pid) for path in lists for pid in _read(path).split()})

    def gone() -> bool:
        left = inside()
        _kill(left)
        return not left

    wait_until(gone, "the containers of the node have ended")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _sockets_of_shims(folder: Path) -> list[Path]:
    """A shim that is killed leaves its socket outside of the folder."""
    addresses = folder.glob("node/containerd/state/io.containerd.runtime.v2.task/*/*/address")
    return [Path(_read(address).removeprefix("unix://")) for address in addresses if _read(address)]


def _unmount(folder: Path) -> None:
    for path in mounted(folder):
        _libc.umount2(str(path).encode(), _MNT_DETACH)
    left = mounted(folder)
    if left:  # to delete a folder then would delete what is mounted in it
        raise RuntimeError(f"could not be unmounted: {', '.join(map(str, left))}")


def _forget_network() -> None:
    if Path("/sys/class/net", BRIDGE).exists():
        run(["ip", "link", "delete", BRIDGE])


def _forget_traces(folder: Path) -> None:
    """Remove what is written outside of the folder, wherever the programs are configured to write."""
    for result in _CNI.glob(f"results/{NETWORK}-*-eth0"):
        pod = result.name.removeprefix(f"{NETWORK}-").removesuffix("-eth0")
        (_CNI / "results" / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
        result.unlink(missing_ok=True)
    for link in _LINKS_TO_LOGS.glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(folder):
            link.unlink()
    (_PLUGINS / "kubelet.sock").unlink(missing_ok=True)
    for shared in (_CNI / "results", _CNI, _LINKS_TO_LOGS, _PLUGINS, _PLUGINS.parent, _SHIMS, _SHIMS.parent):
        with suppress(OSError):  # not empty, or not there
            shared.rmdir()


def _forget_rules() -> None:
    """Drop the rules of our bridge and of kube-proxy; all others stay as they are."""
    for tool in ("iptables", "ip6tables"):
        if shutil.which(f"{tool}-save") is None:
            continue
        saved = run([f"{tool}-save"]).splitlines()
        kept = [line for line in saved if "KUBE-" not in line and BRIDGE not in line and NETWORK not in line]
        if kept != saved:
            subprocess.run([f"{tool}-restore"], input="\n".join(kept) + "\n", text=True, check=True)


def _remove_cgroup(cgroup: Path) -> None:
    def gone() -> bool:
        for path in sorted(cgroup.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
            _rmdir(path)
        _rmdir(cgroup)
        return not cgroup.exists()

    wait_until(gone, f"{cgroup} is gone")


def _rmdir(path: Path) -> None:
    """A cgroup is removed as an empty folder, once its last process is gone."""
    with suppress(OSError):  # not yet
        path.rmdir()
