"""What an engine remembers of a job: when it asks for tasks of it, and when it waits."""

from opendataflow.engine.view import JobView
from opendataflow.errors import NotCreatable
from opendataflow.model.records.claim import DeclaredJob


def declared(how: str) -> DeclaredJob:
    row = {"id": "j", "priority": 0, "parallelism": 2, "suspended": False, "deleted": False, "declared_as": how}
    return DeclaredJob(row | {"owner": "team/j"}, ())


def test_a_job_that_is_applied_anew_is_tried_at_once_whatever_was_wrong_with_it() -> None:
    view = JobView(declared("before"))
    view.start_failed(NotCreatable("too much memory"), 1000)
    view.declare(declared("before"))
    assert view.demand(0) is None
    view.declare(declared("fixed"))
    assert view.demand(0) is not None
