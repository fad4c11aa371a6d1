"""The command of a run on one machine: program, variables, and the files in its folder. Pure.

The folder of the run is not known yet. Variables that name it contain the placeholder `{run_folder}`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from opendataflow.core.pipelines.pipeline_order import HOLDER_MODULE, MODULE, LocalFacts, local_order
from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.run_files import environment_and_files
from opendataflow.core.runs.spark_settings import dependency_settings
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command, HolderOrder
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.model.resources.jobfile import absolute_path
from opendataflow.model.resources.spark import SparkRuntime
from opendataflow.names import PIPELINE_FILE
from opendataflow.spark.properties import properties_text

SPARK_DEFAULTS = "spark-defaults.conf"

PROGRAM_MODULE = "opendataflow.spark.shared.program"
"""Runs a Spark program in a JVM that runs share."""
PROGRAM_HOLDER_MODULE = "opendataflow.spark.shared.holder"
"""The program that starts a JVM for many runs of a Spark program."""

_SPARK_LOCAL = {"spark.ui.enabled": "false"}
_LOOPBACK = "127.0.0.1"
_ONE_MACHINE = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


def command(
    job: DataFlowJob,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    folder: Path,
    python: str,
    facts: LocalFacts,
) -> Command:
    """Return the command of a run of `job`.

    `folder`: of the job's file; relative paths begin there, and runs start there. `python`: the interpreter for Spark
    programs. `facts`: for pipelines.

    Raise InvalidInput if the job can't run on one machine.
    """
    env, files = environment_and_files(JobFacts.of(job), run, datasets)
    check_runs_locally(job)
    script, spark, pipeline = job.spec.runtime.script, job.spec.runtime.spark, job.spec.runtime.pipeline
    if on_spark := spark or pipeline:
        env = _with_spark(env, on_spark, folder, python)
        files[SPARK_DEFAULTS] = spark_defaults(on_spark, folder)
    if pipeline is not None:
        files[PIPELINE_FILE] = local_order(pipeline, folder, facts).to_json()
        for_jvm = {PIPELINE_FILE: local_order(pipeline, folder, replace(facts, tests=None)).to_json()}
        holder = _holder(job, pipeline, folder, (python, "-P", "-m", HOLDER_MODULE), for_jvm)
        return Command((python, "-P", "-m", MODULE), env, folder, files, holder)
    if spark is not None:
        program = (_local(spark.program, folder), *spark.program_arguments)
        holder = _holder(job, spark, folder, (python, "-P", "-m", PROGRAM_HOLDER_MODULE), {})
        run_shared = ("-P", "-m", PROGRAM_MODULE) if holder is not None else ()
        return Command((python, *run_shared, *program), env, folder, files, holder)
    assert script is not None  # a runtime has exactly one of the kinds
    return Command((*script.command, *script.args), env, absolute_path(script.working_directory, folder), files)


def _with_spark(env: Mapping[str, str], spark: SparkRuntime, folder: Path, python: str) -> dict[str, str]:
    """Return variables with those of Spark."""
    defaults = ({"SPARK_LOCAL_IP": _LOOPBACK} if _is_local(spark) else {}) | _python_path(spark, folder)
    return {
        **defaults,
        **env,
        "SPARK_CONF_DIR": "{run_folder}",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def _holder(
    job: DataFlowJob, spark: SparkRuntime, folder: Path, argv: tuple[str, ...], files: Mapping[str, str]
) -> HolderOrder | None:
    """Return the JVM that the runs of a job share, if the job wants one. `argv` starts it, and reads `files`.

    Nothing in it is about one chunk, and it gets no password. The output of a pipeline is that of its steps only.
    """
    limits = spark.holder
    if limits is None:
        return None
    env = _with_spark(job.spec.env, spark, folder, argv[0])
    command = Command(argv, env, folder, {SPARK_DEFAULTS: spark_defaults(spark, folder), **files})
    limit = (limits.max_chunks, limits.max_idle_seconds, limits.max_age_seconds)
    return HolderOrder(command, *limit, is_heard=not files)


def check_runs_locally(job: DataFlowJob) -> None:
    """Raise InvalidInput if a job can't run on one machine."""
    if job.spec.runtime.spark_application is not None:
        raise InvalidInput(
            f"job {job.id}: runtime.sparkApplication needs a cluster with the Kubeflow Spark operator; on one machine, "
            "write runtime.spark with the same program"
        )


def spark_defaults(spark: SparkRuntime, folder: Path) -> str:
    """Return the text of Spark's properties file for a driver without executors (`local[cores]`)."""
    size = spark.driver_size
    return properties_text(
        {
            "spark.master": f"local[{size.cores}]",
            "spark.driver.memory": size.memory,
            **_SPARK_LOCAL,
            **(_ONE_MACHINE if _is_local(spark) else {}),
            **dependency_settings(spark, lambda file: _local(file, folder)),
            **spark.settings,
        }
    )


def _is_local(spark: SparkRuntime) -> bool:
    """Return whether Spark uses no other machine, so that this machine's name need not be resolved."""
    return spark.settings.get("spark.master", "local").startswith("local")


def _python_path(spark: SparkRuntime, folder: Path) -> dict[str, str]:
    """Return PYTHONPATH with zips and the folders of other files, so that imports work before Spark starts.

    `spark-submit` does the same.
    """
    files = [Path(_local(file, folder)) for file in spark.py_files if not _is_remote(file)]
    places = [str(file if file.suffix in (".zip", ".egg") else file.parent) for file in files]
    return {"PYTHONPATH": ":".join(dict.fromkeys(places))} if places else {}


def _is_remote(file: str) -> bool:
    scheme, found, _ = file.partition("://")
    return bool(found) and scheme not in ("local", "file")


def _local(file: str, folder: Path) -> str:
    """Return the path of a file on this machine. The URL of a file that Spark fetches is unchanged."""
    if _is_remote(file):
        return file
    return str(absolute_path(file.removeprefix("local://").removeprefix("file://"), folder))
