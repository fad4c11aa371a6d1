"""What is refused of a Spark program before a pod starts: one sentence that names the field."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pydantic import ValidationError

from opendataflow.core.runs.spark_settings import driver_settings
from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.model.resources.spark import _READ_BY_DRIVERS
from opendataflow.names import API_VERSION

PLACE = "spec.runtime.spark"


def body(spark: dict[str, Any]) -> dict[str, Any]:
    spec = {"inputs": ["a"], "runtime": {"spark": spark}}
    return {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "x"}, "spec": spec}


def faults(spark: dict[str, Any], context: dict[str, Any] | None) -> list[str]:
    try:
        DataFlowJob.model_validate(body(spark), context=context)
    except ValidationError as error:
        return sentences(DataFlowJob, error)
    return []


NO_SECRET = (
    "a password is never written in plain text; give it to the run as a variable from a Secret (podTemplate), or with "
    "the credentials of a data set"
)

ENV = "write the job's env, or podTemplate; executors have the same variables as the driver"

EVERYWHERE: list[tuple[dict[str, Any], str]] = [
    ({}, ": exactly one of main, mainApplicationFile is wanted, found none"),
    (
        {"main": "a.py", "mainApplicationFile": "a.py"},
        ": exactly one of main, mainApplicationFile is wanted, found main and mainApplicationFile",
    ),
    ({"main": "a.py", "args": ["1"], "arguments": ["1"]}, ".args: args is short for arguments; write one of them"),
    (
        {"main": "a.py", "conf": {"spark.a": "1"}, "sparkConf": {"spark.b": "1"}},
        ".conf: conf is short for sparkConf; write one of them",
    ),
    (
        {"main": "a.py", "cores": 2, "driver": {}},
        ".driver: cores and memory are short for driver.cores and driver.memory; write them there",
    ),
    (
        {"main": "a.py", "driver": {"memory": "470m"}},
        '.driver.memory: Spark needs at least 471m of memory, found "470m"',
    ),
    ({"main": "a.py", "memory": "400m"}, '.memory: Spark needs at least 471m of memory, found "400m"'),
    (
        {"main": "a.py", "executor": {"memory": "482303k"}},
        '.executor.memory: Spark needs at least 471m of memory, found "482303k"',
    ),
    (
        {"main": "a.py", "driver": {"memory": "4 GB"}},
        '.driver.memory: memory is a whole number with k, m, g or t like "512m" or "4g", found "4 GB"',
    ),
    (
        {"main": "a.py", "executor": {"memoryOverhead": "0.5g"}},
        '.executor.memoryOverhead: memory is a whole number with k, m, g or t like "512m" or "4g", found "0.5g"',
    ),
    ({"main": "a.py", "executor": {"cores": 0, "instances": 2}}, ".executor.cores: 1 or more is wanted, found 0"),
    ({"main": "a.py", "driver": {"cores": 1.5}}, ".driver.cores: a whole number is wanted, found 1.5"),
    (
        {"main": "a.py", "executor": {"instances": 2}, "dynamicAllocation": {"max": 3}},
        ".executor: executor.instances and dynamicAllocation contradict each other; write one of them",
    ),
    ({"main": "a.py", "dynamicAllocation": {"min": 4, "max": 3}}, ".dynamicAllocation.min: min is more than max"),
    (
        {"main": "a.py", "dynamicAllocation": {"min": 2, "initial": 1, "max": 3}},
        ".dynamicAllocation.initial: initial is not between min and max",
    ),
    ({"main": "a.py", "dynamicAllocation": {}}, ".dynamicAllocation.max: this field is needed"),
    (
        {"main": "a.py", "pyFiles": ["a.py,b.py"]},
        '.pyFiles[0]: Spark reads commas as the ends of files; write one file an item, found "a.py,b.py"',
    ),
    (
        {"main": "a.py", "deps": {"packages": ["postgresql"]}},
        (
            ".deps.packages[0]: a package is group, artifact and version like "
            '"org.postgresql:postgresql:42.7.7", found "postgresql"'
        ),
    ),
    (
        {"main": "a.py", "sparkConf": {"spark.hadoop.fs.s3a.secret.key": "hunter2"}},
        f".sparkConf.spark.hadoop.fs.s3a.secret.key: {NO_SECRET}",
    ),
    ({"main": "a.py", "conf": {"spark.ssl.keyPassword": "hunter2"}}, f".conf.spark.ssl.keyPassword: {NO_SECRET}"),
    (
        {"main": "a.py", "sparkConf": {"spark.my.url": "jdbc:postgresql://h/d?password=hunter2"}},
        (
            ".sparkConf.spark.my.url: a password in a URL would be stored in plain text; take it out and write "
            "spec.credentials.encryptedPassword (made by `dataflow crypt new`)"
        ),
    ),
]
"""What is wrong wherever it runs."""

ON_CLUSTERS: list[tuple[dict[str, Any], str]] = [
    *(
        (
            {"main": "a.py", "sparkConf": {key: "x"}},
            f".sparkConf.{key}: the framework sets {key} itself: {instead}",
        )
        for key, instead in [
            ("spark.master", "write executor.instances"),
            ("spark.submit.deployMode", "the run's pod is the driver"),
            ("spark.driver.host", "it is the address of the pod"),
            ("spark.driver.bindAddress", "it is the address of the pod"),
            ("spark.driver.memory", "write driver.memory"),
            ("spark.app.id", "it is the name of the run"),
            ("spark.executor.instances", "write executor.instances"),
            ("spark.jars.packages", "write deps.packages"),
            ("spark.kubernetes.namespace", "it is the namespace of the job"),
            ("spark.kubernetes.driver.pod.name", "it is the name of the run"),
            ("spark.kubernetes.executor.podTemplateFile", "write podTemplate"),
            ("spark.kubernetes.container.image", "write image"),
            ("spark.kubernetes.executor.label.team", "write podTemplate.metadata.labels"),
            ("spark.kubernetes.authenticate.driver.serviceAccountName", "write serviceAccount"),
            ("spark.executorEnv.dataid", ENV),
            ("spark.kubernetes.driverEnv.dataid", ENV),
            ("spark.kubernetes.executor.secretKeyRef.in_password", ENV),
            (
                "spark.kubernetes.driver.node.selector.disk",
                "the run's pod is the driver; write podTemplate and the fields of driver",
            ),
        ]
    ),
    (
        {"main": "a.py", "sparkConf": {"hadoop.x": "1"}},
        ".sparkConf.hadoop.x: Spark ignores settings that do not begin with spark.",
    ),
    ({"main": "etl.jar"}, ": the program is a Python file, whose name ends with .py"),
]


@pytest.mark.parametrize("context", [None, CLUSTER_CONTEXT], ids=["machine", "cluster"])
@pytest.mark.parametrize(("spark", "sentence"), EVERYWHERE)
def test_what_spark_would_refuse_is_refused_before(
    spark: dict[str, Any], sentence: str, context: dict[str, Any] | None
) -> None:
    (found,) = faults(spark, context)
    assert found == PLACE + sentence
    assert "hunter2" not in found


@pytest.mark.parametrize(("spark", "sentence"), ON_CLUSTERS)
def test_what_the_framework_sets_on_a_cluster_is_refused_there_only(spark: dict[str, Any], sentence: str) -> None:
    assert faults(spark, CLUSTER_CONTEXT) == [PLACE + sentence]
    assert faults(spark, None) == []


def test_what_spark_would_fetch_is_no_program_on_one_machine() -> None:
    spark = {"mainApplicationFile": "s3a://bucket/etl.py"}
    assert faults(spark, None) == [f"{PLACE}: on one machine the program is a file there; write its path"]
    assert faults(spark, CLUSTER_CONTEXT) == []


def test_a_reference_to_a_secret_is_no_secret() -> None:
    conf = {"spark.kubernetes.executor.secrets.my-token": "/etc/token"}
    assert faults({"main": "a.py", "sparkConf": conf}, CLUSTER_CONTEXT) == []


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"executor": {"instances": 2}, "imagePullPolicy": "Always"},
        {"dynamicAllocation": {"max": 2}},
        {"pyFiles": ["a.zip"], "deps": {"jars": ["a.jar"], "files": ["a.csv"], "packages": ["a:b:1"]}},
    ],
    ids=["alone", "executors", "allocation", "needs"],
)
def test_whatever_is_written_as_a_setting_is_refused_or_counts(more: dict[str, Any]) -> None:
    for key in settings({"main": "a.py", **more}):
        written = {"main": "a.py", **more, "sparkConf": {key: "mine"}}
        assert faults(written, CLUSTER_CONTEXT) or settings(written)[key] == "mine", key


def settings(spark: dict[str, Any]) -> dict[str, str]:
    """Spark's settings in the driver's pod, without those that only the pod knows."""
    read = DataFlowJob.model_validate(body(spark)).spec.runtime.spark
    assert read is not None
    return driver_settings(read, "load-r1", "load", "flow", "image")


def test_every_setting_of_spark_about_the_pod_of_a_driver_is_refused_as_that_is_ours() -> None:
    """As the installed Spark has them: a driver reads what is left in its own pod."""
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    known: set[str] = set()
    with zipfile.ZipFile(jar) as classes:
        for name in classes.namelist():
            if "/k8s/Config" in name:
                found = re.findall(rb"spark\.kubernetes\.driver[.A-Z][A-Za-z.]+", classes.read(name))
                known |= {key.decode() for key in found}
    assert len(known) > 20
    allowed = {key for key in known if not faults({"main": "a.py", "sparkConf": {key: "x"}}, CLUSTER_CONTEXT)}
    assert allowed == set(_READ_BY_DRIVERS)


@pytest.mark.parametrize("context", [None, CLUSTER_CONTEXT], ids=["machine", "cluster"])
def test_short_and_long_names_mean_the_same(context: dict[str, Any] | None) -> None:
    short = {"main": "a.py", "args": ["1"], "conf": {"spark.a": "b"}, "cores": 2, "memory": "2g"}
    long = {
        "mainApplicationFile": "a.py",
        "arguments": ["1"],
        "sparkConf": {"spark.a": "b"},
        "driver": {"cores": 2, "memory": "2g"},
    }
    one, other = (
        DataFlowJob.model_validate(body(spark), context=context).spec.runtime.spark for spark in (short, long)
    )
    assert one is not None
    assert other is not None
    assert (one.program, one.program_arguments, one.settings, one.driver_size) == (
        other.program,
        other.program_arguments,
        other.settings,
        other.driver_size,
    )


def test_dynamic_allocation_that_is_turned_off_counts_as_not_written() -> None:
    spark = {"main": "a.py", "executor": {"instances": 2}, "dynamicAllocation": {"enabled": False, "max": 3}}
    read = DataFlowJob.model_validate(body(spark)).spec.runtime.spark
    assert read is not None
    assert read.allocation is None
    assert read.has_executors
