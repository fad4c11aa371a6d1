"""Spark settings of a run, and the memory of its pods. Pure.

Settings of users override the defaults of the framework. Settings that the framework requires can't be written by
users: model/resources/spark.py refuses them.
"""

from collections.abc import Callable
from fractions import Fraction

from opendataflow.model.resources.spark import Driver, Executor, SparkRuntime

OVERHEAD_FACTOR = 0.4
"""Memory outside the heap as a share of the heap. Spark uses the same factor for Python programs."""
LEAST_OVERHEAD = 384
"""The least memory outside the heap, in mebibytes, as in Spark."""
WORKER_OVERHEAD = 128
"""Mebibytes for the Python worker of each core of a driver without executors."""
EXECUTOR_CONTAINER = "main"

_API_MILLISECONDS = "60000"

_UNITS = {"k": Fraction(1, 1024), "m": Fraction(1), "g": Fraction(1024), "t": Fraction(1024**2)}


def mebibytes(memory: str) -> int:
    """Return a size like "512m" or "4g" in mebibytes, rounded up."""
    size = int(memory[:-1]) * _UNITS[memory[-1].lower()]
    return -(-size.numerator // size.denominator)


def overhead(size: Driver | Executor) -> int:
    """Return the memory outside the heap in mebibytes."""
    if size.memory_overhead is not None:
        return mebibytes(size.memory_overhead)
    return max(LEAST_OVERHEAD, int(mebibytes(size.memory) * OVERHEAD_FACTOR))


def driver_mebibytes(spark: SparkRuntime) -> int:
    """Return the memory of the driver's pod in mebibytes."""
    size = spark.driver_size
    workers = 0 if spark.has_executors or size.memory_overhead is not None else WORKER_OVERHEAD * size.cores
    return mebibytes(size.memory) + overhead(size) + workers


def dependency_settings(spark: SparkRuntime, locate: Callable[[str], str] = str) -> dict[str, str]:
    """Return the settings for files, jars and packages of a program. `locate`: returns the path of a written file."""
    files = {"spark.submit.pyFiles": spark.py_files, "spark.jars": spark.deps.jars, "spark.files": spark.deps.files}
    found = {name: ",".join(map(locate, written)) for name, written in files.items() if written}
    return found | ({"spark.jars.packages": ",".join(spark.deps.packages)} if spark.deps.packages else {})


def driver_settings(spark: SparkRuntime, name: str, title: str, namespace: str, image: str) -> dict[str, str]:
    """Return the settings of a driver in a pod, except those that are known only inside the pod.

    `name`: of the run and of its pod. `title`: the name of the application, for people. `image`: of the executors.
    """
    size = spark.driver_size
    found = {
        "spark.app.name": title,
        "spark.log.level": "WARN",  # with INFO, the last line of a failed run's log would be about Spark's shutdown
        "spark.jars.ivy": "/tmp/.ivy2",  # a writable volume of the pod
        **(_executor_defaults() if spark.has_executors else {}),
        **spark.settings,
        **dependency_settings(spark),
        "spark.submit.deployMode": "client",
        "spark.app.id": name,
        "spark.driver.memory": size.memory,
        "spark.driver.cores": str(size.cores),
    }
    if not spark.has_executors:
        return found | {"spark.master": f"local[{size.cores}]"}
    return found | _executor_settings(spark, name, namespace, image) | _executor_count(spark)


def _executor_defaults() -> dict[str, str]:
    """Return defaults for drivers with executors.

    Features that need more rights are off. Requests have a long timeout: with Spark's default of 10 s, a slow API
    server would lead to a second executor for one request.
    """
    return {
        "spark.kubernetes.driver.connectionTimeout": _API_MILLISECONDS,
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.requestTimeout": _API_MILLISECONDS,
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
    }


def _executor_settings(spark: SparkRuntime, name: str, namespace: str, image: str) -> dict[str, str]:
    size = spark.executor
    policy = {"spark.kubernetes.container.image.pullPolicy": spark.image_pull_policy}
    return {
        "spark.executor.cores": str(size.cores),
        "spark.executor.memory": size.memory,
        "spark.executor.memoryOverhead": f"{overhead(size)}m",
        "spark.kubernetes.container.image": image,
        **{key: value for key, value in policy.items() if value is not None},
        "spark.kubernetes.driver.pod.name": name,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.podNamePrefix": name,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.resource.type": "python",
    }


def _executor_count(spark: SparkRuntime) -> dict[str, str]:
    allocation = spark.allocation
    if allocation is None:
        return {"spark.executor.instances": str(spark.executor.instances)}
    initial = allocation.minimum if allocation.initial is None else allocation.initial
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",  # there is no external shuffle service
        "spark.dynamicAllocation.minExecutors": str(allocation.minimum),
        "spark.dynamicAllocation.maxExecutors": str(allocation.maximum),
        "spark.dynamicAllocation.initialExecutors": str(initial),
    }
