"""What is measured: a load, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Load:
    """So many pods, so many at a time, each of which runs so many seconds."""

    pods: int
    seconds: int
    parallelism: int

    @property
    def ideal(self) -> float:
        """Seconds that it would take if starting and ending took no time; 0 for pods of no length."""
        return -(-self.pods // self.parallelism) * self.seconds


@dataclass(frozen=True)
class Measured:
    """`makespan`: seconds. `cpu`: seconds by program meanwhile. `late`: seconds from each end to its commit."""

    load: Load
    makespan: float
    cpu: Mapping[str, float]
    late: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pods a minute."""
        return self.load.pods / self.makespan * 60

    def per_pod(self, name: str) -> float:
        """Milliseconds of CPU that a program has spent for each pod."""
        return self.cpu.get(name, 0) / self.load.pods * 1000


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
