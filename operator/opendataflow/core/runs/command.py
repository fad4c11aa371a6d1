"""What a run executes: the program, its variables and the files that it finds in its folder. Pure: the folder of the
run is not known yet and stands as `{run_folder}` in the two variables that name it."""

from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.pipelines.pipeline_order import MODULE, local_order
from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.run_files import surroundings
from opendataflow.core.runs.spark_settings import needed
from opendataflow.core.text.project_tests import Tests
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.model.resources.jobfile import absolute_path
from opendataflow.model.resources.spark import OnSpark
from opendataflow.names import PIPELINE_FILE
from opendataflow.spark.properties import properties_text

SPARK_DEFAULTS = "spark-defaults.conf"

# What a run on one machine needs beside what its user wrote: no web page for each run, and no other machine.
_SPARK_LOCAL = {"spark.ui.enabled": "false"}
_HERE = "127.0.0.1"
_ALONE = {"spark.driver.host": _HERE, "spark.driver.bindAddress": _HERE}


def command(
    job: DataFlowJob,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    folder: Path,
    python: str,
    clones: Path,
    tests: Tests = None,
) -> Command:
    """Return the command of a run of `job`. `folder`: of the job's file, where relative paths begin and runs start.
    `python`: the interpreter for Spark programs. `clones`: where projects that are fetched are kept. `tests`: what is
    known of a project's."""
    env, files = surroundings(JobFacts.of(job), run, datasets)
    check_here(job)
    script, spark, pipeline = job.spec.runtime.script, job.spec.runtime.spark, job.spec.runtime.pipeline
    if on_spark := spark or pipeline:
        env |= {"SPARK_CONF_DIR": "{run_folder}", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        env = ({"SPARK_LOCAL_IP": _HERE} if _is_alone(on_spark) else {}) | _python_path(on_spark, folder) | env
        files[SPARK_DEFAULTS] = spark_defaults(on_spark, folder)
    if pipeline is not None:
        files[PIPELINE_FILE] = local_order(pipeline, tests, folder, clones)
        return Command((python, "-P", "-m", MODULE), env, folder, files)
    if spark is not None:
        program = _local(spark.program, folder)
        return Command((python, program, *spark.program_arguments), env, folder, files)
    assert script is not None  # a runtime is exactly one of them
    return Command((*script.command, *script.args), env, absolute_path(script.working_directory, folder), files)


def check_here(job: DataFlowJob) -> None:
    """Raise InvalidInput where a job can't run on one machine."""
    if job.spec.runtime.spark_application is not None:
        raise InvalidInput(
            f"job {job.id}: runtime.sparkApplication needs a cluster with the Kubeflow Spark operator; on one machine, "
            "write runtime.spark with the same program"
        )


def spark_defaults(spark: OnSpark, folder: Path) -> str:
    """Return the text of Spark's properties file for a driver that is its own executor (`local[cores]`)."""
    size = spark.driver_size
    return properties_text(
        {
            "spark.master": f"local[{size.cores}]",
            "spark.driver.memory": size.memory,
            **_SPARK_LOCAL,
            **(_ALONE if _is_alone(spark) else {}),
            **needed(spark, lambda file: _local(file, folder)),
            **spark.settings,
        }
    )


def _is_alone(spark: OnSpark) -> bool:
    """Whether no other machine takes part: names of this one need not be looked up then."""
    return spark.settings.get("spark.master", "local").startswith("local")


def _python_path(spark: OnSpark, folder: Path) -> dict[str, str]:
    """Let a program import its files before it starts Spark, as `spark-submit` does: zips, and folders of others."""
    files = [Path(_local(file, folder)) for file in spark.py_files if not _is_remote(file)]
    places = [str(file if file.suffix in (".zip", ".egg") else file.parent) for file in files]
    return {"PYTHONPATH": ":".join(dict.fromkeys(places))} if places else {}


def _is_remote(file: str) -> bool:
    scheme, found, _ = file.partition("://")
    return bool(found) and scheme not in ("local", "file")


def _local(file: str, folder: Path) -> str:
    """Return the path of a file on this machine; what Spark fetches stays as it is."""
    if _is_remote(file):
        return file
    return str(absolute_path(file.removeprefix("local://").removeprefix("file://"), folder))
