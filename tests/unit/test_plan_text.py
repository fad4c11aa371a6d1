"""The plan of an apply is short and says what it needs."""

from opendataflow.core.text.plan import (
    changes_more_than_it_adds,
    options_sentence,
    plan_lines,
    refused_sentence,
    resource_sentence,
)
from opendataflow.model.records.plan import DataSetChange, JobChange, Plan
from opendataflow.names import PlanNeed

RETIRE, OVERLAP, BACKFILL = PlanNeed.RETIRE, PlanNeed.OVERLAP, PlanNeed.BACKFILL


def plan(*needs: PlanNeed, datasets: tuple[DataSetChange, ...] = (), jobs: tuple[JobChange, ...] = ()) -> Plan:
    return Plan("1ff3e92f0644", needs, needs, datasets, jobs)


def test_a_line_has_as_many_examples_as_fit() -> None:
    ids = tuple(f"2013-01-0{i}" for i in range(1, 6))
    (_, _, line) = plan_lines(plan(datasets=(DataSetChange("a", added=90, examples={"added": ids}),)))
    assert line == "    + 90 chunks added: 2013-01-01, 2013-01-02, 2013-01-03, 2013-01-04, …"


def test_an_id_that_does_not_fit_is_left_out() -> None:
    (_, _, line) = plan_lines(plan(datasets=(DataSetChange("a", retired=1, examples={"retired": ("x" * 200,)}),)))
    assert line == "    - 1 chunk retired"


def test_an_output_that_is_made_no_more_is_shown() -> None:
    dropped = plan(jobs=(JobChange("j", removed_outputs=("old",)),))
    assert plan_lines(dropped)[1:] == ["  job j", "    - output old is made no more, and its chunks stay"]
    assert changes_more_than_it_adds(dropped)


def test_a_removed_task_may_have_finished_before_it_was_asked_for_again() -> None:
    (_, _, line) = plan_lines(plan(jobs=(JobChange("j", removed=1),)))
    assert line == "    - 1 task removed, still to do"


def test_a_single_finished_chunk_is_not_counted_twice() -> None:
    (_, _, line) = plan_lines(plan(datasets=(DataSetChange("a", retired=1, retired_finished=1),)))
    assert line == "    - 1 chunk retired, finished"


def test_a_plan_without_changes_says_so() -> None:
    assert plan_lines(plan()) == ["no changes of chunks or tasks"]


def test_a_refusal_names_at_most_three_consequences() -> None:
    jobs = tuple(JobChange(f"j{i}", retired=1, examples={"retired": ("1",)}) for i in range(5))
    sentence = refused_sentence(plan(RETIRE, jobs=jobs))
    assert sentence.count("would be retired") == 3
    assert sentence.endswith("; and 2 further changes")


def test_the_options_are_those_that_are_missing() -> None:
    assert options_sentence(plan(RETIRE), None).endswith("--allow 1ff3e92f0644 (this plan only) or --allow-retire")
    assert options_sentence(plan(BACKFILL), None).startswith("to apply it, add --backfill all")
    both = options_sentence(plan(OVERLAP, BACKFILL), None)
    assert ("--allow-overlap, and --backfill all" in both, "--allow-retire" in both) == (True, False)
    assert "plan 0000 is not this plan" in options_sentence(plan(RETIRE), "0000")


def test_the_sentence_for_a_resource_names_the_field_to_write() -> None:
    assert resource_sentence(plan(RETIRE), None) == "to apply it, write spec.allow: {change: 1ff3e92f0644}"
    assert resource_sentence(plan(BACKFILL), "0000") == (
        "spec.allow names another plan, 0000; "
        "to apply it, write spec.allow: {change: 1ff3e92f0644, backfill: all or none}"
    )
