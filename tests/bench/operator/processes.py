"""What processes of this machine have cost so far: their time on the CPU and their memory, read from /proc."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_STATE, _PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 0, 1, 11, 12, 13, 14


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """User and system time of a process; with `children` also those of the ones that it has waited for."""
    fields = _fields(pid)
    places = [_USER, _SYSTEM, *([_CHILDREN_USER, _CHILDREN_SYSTEM] if children else [])]
    return sum(int(fields[place]) for place in places) / _TICK


def family_seconds(pid: int) -> float:
    """User and system time of a server and of the processes that it has started, like Postgres."""
    return cpu_seconds(pid, children=True) + sum(cpu_seconds(child) for child in _children(pid))


def _children(pid: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int(_fields(int(entry.name))[_PARENT])
            except OSError:
                continue
            if parent == pid:
                yield int(entry.name)


def parent_of(pid: int) -> int:
    """The process that has started this one."""
    return int(_fields(pid)[_PARENT])


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """A field of /proc/PID/status in MiB: VmRSS is what it holds now, VmHWM the most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{field}:"))
    return int(found.split()[1]) / 1024


@dataclass(frozen=True)
class Costs:
    """CPU seconds by name, at one moment. Those of two moments are subtracted."""

    seconds: Mapping[str, float]

    def since(self, before: "Costs") -> Mapping[str, float]:
        """What each has spent; a program that was started again meanwhile has spent what it has now."""
        return {
            name: now - was if (was := before.seconds.get(name, 0)) <= now else now
            for name, now in self.seconds.items()
        }


def costs(meters: Mapping[str, Callable[[], float]]) -> Costs:
    """Read all meters; one whose process is gone counts nothing."""
    read = {}
    for name, meter in meters.items():
        try:
            read[name] = meter()
        except OSError:
            continue
    return Costs(read)
