"""Distribute free slots to jobs. Pure: it gets counts and returns orders to claim.

Only Postgres decides which tasks of a job are queued, and in which order they are claimed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(frozen=True)
class Demand:
    """A job that may have QUEUED tasks. `running`: its present runs; `parallelism`: its limit of runs.

    `namespace`: of its resource; empty on one machine.
    """

    job: str
    priority: int
    parallelism: int
    running: int
    namespace: str = ""


@dataclass(frozen=True)
class ClaimOrder:
    """Claim up to `limit` tasks of a job."""

    job: str
    limit: int


def plan(demands: Iterable[Demand], free: int, rooms: Mapping[str, int] | None = None) -> list[ClaimOrder]:
    """Distribute `free` slots and return one order for each job that gets any, by priority and name.

    Jobs of a higher priority get all slots they can use first. Jobs of the same priority get slots in turn, beginning
    with the job that has the fewest runs. No job exceeds its parallelism. `rooms`: how many more runs each namespace
    may have, before any priority counts; None for no limit.
    """
    ordered = sorted(demands, key=lambda d: (-d.priority, d.job))
    candidates = [(-d.priority, d.running, d.job, d) for d in ordered if d.running < d.parallelism]
    grants: dict[str, int] = {}
    left = None if rooms is None else dict(rooms)
    heapify(candidates)
    while free > 0 and candidates:
        priority, running, job, demand = heappop(candidates)
        if left is not None:
            if left[demand.namespace] <= 0:
                continue
            left[demand.namespace] -= 1
        free -= 1
        grants[job] = grants.get(job, 0) + 1
        if running + 1 < demand.parallelism:
            heappush(candidates, (priority, running + 1, job, demand))
    return [ClaimOrder(d.job, grants[d.job]) for d in ordered if d.job in grants]
