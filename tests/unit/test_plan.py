"""Who gets the free slots: priority first, then in turn, and never more than a job may run."""

from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.runs.plan import ClaimOrder, Demand, plan


def demand(job: str, priority: int = 0, parallelism: int = 100, running: int = 0) -> Demand:
    return Demand(job, priority, parallelism, running)


def grants(demands: list[Demand], free: int) -> dict[str, int]:
    return {order.job: order.limit for order in plan(demands, free)}


def test_one_job_gets_all_free_slots() -> None:
    assert plan([demand("a")], 5) == [ClaimOrder("a", 5)]


def test_no_job_gets_more_than_its_parallelism_leaves() -> None:
    assert grants([demand("a", parallelism=4, running=1)], 10) == {"a": 3}


def test_a_job_at_its_parallelism_gets_no_order() -> None:
    assert plan([demand("a", parallelism=2, running=2), demand("b")], 1) == [ClaimOrder("b", 1)]


def test_a_job_above_a_lowered_parallelism_gets_no_order() -> None:
    assert plan([demand("a", parallelism=1, running=5)], 3) == []


def test_a_higher_priority_is_served_fully_before_a_lower_one() -> None:
    assert grants([demand("low", 0), demand("high", 7)], 3) == {"high": 3}


def test_a_lower_priority_gets_what_a_higher_one_can_not_use() -> None:
    assert grants([demand("low", 0), demand("high", 7, parallelism=1)], 3) == {"high": 1, "low": 2}


def test_a_negative_priority_comes_after_none() -> None:
    assert grants([demand("a", -1), demand("b", 0)], 1) == {"b": 1}


def of(namespace: str, job: str, priority: int = 0, running: int = 0) -> Demand:
    return Demand(job, priority, 100, running, namespace)


def limited(demands: list[Demand], free: int, **rooms: int) -> dict[str, int]:
    return {order.job: order.limit for order in plan(demands, free, rooms)}


def test_a_namespace_gets_no_more_than_its_room_whatever_its_priorities() -> None:
    demands = [of("greedy", "a", 1000), of("greedy", "b", 1000), of("other", "c", -1000)]
    assert limited(demands, 10, greedy=4, other=4) == {"a": 2, "b": 2, "c": 4}


def test_priorities_count_within_a_namespace() -> None:
    assert limited([of("team", "low", 0), of("team", "high", 1)], 10, team=3) == {"high": 3}


def test_a_namespace_with_more_runs_than_its_limit_gets_none() -> None:
    assert limited([of("team", "a", running=5)], 10, team=-1) == {}


def test_jobs_of_one_priority_get_slots_in_turn() -> None:
    assert grants([demand("a"), demand("b")], 4) == {"a": 2, "b": 2}


def test_an_odd_slot_goes_to_the_first_name() -> None:
    assert grants([demand("b"), demand("a")], 3) == {"a": 2, "b": 1}


def test_the_job_with_the_fewest_runs_catches_up_first() -> None:
    assert grants([demand("busy", running=3), demand("idle")], 3) == {"idle": 3}


def test_orders_come_by_priority_and_name() -> None:
    small = {"parallelism": 1}
    orders = plan([demand("c", **small), demand("b", **small), demand("a", -1), demand("d", 5, **small)], 100)
    assert [order.job for order in orders] == ["d", "b", "c", "a"]


def test_without_a_free_slot_nothing_is_claimed() -> None:
    assert plan([demand("a")], 0) == []


def test_more_runs_than_slots_claim_nothing() -> None:
    assert plan([demand("a")], -2) == []


def test_without_demand_nothing_is_claimed() -> None:
    assert plan([], 5) == []


counts = st.integers(0, 6)
demands_of_jobs = st.lists(
    st.builds(Demand, st.sampled_from("abcdef"), st.integers(-2, 2), counts, counts),
    unique_by=lambda demand: demand.job,
)


@given(demands_of_jobs, st.integers(-1, 30))
def test_slots_are_neither_wasted_nor_given_twice(demands: list[Demand], free: int) -> None:
    given_out = grants(demands, free)
    room = sum(max(d.parallelism - d.running, 0) for d in demands)
    assert sum(given_out.values()) == max(min(free, room), 0)
    for d in demands:
        assert d.running + given_out.get(d.job, 0) <= max(d.parallelism, d.running)


@given(demands_of_jobs, st.integers(0, 30))
def test_nobody_is_passed_by(demands: list[Demand], free: int) -> None:
    given_out = grants(demands, free)
    after = {d.job: d.running + given_out.get(d.job, 0) for d in demands}
    for left_out in demands:
        if after[left_out.job] >= left_out.parallelism:
            continue
        for served in demands:
            if served.job in given_out:
                assert served.priority >= left_out.priority
                assert served.priority > left_out.priority or after[served.job] <= after[left_out.job] + 1
