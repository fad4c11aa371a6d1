"""Decides which jobs get the free slots. Pure: it sees counts and returns what to claim.

Which task of a job comes first, and whether it is queued at all, is decided in Postgres only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True)
class Demand:
    """A job that may have QUEUED tasks. `running`: its runs now; `parallelism`: the most it may have."""

    job: str
    priority: int
    parallelism: int
    running: int


@dataclass(frozen=True)
class ClaimOrder:
    """Claim up to `limit` tasks of a job."""

    job: str
    limit: int


def plan(demands: Iterable[Demand], free: int) -> list[ClaimOrder]:
    """Share `free` slots among jobs: a higher priority is served first and fully; jobs of one priority get slots in
    turn, the one with the fewest runs first. No job gets more than its parallelism leaves. One order for each job
    that gets any, in the order of priority and name."""
    ordered = sorted(demands, key=lambda d: (-d.priority, d.job))
    hungry = [(-d.priority, d.running, d.job, d) for d in ordered if d.running < d.parallelism]
    grants: dict[str, int] = {}
    heapify(hungry)
    for _ in range(free):
        if not hungry:
            break
        priority, running, job, demand = heappop(hungry)
        grants[job] = grants.get(job, 0) + 1
        if running + 1 < demand.parallelism:
            heappush(hungry, (priority, running + 1, job, demand))
    return [ClaimOrder(d.job, grants[d.job]) for d in ordered if d.job in grants]
