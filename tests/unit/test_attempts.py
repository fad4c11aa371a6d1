"""Which attempt may write a chunk."""

import pytest

from opendataflow.core.databases.attempts import Attempt, check_newest, check_owner, fence_of, make_owner
from opendataflow.errors import Refused


@pytest.mark.parametrize(("fence", "known"), [(3, None), (3, 3), (4, 3), (None, 9), (None, None)])
def test_the_newest_attempt_and_a_person_may_write(fence: int | None, known: int | None) -> None:
    check_newest(Attempt("out", "0-9", "abc", fence), known, "project.yml, line 3")


def test_an_older_attempt_is_refused() -> None:
    with pytest.raises(Refused, match=r"project.yml, line 3: out knows a newer attempt .* 0-9 \(fence 4\)"):
        check_newest(Attempt("out", "0-9", "abc", 3), 4, "project.yml, line 3")


def test_the_fence_of_a_run_is_for_its_own_chunk() -> None:
    environ = {"DATAFLOW_DATA_ID": "0-9", "DATAFLOW_FENCE": "7"}
    assert fence_of(environ, "0-9") == 7
    assert fence_of(environ, "10-19") is None
    assert fence_of({}, "0-9") is None


@pytest.mark.parametrize(
    ("known", "own"), [("a", "a"), ("a", "a/team"), ("a/team", "a"), ("a/team", "a/team"), (None, "a"), ("a", None)]
)
def test_a_chunk_may_be_written_by_its_owner_and_a_chunk_without_owner_by_all(
    known: str | None, own: str | None
) -> None:
    check_owner(Attempt("out", "0-9", "abc", 3, own), known, "project.yml, line 3", "do this")


@pytest.mark.parametrize(("known", "own"), [("a", "b"), ("a/team", "b/team"), ("a/team", "a/others"), ("a", "b/team")])
def test_a_chunk_of_another_owner_is_refused_with_the_remedy(known: str, own: str) -> None:
    with pytest.raises(Refused, match=rf"chunk 0-9 of out belongs .* \({known}; this run is of {own}\).*; do this$"):
        check_owner(Attempt("out", "0-9", "abc", 3, own), known, "project.yml, line 3", "do this")


def test_an_owner_has_the_namespace_of_a_job_on_a_cluster() -> None:
    assert make_owner("3f2a9c01d4e7") == "3f2a9c01d4e7"
    assert make_owner("3f2a9c01d4e7", "team") == "3f2a9c01d4e7/team"
