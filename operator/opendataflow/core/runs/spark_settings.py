"""What Spark is told of a run, and how much memory its pods need. Pure.

A user's settings go over the framework's defaults; what the framework must have, nobody can have written
(model/resources/spark.py).
"""

from collections.abc import Callable
from fractions import Fraction

from opendataflow.model.resources.spark import Driver, Executor, OnSpark

OVERHEAD_FACTOR = 0.4
"""Of the heap, for what is beside it: what Spark itself takes for programs that are not only a JVM."""
LEAST_OVERHEAD = 384
"""Mebibytes; Spark's own."""
WORKER_OVERHEAD = 128
"""Mebibytes for each core of a driver that does the work itself: its Python workers."""
EXECUTOR_CONTAINER = "main"

_API_MILLISECONDS = "60000"

_UNITS = {"k": Fraction(1, 1024), "m": Fraction(1), "g": Fraction(1024), "t": Fraction(1024**2)}


def mebibytes(memory: str) -> int:
    """Return the size of "512m" or "4g" in mebibytes, rounded up."""
    size = int(memory[:-1]) * _UNITS[memory[-1].lower()]
    return -(-size.numerator // size.denominator)


def overhead(size: Driver | Executor) -> int:
    """Return the mebibytes beside the heap."""
    if size.memory_overhead is not None:
        return mebibytes(size.memory_overhead)
    return max(LEAST_OVERHEAD, int(mebibytes(size.memory) * OVERHEAD_FACTOR))


def driver_mebibytes(spark: OnSpark) -> int:
    """Return the memory of the driver's pod."""
    size = spark.driver_size
    workers = 0 if spark.has_executors or size.memory_overhead is not None else WORKER_OVERHEAD * size.cores
    return mebibytes(size.memory) + overhead(size) + workers


def needed(spark: OnSpark, place: Callable[[str], str] = str) -> dict[str, str]:
    """Return the settings that name what the program needs. `place`: where a file is."""
    files = {"spark.submit.pyFiles": spark.py_files, "spark.jars": spark.deps.jars, "spark.files": spark.deps.files}
    found = {name: ",".join(map(place, written)) for name, written in files.items() if written}
    return found | ({"spark.jars.packages": ",".join(spark.deps.packages)} if spark.deps.packages else {})


def driver_settings(spark: OnSpark, name: str, title: str, namespace: str, image: str) -> dict[str, str]:
    """Return the settings of a driver in a pod, aside from those that only the pod knows.

    `name`: of the run and so of its pod. `title`: for people. `image`: of the executors.
    """
    size = spark.driver_size
    found = {
        "spark.app.name": title,
        "spark.log.level": "WARN",  # or the last line of a log, which a failure shows, would be about Spark's own end
        "spark.jars.ivy": "/tmp/.ivy2",  # a volume of the pod's own
        **(_executor_defaults() if spark.has_executors else {}),
        **spark.settings,
        **needed(spark),
        "spark.submit.deployMode": "client",
        "spark.app.id": name,
        "spark.driver.memory": size.memory,
        "spark.driver.cores": str(size.cores),
    }
    if not spark.has_executors:
        return found | {"spark.master": f"local[{size.cores}]"}
    return found | _executor_settings(spark, name, namespace, image) | _number_of(spark)


def _executor_defaults() -> dict[str, str]:
    """What a driver would need more rights for is off. A slow API server is waited for: after 10 s Spark would start
    another executor beside the one that is on its way."""
    return {
        "spark.kubernetes.driver.connectionTimeout": _API_MILLISECONDS,
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.requestTimeout": _API_MILLISECONDS,
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
    }


def _executor_settings(spark: OnSpark, name: str, namespace: str, image: str) -> dict[str, str]:
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


def _number_of(spark: OnSpark) -> dict[str, str]:
    allocation = spark.allocation
    if allocation is None:
        return {"spark.executor.instances": str(spark.executor.instances)}
    initial = allocation.minimum if allocation.initial is None else allocation.initial
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",  # nobody else keeps shuffled data
        "spark.dynamicAllocation.minExecutors": str(allocation.minimum),
        "spark.dynamicAllocation.maxExecutors": str(allocation.maximum),
        "spark.dynamicAllocation.initialExecutors": str(initial),
    }
