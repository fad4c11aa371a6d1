"""What a run executes: the program, its variables and the files that it finds in its folder. Pure: the folder of the
run is not known yet and stands as `{run_folder}` in the two variables that name it."""

from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.environment import JobFacts
from opendataflow.core.surroundings import surroundings
from opendataflow.errors import InvalidInput
from opendataflow.model.claim import ClaimedRun
from opendataflow.model.dataset import DataSetFacts
from opendataflow.model.jobfile import absolute_path
from opendataflow.model.resources import DataFlowJob, Spark
from opendataflow.model.run import Command

SPARK_DEFAULTS = "spark-defaults.conf"

# What a run on one machine needs beside what its user wrote: no web page for each run.
_SPARK_LOCAL = {"spark.ui.enabled": "false"}


def command(
    job: DataFlowJob, run: ClaimedRun, datasets: Mapping[str, DataSetFacts], folder: Path, python: str
) -> Command:
    """Return the command of a run of `job`. `folder`: of the job's file, where relative paths begin and runs start.
    `python`: the interpreter for Spark programs."""
    env, files = surroundings(JobFacts.of(job), run, datasets)
    check_here(job)
    script, spark = job.spec.runtime.script, job.spec.runtime.spark
    if spark is not None:
        env |= {"SPARK_CONF_DIR": "{run_folder}", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        files[SPARK_DEFAULTS] = spark_defaults(spark)
        return Command((python, str(absolute_path(spark.main, folder)), *spark.args), env, folder, files)
    assert script is not None  # a runtime is exactly one of them
    return Command((*script.command, *script.args), env, absolute_path(script.working_directory, folder), files)


def check_here(job: DataFlowJob) -> None:
    """Raise InvalidInput where a job can't run on one machine."""
    if job.spec.runtime.spark_application is not None:
        raise InvalidInput(
            f"job {job.id}: runtime.sparkApplication needs a cluster with the Kubeflow Spark operator; on one machine, "
            "write runtime.spark with the same program"
        )


def spark_defaults(spark: Spark) -> str:
    """Return the text of Spark's properties file for a driver that is its own executor (`local[cores]`)."""
    conf = {
        "spark.master": f"local[{spark.cores}]",
        "spark.driver.memory": spark.memory,
        **_SPARK_LOCAL,
        **spark.conf,
    }
    return "".join(f"{_escaped(key)} {_escaped(value)}\n" for key, value in conf.items())


def _escaped(text: str) -> str:
    """Escape for java.util.Properties, which reads the file."""
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {letter: f"\\{letter}" for letter in "\\ =:#!"}
    return "".join(special.get(letter, letter) for letter in text)
