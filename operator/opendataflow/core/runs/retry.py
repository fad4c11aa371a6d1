"""Decide whether a task is retried, and after which delay. Pure.

There are two budgets of retries. A program that fails, exceeds its deadline or runs out of memory consumes one of
`limit`. A lost process or node consumes one of `infrastructure_limit`. A run that did not start consumes none. A
cancelled run is never retried.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass

if TYPE_CHECKING:  # see core/runs/environment.py
    from opendataflow.model.resources.api import Retry

_LARGEST_EXPONENT = 2**53
"""A float represents every whole number up to this one exactly."""


@dataclass(frozen=True)
class RetryPolicy:
    """The number of retries after the first attempt, by budget, and the delays in seconds. `factor`: 1 or more."""

    limit: int = 2
    infrastructure_limit: int = 5
    initial: float = 10.0
    factor: float = 2.0
    maximum: float = 600.0

    @classmethod
    def of(cls, retry: "Retry") -> Self:
        """Return the policy of a job's `spec.retry`."""
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
        # Floats overflow. Integers would grow without limit, which takes time and memory.
        try:
            wait = self.initial * float(self.factor) ** min(failures - 1, _LARGEST_EXPONENT)
        except OverflowError:
            wait = self.maximum if self.initial else 0.0
        return min(wait, self.maximum)


class Decision(StrEnum):
    """The next state of a task after a run."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """The decision, and its reason for people. `delay`: seconds until the retry; None without a retry."""

    decision: Decision
    reason: str
    delay: float | None = None


def decide(outcome: Outcome, attempts: int, infrastructure_attempts: int, policy: RetryPolicy) -> Verdict:
    """Return the decision for a run that has ended.

    `attempts`: the number of failures of the program. `infrastructure_attempts`: the number of failures of the
    infrastructure. Both include this run.
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
