"""The model of a PySpark program (`runtime.spark`), in one format for one machine and for clusters.

On one machine, driver and executors are one process. On a cluster, the driver is the run's pod, and starts its
executors. Values that Spark would refuse minutes later are refused here. Settings that the framework writes are
refused, too.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict, StringConstraints

from opendataflow.model.fields.field_types import (
    LARGEST_INTEGER,
    NEVER_NULL,
    Arguments,
    Count,
    Duration,
    Flag,
    InputModel,
    Key,
    Memory,
    NonEmpty,
    Url,
    duration_seconds,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, matching, without

_NOT_LOCAL = "Not used on one machine."
_MOST_EXECUTORS = 10000

LEAST_MEBIBYTES = 471
"""The least heap. Spark requires 450 MiB of usable memory, and the JVM itself needs the rest."""

# 471 MiB in each unit smaller than a gibibyte, as a pattern: CEL can't convert the units.
_LEAST_MEMORY = (
    "[1-9][0-9]*[gtGT]|(?:47[1-9]|4[89][0-9]|[5-9][0-9]{2}|[1-9][0-9]{3,})[mM]"
    "|(?:48230[4-9]|4823[1-9][0-9]|482[4-9][0-9]{2}|48[3-9][0-9]{3}|49[0-9]{4}|[5-9][0-9]{5}|[1-9][0-9]{6,})[kK]"
)
SparkMemory = Annotated[
    Memory,
    Rule(
        f"Spark needs at least {LEAST_MEBIBYTES}m of memory",
        lambda text: re.fullmatch(_LEAST_MEMORY, text) is not None,
        f"self.matches(r'^(?:{_LEAST_MEMORY})$')",
    ),
]
Cores = Annotated[int, Strict(), Field(ge=1, le=LARGEST_INTEGER)]

_INSTEAD: Mapping[str, str] = {
    "spark.app.id": "it is the name of the run",
    "spark.driver.bindAddress": "it is the address of the pod",
    "spark.driver.cores": "write driver.cores",
    "spark.driver.host": "it is the address of the pod",
    "spark.driver.memory": "write driver.memory",
    "spark.driver.memoryOverhead": "write driver.memoryOverhead",
    "spark.driver.memoryOverheadFactor": "write driver.memoryOverhead",
    "spark.driver.minMemoryOverhead": "write driver.memoryOverhead",
    "spark.dynamicAllocation.enabled": "write dynamicAllocation",
    "spark.dynamicAllocation.initialExecutors": "write dynamicAllocation.initial",
    "spark.dynamicAllocation.maxExecutors": "write dynamicAllocation.max",
    "spark.dynamicAllocation.minExecutors": "write dynamicAllocation.min",
    "spark.dynamicAllocation.shuffleTracking.enabled": "nobody else keeps shuffled data",
    "spark.executor.cores": "write executor.cores",
    "spark.executor.instances": "write executor.instances",
    "spark.executor.memory": "write executor.memory",
    "spark.executor.memoryOverhead": "write executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor": "write executor.memoryOverhead",
    "spark.executor.minMemoryOverhead": "write executor.memoryOverhead",
    "spark.files": "write deps.files",
    "spark.jars": "write deps.jars",
    "spark.jars.packages": "write deps.packages",
    "spark.kubernetes.allocation.pods.allocator": "executors are pods of the driver",
    "spark.kubernetes.container.image": "write image",
    "spark.kubernetes.container.image.pullPolicy": "write imagePullPolicy",
    "spark.kubernetes.container.image.pullSecrets": "write podTemplate.spec.imagePullSecrets",
    "spark.kubernetes.context": "executors are pods of the driver",
    "spark.kubernetes.driver.pod.name": "it is the name of the run",
    "spark.kubernetes.executor.container.image": "write image",
    "spark.kubernetes.executor.disableConfigMap": "drivers may not write ConfigMaps",
    "spark.kubernetes.executor.podNamePrefix": "it is the name of the run",
    "spark.kubernetes.executor.podTemplateContainerName": "write podTemplate",
    "spark.kubernetes.executor.podTemplateFile": "write podTemplate",
    "spark.kubernetes.memoryOverheadFactor": "write driver.memoryOverhead and executor.memoryOverhead",
    "spark.kubernetes.namespace": "it is the namespace of the job",
    "spark.kubernetes.resource.type": "it is a PySpark program",
    "spark.kubernetes.submitInDriver": "the run's pod is the driver",
    "spark.master": "write executor.instances",
    "spark.submit.deployMode": "the run's pod is the driver",
    "spark.submit.pyFiles": "write pyFiles",
}
"""Settings that the framework writes on a cluster -> what a user can write instead."""

_ENV = "write the job's env, or podTemplate; executors have the same variables as the driver"
_INSTEAD_BY_PREFIX = {
    "spark.executorEnv.": _ENV,
    "spark.kubernetes.authenticate.": "write serviceAccount",
    "spark.kubernetes.driver.": "the run's pod is the driver; write podTemplate and the fields of driver",
    "spark.kubernetes.driverEnv.": _ENV,
    "spark.kubernetes.executor.annotation.": "write podTemplate.metadata.annotations",
    "spark.kubernetes.executor.label.": "write podTemplate.metadata.labels",
    "spark.kubernetes.executor.secretKeyRef.": _ENV,
}
"""The same for all settings with a prefix. Variables of executors would override those of the run."""

_READ_BY_DRIVERS = (
    "spark.kubernetes.driver.annotateExitException",
    "spark.kubernetes.driver.connectionTimeout",
    "spark.kubernetes.driver.ownPersistentVolumeClaim",
    "spark.kubernetes.driver.requestTimeout",
    "spark.kubernetes.driver.reusePersistentVolumeClaim",
    "spark.kubernetes.driver.service.deleteOnTermination",
    "spark.kubernetes.driver.waitToReusePersistentVolumeClaim",
)
"""Exceptions: a driver reads these settings in its pod. The other settings configure the creation of its pod."""


def _instead(key: str) -> str | None:
    if key in _READ_BY_DRIVERS:
        return None
    by_prefix = (instead for prefix, instead in _INSTEAD_BY_PREFIX.items() if key.startswith(prefix))
    return _INSTEAD.get(key) or next(by_prefix, None)


def _owned(settings: Mapping[str, Any]) -> list[str]:
    return [key for key in settings if _instead(key) is not None]


_OWNED = Rule(
    "the framework sets some of these itself: the master, the names and addresses, what a pod is made of, and whatever "
    "has a field of its own; write the fields of runtime.spark and podTemplate instead",
    lambda settings: not _owned(settings),
    f"!self.exists(key, !(key in [{', '.join(map(repr, _READ_BY_DRIVERS))}])"
    f" && (key in [{', '.join(map(repr, _INSTEAD))}]"
    f" || {' || '.join(f'key.startsWith({prefix!r})' for prefix in _INSTEAD_BY_PREFIX)}))",
    detailed=lambda settings: f"the framework sets {_owned(settings)[0]} itself: {_instead(_owned(settings)[0])}",
    at=lambda settings: _owned(settings)[0],
    place=Place.CLUSTER,
)

_SECRET = "(?i).*(?:password|passwd|secret|token|secret[.]?key|access[.]?key|account[.]key[.].*)"
_REFERENCE = r"spark\.kubernetes\.executor\.secret(?:s|KeyRef)\..*"


def is_secret(key: str) -> bool:
    """Return whether the name of a setting indicates a secret value."""
    return re.fullmatch(_SECRET, key) is not None


def _secrets(settings: Mapping[str, Any]) -> list[str]:
    return [key for key in settings if is_secret(key) and not re.fullmatch(_REFERENCE, key)]


_NO_SECRETS = Rule(
    "a password is never written in plain text; give it to the run as a variable from a Secret (podTemplate), or with "
    "the credentials of a data set",
    lambda settings: not _secrets(settings),
    f"!self.exists(key, key.matches(r'^(?:{_SECRET})$') && !key.matches(r'^(?:{_REFERENCE})$'))",
    at=lambda settings: _secrets(settings)[0],
)
_SPARKS_OWN = Rule(
    "Spark ignores settings that do not begin with spark.",
    lambda settings: all(key.startswith("spark.") for key in settings),
    "self.all(key, key.startsWith('spark.'))",
    at=lambda settings: next(key for key in settings if not key.startswith("spark.")),
    place=Place.CLUSTER,
)
SparkConf = Annotated[dict[Key, Url], Field(max_length=100), _NO_SECRETS, _OWNED, _SPARKS_OWN]

_NO_COMMA = without(",", "Spark reads commas as the ends of files; write one file an item")
Files = Annotated[tuple[Annotated[NonEmpty, StringConstraints(max_length=4096), _NO_COMMA], ...], Field(max_length=100)]
Packages = Annotated[
    tuple[
        Annotated[
            str,
            StringConstraints(strict=True, max_length=1000),
            matching(
                r"[^:,\x00-\x20]+:[^:,\x00-\x20]+:[^:,\x00-\x20]+",
                'a package is group, artifact and version like "org.postgresql:postgresql:42.7.7"',
            ),
        ],
        ...,
    ],
    Field(max_length=100),
]


class Driver(InputModel):
    """The size of the driver."""

    cores: Cores = Field(
        default=1,
        description="The cores of the driver. Without executors, this is also the number of parallel Spark tasks. On a "
        "cluster, this is the CPU request of its pod.",
    )
    memory: SparkMemory = Field(default="1g", description="The heap of the driver's JVM, such as 512m or 4g.")
    memory_overhead: Memory | None = Field(
        default=None,
        description="The memory of its pod outside the heap: Python, threads, buffers. The default is 40 % of the heap "
        f"and at least 384m. Without executors, 128m are added for the Python worker of each core. {_NOT_LOCAL}",
    )


class Executor(InputModel):
    """The number and the size of the executors."""

    instances: Annotated[Count, Field(le=_MOST_EXECUTORS)] = Field(
        default=0,
        description=f"The number of executors. 0: the driver executes all Spark tasks itself. {_NOT_LOCAL}",
    )
    cores: Cores = Field(default=1, description=f"The number of parallel Spark tasks of each executor. {_NOT_LOCAL}")
    memory: SparkMemory = Field(default="1g", description=f"The heap of each executor. {_NOT_LOCAL}")
    memory_overhead: Memory | None = Field(
        default=None,
        description="The memory of each executor outside the heap. The default is 40 % of the heap and at least 384m. "
        f"{_NOT_LOCAL}",
    )


class DynamicAllocation(InputModel):
    """A number of executors that follows the number of Spark tasks."""

    rules: ClassVar = (
        Rule(
            "min is more than max",
            lambda it: it.minimum <= it.maximum,
            "self.min <= self.max",
            at="min",
        ),
        Rule(
            "initial is not between min and max",
            lambda it: it.initial is None or it.minimum <= it.initial <= it.maximum,
            "!has(self.initial) || (self.min <= self.initial && self.initial <= self.max)",
            at="initial",
        ),
    )

    enabled: Flag = Field(default=True, description="False: no dynamic allocation.")
    minimum: Annotated[Count, Field(le=_MOST_EXECUTORS)] = Field(
        default=0, alias="min", description="The minimum number of executors."
    )
    maximum: Annotated[int, Strict(), Field(ge=1, le=_MOST_EXECUTORS)] = Field(
        alias="max", description="The maximum number of executors."
    )
    initial: Annotated[Count, Field(le=_MOST_EXECUTORS)] | None = Field(
        default=None, description="The initial number of executors. The default is min."
    )


class Dependencies(InputModel):
    """Dependencies of driver and executors, besides Python files. They are paths in the image, or URLs."""

    jars: Files = Field(default=(), description="Jars for the class path, such as JDBC drivers.")
    files: Files = Field(default=(), description="Files for the working directories.")
    packages: Packages = Field(
        default=(), description="Maven packages. Spark downloads them with their dependencies at each start."
    )


def _one_name(short: str, name: str) -> Rule:
    """Return the rule that only one of two names for a list or map is written. `short`, `name`: as in YAML."""
    return Rule(
        f"{short} is short for {name}; write one of them",
        lambda it: not (getattr(it, short) and getattr(it, re.sub("([A-Z])", r"_\1", name).lower())),
        f"!has(self.{short}) || !has(self.{name}) || self.{short}.size() == 0 || self.{name}.size() == 0",
        at=short,
    )


class Warm(InputModel):
    """One JVM for many chunks, one after another. Only on one machine: on a cluster, each run has a pod of its own."""

    enabled: Flag = Field(default=True, description="False: each chunk starts a JVM of its own.")
    max_chunks: Annotated[int, Strict(), Field(ge=1, le=10000)] = Field(
        default=200, description="The number of chunks after which a JVM ends."
    )
    max_idle: Duration = Field(default="60s", description="The time without a chunk after which a JVM ends.")
    max_age: Duration = Field(default="1h", description="The age at which a JVM gets no more chunks.")

    @property
    def max_idle_seconds(self) -> float:
        """The longest time without a chunk, in seconds."""
        return duration_seconds(self.max_idle)

    @property
    def max_age_seconds(self) -> float:
        """The age at which a JVM gets no more chunks, in seconds."""
        return duration_seconds(self.max_age)


class SparkRuntime(InputModel):
    """The common base of PySpark programs and pipelines: size, settings and pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "executor.instances and dynamicAllocation contradict each other; write one of them",
            lambda it: not (it.executor.instances and it.dynamic_allocation and it.dynamic_allocation.enabled),
            "!has(self.executor) || self.executor.instances == 0 || !has(self.dynamicAllocation)"
            " || !self.dynamicAllocation.enabled",
            at="executor",
        ),
        Rule(
            "a JVM that chunks share has no variables of a chunk; write the value instead of ${env...}, or set "
            "warm.enabled to false",
            lambda it: it.warm is None or not it.warm.enabled or not it.refers_to_variables,
            at="sparkConf",
            place=Place.MACHINE,
        ),
    )

    py_files: Files = Field(default=(), description="Python files and zips that the program imports.")
    deps: Dependencies = Field(default_factory=Dependencies, description="Jars, files and packages.")
    spark_conf: SparkConf = Field(default_factory=dict, description="Settings of Spark.")
    image: NonEmpty | None = Field(
        default=None,
        description=f"The image of driver and executors. The default is the operator's setting. {_NOT_LOCAL}",
    )
    image_pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, NEVER_NULL] = Field(
        default=None, description=f"The pull policy of the image. The default is that of Kubernetes. {_NOT_LOCAL}"
    )
    driver: Driver | None = Field(default=None, description="The size of the driver.")
    executor: Executor = Field(default_factory=Executor, description="The number and the size of the executors.")
    dynamic_allocation: DynamicAllocation | None = Field(
        default=None, description=f"Let Spark change the number of executors. {_NOT_LOCAL}"
    )
    service_account: (
        Annotated[
            str,
            StringConstraints(strict=True, max_length=253),
            matching(
                r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?",
                "the name of a service account has lower-case letters, digits, - and ., and begins and ends with a "
                "letter or digit",
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="The service account with which the driver creates executors. The default is the operator's "
        f"setting. {_NOT_LOCAL}",
    )

    warm: Warm | None = Field(
        default=None,
        description="Let one JVM run many chunks, one after another. Each chunk still has a Python process of its own. "
        "The default is a JVM for each chunk. Not used on a cluster.",
    )

    @property
    def holder(self) -> Warm | None:
        """The limits of a JVM that chunks share; None if each chunk has a JVM of its own."""
        return self.warm if self.warm is not None and self.warm.enabled else None

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of Spark."""
        return self.spark_conf

    @property
    def refers_to_variables(self) -> bool:
        """Whether settings of Spark refer to variables of the driver, which have the values of a chunk."""
        return any("${env" in value for value in self.settings.values())

    @property
    def driver_size(self) -> Driver:
        """The size of the driver."""
        return self.driver or Driver()

    @property
    def allocation(self) -> DynamicAllocation | None:
        """The dynamic allocation; None if it is not enabled."""
        return self.dynamic_allocation if self.dynamic_allocation and self.dynamic_allocation.enabled else None

    @property
    def has_executors(self) -> bool:
        """Whether the driver starts executors."""
        return self.allocation is not None or self.executor.instances > 0


class Spark(SparkRuntime):
    """A PySpark program."""

    rules: ClassVar = (
        exactly_one("main", "mainApplicationFile"),
        _one_name("args", "arguments"),
        _one_name("conf", "sparkConf"),
        Rule(
            "cores and memory are short for driver.cores and driver.memory; write them there",
            lambda it: it.driver is None or (it.cores is None and it.memory is None),
            "!has(self.driver) || (!has(self.cores) && !has(self.memory))",
            at="driver",
        ),
        Rule(
            "the program is a Python file, whose name ends with .py",
            lambda it: it.program.endswith(".py"),
            "!(has(self.main) && !self.main.endsWith('.py'))"
            " && !(has(self.mainApplicationFile) && !self.mainApplicationFile.endsWith('.py'))",
            place=Place.CLUSTER,
        ),
        Rule(
            "on one machine the program is a file there; write its path",
            lambda it: not re.match(r"(?!local:|file:)[A-Za-z][A-Za-z0-9+.-]*://", it.program),
            place=Place.MACHINE,
        ),
        *SparkRuntime.rules,
    )

    main_application_file: Annotated[NonEmpty, StringConstraints(max_length=4096)] | None = Field(
        default=None,
        description="The Python file. On one machine, a path relative to the folder of the job file. On a cluster, a "
        "path in the image, or a URL from which Spark downloads it (https, s3a, gs ...).",
    )
    arguments: Arguments = Field(default=(), description="The arguments of the program.")
    main: Annotated[NonEmpty, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="Short for mainApplicationFile."
    )
    args: Arguments = Field(default=(), description="Short for arguments.")
    conf: SparkConf = Field(default_factory=dict, description="Short for sparkConf.")
    cores: Cores | None = Field(default=None, description="Short for driver.cores.")
    memory: SparkMemory | None = Field(default=None, description="Short for driver.memory.")

    @property
    def program(self) -> str:
        """The written path or URL of the Python file."""
        return self.main or self.main_application_file or ""

    @property
    def program_arguments(self) -> tuple[str, ...]:
        """The arguments of the program."""
        return self.args or self.arguments

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of Spark."""
        return self.conf or self.spark_conf

    @property
    def driver_size(self) -> Driver:
        """The size of the driver."""
        if self.driver is not None:
            return self.driver
        written = {"cores": self.cores, "memory": self.memory}
        return Driver.model_validate({name: value for name, value in written.items() if value is not None})
