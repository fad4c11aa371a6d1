"""A run that is claimed starts only if its job may still run when its pod or process is created."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from opendataflow.engine import limits
from opendataflow.engine.ports import ClaimAuthority, Launcher, Observer, OrderMaker
from opendataflow.engine.starts import Starts
from opendataflow.engine.view import JobView
from opendataflow.errors import Backpressure
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.run import Ended, Host

JOB = {"id": "team/load", "suspended": False, "deleted": False, "parallelism": 1}
RUN = ClaimedRun(7, "team/load", "1", 1, 1, 0, 0, {}, "lease", Host("here", "boot"), "team", "nonce")


class Maker:
    """Makes an order out of nothing."""

    def preflight(self, _declared: DeclaredJob) -> None:
        return None

    def matches(self, _declared: DeclaredJob) -> bool:
        return True

    def __call__(self, run: ClaimedRun, _declared: DeclaredJob) -> str:
        return run.name


class FullCluster:
    """Has no room for a pod. `refused`: called after each refusal."""

    def __init__(self, refused: Callable[[], object]) -> None:
        self.tries = 0
        self._refused = refused

    async def start(self, _order: str) -> None:
        self.tries += 1
        self._refused()
        raise Backpressure("exceeded quota")

    async def wait_for_late_start(self, _run: ClaimedRun) -> bool:
        return False


class Quiet:
    """Has the lease, and observes nothing."""

    def holds(self) -> bool:
        return True

    def observe_duration(self, *_: object) -> None: ...

    def starts_blocked(self, *_: object) -> None: ...


async def test_a_run_that_waits_for_room_does_not_start_after_its_job_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE_SECONDS", 0.001)
    makers: dict[str, OrderMaker[str]] = {"team/load": cast("OrderMaker[str]", Maker())}
    cluster = FullCluster(lambda: makers.pop("team/load") if cluster.tries == 3 else None)
    ends: list[Ended] = []
    quiet = cast("Any", Quiet())
    starts = Starts(
        cast("Launcher[str]", cluster), makers, cast("ClaimAuthority", quiet), cast("Observer", quiet), ends.append
    )
    declared = DeclaredJob(JOB, ())
    await starts.start(RUN, declared, JobView(declared), adopting=False)
    assert cluster.tries == 3
    assert [end.lost for end in ends] == ["its job was deleted or stopped before it was started"]
