"""The pods of Spark jobs: a job and its data sets in, the driver's pod and what it is to do out."""

from typing import Any

import pytest

from opendataflow import names
from opendataflow.core.kubernetes.pod_template import containers_of
from opendataflow.core.kubernetes.pods import PodConfig, check_config
from opendataflow.core.kubernetes.spark_pods import driver_container
from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.spark_settings import driver_mebibytes, mebibytes
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.spark import Spark
from tests import sparks


@pytest.mark.parametrize("name", sparks.cases())
def test_a_driver_is_made_as_it_is_written_down(name: str) -> None:
    assert sparks.made(sparks.case(name)) == sparks.expected(name)


def test_an_executor_is_no_run() -> None:
    _, order = sparks.made(sparks.case("executors"))
    metadata = order["executor"]["metadata"]
    assert metadata["labels"] == {"team": "blue", names.LABEL_EXECUTOR_OF: "load-r9-c0ffee"}
    assert "finalizers" not in metadata
    assert not {names.ANNOTATION_EXECUTORS, names.ANNOTATION_START_DEADLINE} & metadata["annotations"].keys()


def test_only_a_driver_with_executors_has_a_token() -> None:
    with_executors, order = sparks.made(sparks.case("executors"))
    alone, _ = sparks.made(sparks.case("alone"))
    assert with_executors["spec"]["automountServiceAccountToken"] is True
    assert order["executor"]["spec"]["automountServiceAccountToken"] is False
    assert alone["spec"]["automountServiceAccountToken"] is False


def test_only_the_container_that_fetches_has_the_token_and_executors_fetch_nothing() -> None:
    pod, order = sparks.made(sparks.case("pipeline-git"))
    having = [each["name"] for each in containers_of(pod["spec"]) if "'token'" in str(each.get("env"))]
    assert having == [names.FETCH_CONTAINER]
    assert names.PROJECT_VOLUME not in str(order)
    assert names.FETCH_CONTAINER not in str(order)


@pytest.mark.parametrize(
    ("memory", "size"), [("512m", 512), ("4g", 4096), ("1t", 1024**2), ("1024k", 1), ("1025K", 2), ("3G", 3072)]
)
def test_memory_is_in_mebibytes_rounded_up(memory: str, size: int) -> None:
    assert mebibytes(memory) == size


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ({"driver": {"memory": "512m"}, "executor": {"instances": 1}}, 512 + 384),
        ({"driver": {"memory": "4g"}, "executor": {"instances": 1}}, 4096 + 1638),
        ({"driver": {"memory": "4g", "memoryOverhead": "100m"}, "executor": {"instances": 1}}, 4196),
        ({"driver": {"memory": "512m", "cores": 4}}, 512 + 384 + 4 * 128),
        ({"driver": {"memory": "512m", "cores": 4, "memoryOverhead": "1g"}}, 512 + 1024),
        ({}, 1024 + 409 + 128),
    ],
)
def test_a_driver_has_room_for_python_beside_its_heap(written: dict[str, Any], size: int) -> None:
    assert driver_mebibytes(Spark.model_validate({"main": "x.py", **written})) == size


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("image", "x", "write runtime.spark.image"),
        ("imagePullPolicy", "Never", "write runtime.spark.imagePullPolicy"),
        ("args", [], "write runtime.spark.arguments"),
        ("command", ["x"], "the framework starts the driver"),
    ],
)
def test_what_a_template_may_not_say_names_the_field_of_this_runtime(field: str, value: Any, sentence: str) -> None:
    job = sparks.job_of(sparks.case("alone")["job"])
    assert job.spec.runtime.spark is not None
    config = PodConfig(
        driver_container(job.spec.runtime.spark, "x"),
        template={"spec": {"containers": [{"name": "main", field: value}]}},
    )
    with pytest.raises(InvalidInput) as refused:
        check_config(JobFacts.of(job), config)
    assert str(refused.value) == f"podTemplate.spec.containers[main].{field} can't be set: {sentence}"
