"""Decides whether a chunk is tried again, and after how long. Pure: time passes elsewhere.

There are two budgets. A program that fails, takes too long or needs too much memory burns the retries of
`limit`; a lost process or node burns those of `infrastructure_limit`; what was never started burns none. A
cancelled run is never tried again.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass

if TYPE_CHECKING:  # see core/runs/environment.py
    from opendataflow.model.resources.api import Retry

_LARGEST_EXPONENT = 2**53  # every whole number up to here is exactly a float


@dataclass(frozen=True)
class RetryPolicy:
    """Retries after the first attempt, by budget, and the waits before them in seconds; `factor` >= 1."""

    limit: int = 2
    infrastructure_limit: int = 5
    initial: float = 10.0
    factor: float = 2.0
    maximum: float = 600.0

    @classmethod
    def of(cls, retry: "Retry") -> Self:
        """Return the policy as a job's `spec.retry` says it."""
        backoff = retry.backoff
        return cls(
            limit=retry.limit,
            infrastructure_limit=retry.infrastructure_limit,
            initial=backoff.initial_seconds,
            factor=backoff.factor,
            maximum=backoff.maximum_seconds,
        )

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after the `failures`th failure (1 or more) of a class."""
        # Floats: with integers Python would work out a power of any length instead of overflowing.
        try:
            wait = self.initial * float(self.factor) ** min(failures - 1, _LARGEST_EXPONENT)
        except OverflowError:
            wait = self.maximum if self.initial else 0.0
        return min(wait, self.maximum)


class Decision(StrEnum):
    """What becomes of the task after a run."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """The decision, and a sentence for people. `delay`: seconds to wait, only for a retry."""

    decision: Decision
    reason: str
    delay: float | None = None


def decide(outcome: Outcome, attempts: int, infrastructure_attempts: int, policy: RetryPolicy) -> Verdict:
    """Decide what follows a run.

    `attempts` counts the failures of the program, `infrastructure_attempts` those of the infrastructure, both
    with this run.
    """
    if outcome.succeeded:
        return Verdict(Decision.DONE, outcome.message)
    if outcome.kind is OutcomeClass.CANCELLED:
        return Verdict(Decision.FAILED, f"not tried again: {outcome.message}")
    if outcome.kind is OutcomeClass.NOT_STARTED:
        return Verdict(Decision.RETRY, f"not started: {outcome.message}", 0.0)
    if outcome.kind is OutcomeClass.INFRASTRUCTURE:
        failures, limit, budget = (
            infrastructure_attempts,
            policy.infrastructure_limit,
            "infrastructure retries",
        )
    else:
        failures, limit, budget = attempts, policy.limit, "retries"
    if failures > limit:
        return Verdict(Decision.FAILED, f"no {budget} left ({limit} allowed): {outcome.message}")
    delay = policy.delay(failures)
    return Verdict(Decision.RETRY, f"{budget}: {failures} of {limit} in {delay:g} s: {outcome.message}", delay)
