"""Whether a chunk is tried again, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.runs.retry import Decision, RetryPolicy, Verdict, decide
from opendataflow.model.records.run import Outcome
from opendataflow.model.resources.api import Retry
from opendataflow.names import OutcomeClass

POLICY = RetryPolicy(limit=2, infrastructure_limit=3, initial=10, factor=2, maximum=600)
PROGRAM = [OutcomeClass.APPLICATION, OutcomeClass.DEADLINE, OutcomeClass.OUT_OF_MEMORY]


def verdict(kind: OutcomeClass, attempts: int = 0, infrastructure: int = 0) -> Verdict:
    return decide(Outcome(kind, "boom"), attempts, infrastructure, POLICY)


def test_success_is_done_whatever_failed_before() -> None:
    assert verdict(OutcomeClass.SUCCESS, 9, 9) == Verdict(Decision.DONE, "boom")


def test_a_cancelled_run_is_never_tried_again() -> None:
    assert verdict(OutcomeClass.CANCELLED) == Verdict(Decision.FAILED, "not tried again: boom")


@pytest.mark.parametrize("kind", PROGRAM)
def test_a_failure_of_the_program_is_tried_again_up_to_the_limit(kind: OutcomeClass) -> None:
    assert verdict(kind, 1) == Verdict(Decision.RETRY, "retries: 1 of 2 in 10 s: boom", 10)
    assert verdict(kind, 2) == Verdict(Decision.RETRY, "retries: 2 of 2 in 20 s: boom", 20)
    assert verdict(kind, 3) == Verdict(Decision.FAILED, "no retries left (2 allowed): boom")


def test_a_failure_of_the_infrastructure_has_its_own_limit() -> None:
    kind = OutcomeClass.INFRASTRUCTURE
    assert verdict(kind, 0, 3) == Verdict(Decision.RETRY, "infrastructure retries: 3 of 3 in 40 s: boom", 40)
    assert verdict(kind, 0, 4) == Verdict(Decision.FAILED, "no infrastructure retries left (3 allowed): boom")


def test_neither_budget_consumes_the_other() -> None:
    assert verdict(OutcomeClass.INFRASTRUCTURE, attempts=99, infrastructure=1).delay == 10
    assert verdict(OutcomeClass.APPLICATION, attempts=1, infrastructure=99).delay == 10


def test_a_limit_of_zero_tries_once() -> None:
    verdict_of_first = decide(Outcome(OutcomeClass.APPLICATION, "boom"), 1, 0, RetryPolicy(limit=0))
    assert verdict_of_first.decision is Decision.FAILED


def test_the_wait_is_capped() -> None:
    assert POLICY.delay(7) == 600


@pytest.mark.parametrize(
    ("policy", "wait"),
    [
        (POLICY, 600),
        (RetryPolicy(initial=0), 0),
        (RetryPolicy(factor=1.0), 10),
        (RetryPolicy(factor=1e308), 600),
    ],
)
@pytest.mark.parametrize("failures", [1100, 10**400], ids=["1100", "10**400"])
def test_a_huge_number_of_failures_does_not_overflow(policy: RetryPolicy, failures: int, wait: float) -> None:
    assert policy.delay(failures) == wait


@given(
    policy=st.builds(
        RetryPolicy,
        initial=st.floats(0, 1e6),
        factor=st.floats(1, 1e6),
        maximum=st.floats(0, 1e9),
    ),
    failures=st.integers(1, 10**6),
)
def test_no_wait_is_shorter_than_the_one_before_or_longer_than_the_longest(policy: RetryPolicy, failures: int) -> None:
    assert 0 <= policy.delay(failures) <= policy.delay(failures + 1) <= policy.maximum


def test_the_policy_is_that_of_the_job() -> None:
    retry = Retry.model_validate(
        {"limit": 4, "infrastructureLimit": 6, "backoff": {"initial": "1s", "factor": 3, "max": "1m"}}
    )
    assert RetryPolicy.of(retry) == RetryPolicy(4, 6, 1, 3, 60)


def test_the_default_policy_is_that_of_a_job_that_says_nothing() -> None:
    assert RetryPolicy.of(Retry()) == RetryPolicy()
