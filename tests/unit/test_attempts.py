"""Which attempt may write a chunk."""

import pytest

from opendataflow.core.chunks.attempts import Attempt, check_newest, fence_of
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
