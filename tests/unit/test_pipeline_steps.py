"""The steps of a pipeline, and the frames of a transformation."""

import pytest

from opendataflow.core.pipelines.pipeline_steps import Signature, count_frames, list_steps
from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import Pipeline
from opendataflow.names import StepStatus


def test_steps_are_in_the_order_written_with_reads_before_and_the_write_behind() -> None:
    written = {"slug": "p", "sources": ["b", "a"], "transformations": ["z", "y"], "destination": "out"}
    steps = list_steps(Pipeline.model_validate(written))
    assert [step.name for step in steps] == ["read b", "read a", "z", "y", "write out"]
    assert {step.status for step in steps} == {StepStatus.WAITING}


@pytest.mark.parametrize(
    ("signature", "sources", "given"),
    [
        (Signature(1, 1), ["a", "b"], 1),
        (Signature(2, 2), ["a", "b"], 2),
        (Signature(1, 2), ["a"], 1),
        (Signature(1, 2), ["a", "b", "c"], 2),
        (Signature(0, None), ["a", "b", "c"], 3),
    ],
)
def test_a_transformation_is_given_as_many_frames_as_it_declares(
    signature: Signature, sources: list[str], given: int
) -> None:
    assert count_frames(signature, sources) == given


@pytest.mark.parametrize(
    ("signature", "sentence"),
    [
        (Signature(3, 3), r"run\(\) takes 3 frames and the pipeline has 2 sources \(a, b\)"),
        (Signature(3, None), r"run\(\) takes 3 frames and the pipeline has 2 sources \(a, b\)"),
        (Signature(0, 0), r"run\(\) takes no frame; its first parameter is the frame that it changes"),
    ],
)
def test_an_impossible_number_of_frames_is_reported(signature: Signature, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        count_frames(signature, ["a", "b"])
