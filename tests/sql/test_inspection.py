"""The five answers are about the version of a chunk that is there now, whoever has made it."""

import pytest

from opendataflow.core.status.inspection import InspectionAnswer, inspection_answers
from opendataflow.names import Answer
from tests.sql.conftest import Connection
from tests.sql.graph import apply, apply_allowing, ask, claim, dataset, end, job, value

CORRECT, VALIDATED = 1, 3


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


def run_job(db: Connection, lease: str, job_id: str) -> int:
    """Run the one task of a job to its end; return the run."""
    [run] = claim(db, lease, job_id)
    end(db, run, "DONE")
    return int(run["run"])


def made(db: Connection, lease: str) -> int:
    """Job old has made b from a."""
    apply(db, [dataset("a", "1"), dataset("b"), dataset("c")], [job("old", ["a"], ["b"])])
    return run_job(db, lease, "old")


def rename(db: Connection, old: str, new: str) -> None:
    """Job `new` makes b now; `old` makes c, and nothing of what it has finished is processed again."""
    apply_allowing(db, [], [job(old, ["a"], ["c"]), job(new, ["a"], ["b"])], backfill="none")


def answers(db: Connection, job_id: str) -> list[InspectionAnswer]:
    return inspection_answers(value(db, "SELECT opendataflow.inspection(%s, '1')", job_id))


def sentences(answer: InspectionAnswer) -> str:
    return "\n".join(one.sentence for one in answer.evidence)


def test_a_person_who_published_what_a_run_had_made_is_named(db: Connection, lease: str) -> None:
    made(db, lease)
    db.execute("SELECT opendataflow.publish('b', ARRAY['1'], 'ada', 'repaired')")
    found = answers(db, "old")
    assert [found[CORRECT].text, found[VALIDATED].text] == ["Yes: as ada says", "Yes: by a person"]
    assert "chunk 1 of b was published by ada" in sentences(found[VALIDATED])


def test_an_output_that_the_job_has_from_another_job_is_attributed_to_that_run(db: Connection, lease: str) -> None:
    run = made(db, lease)
    rename(db, "old", "new")
    found = answers(db, "new")
    assert found[CORRECT].text == f"Unknown: run {run} of job old has written it, and no run of this job"
    assert f"chunk 1 of b is READY because run {run} succeeded" in sentences(found[CORRECT])
    assert found[VALIDATED].answer is Answer.UNKNOWN


def test_a_version_that_another_job_has_written_since_is_not_that_of_the_last_run(db: Connection, lease: str) -> None:
    made(db, lease)
    rename(db, "old", "new")
    ask(db, "resubmit", "new", "1")
    run = run_job(db, lease, "new")
    apply_allowing(db, [], [job("new", ["a"], ["c"]), job("old", ["a"], ["b"])], backfill="none")
    assert answers(db, "old")[CORRECT].text == f"Unknown: run {run} of job new has written it, and no run of this job"


def test_a_forced_run_of_another_job_is_marked(db: Connection, lease: str) -> None:
    made(db, lease)
    ask(db, "hold_chunks", "a", "1")
    ask(db, "force", "old", "1")
    run = run_job(db, lease, "old")
    rename(db, "old", "new")
    found = answers(db, "new")
    assert found[0].text == "Yes: a forced run is behind it"
    assert f"run {run} was forced, without its input a" in sentences(found[CORRECT])
