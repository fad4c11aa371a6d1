"""What users write about a PySpark program: `runtime.spark`, for one machine and for a cluster in one format.

On one machine driver and executors are one process; on a cluster the driver is the run's pod and starts its executors.
What Spark would refuse minutes later is refused here, and what the framework sets can't be written as a setting.
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
    Flag,
    Key,
    Memory,
    NonEmpty,
    Url,
    Written,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, matching, without

_NOT_LOCAL = "Not used on one machine."
_MOST_EXECUTORS = 10000

LEAST_MEBIBYTES = 471
"""Spark reserves 300 MiB and wants half as much again, of what the JVM has after its own spaces."""

# 471 MiB in each unit that is smaller than a gibibyte: a rule that an API server can check without arithmetics.
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
"""Settings that the framework writes on a cluster, and what a user writes instead."""

_ENV = "write the job's env, or podTemplate; executors have the same variables as the driver"
_INSTEAD_OF_ALL = {
    "spark.executorEnv.": _ENV,
    "spark.kubernetes.authenticate.": "write serviceAccount",
    "spark.kubernetes.driver.": "the run's pod is the driver; write podTemplate and the fields of driver",
    "spark.kubernetes.driverEnv.": _ENV,
    "spark.kubernetes.executor.annotation.": "write podTemplate.metadata.annotations",
    "spark.kubernetes.executor.label.": "write podTemplate.metadata.labels",
    "spark.kubernetes.executor.secretKeyRef.": _ENV,
}
"""The same of all settings that begin so. Variables of executors would stand behind those of the run, and win."""

_READ_BY_DRIVERS = (
    "spark.kubernetes.driver.annotateExitException",
    "spark.kubernetes.driver.connectionTimeout",
    "spark.kubernetes.driver.ownPersistentVolumeClaim",
    "spark.kubernetes.driver.requestTimeout",
    "spark.kubernetes.driver.reusePersistentVolumeClaim",
    "spark.kubernetes.driver.service.deleteOnTermination",
    "spark.kubernetes.driver.waitToReusePersistentVolumeClaim",
)
"""Not meant by them: settings that a driver reads in its pod. The others are about how its pod is made."""


def _instead(key: str) -> str | None:
    if key in _READ_BY_DRIVERS:
        return None
    return _INSTEAD.get(key) or next((word for begin, word in _INSTEAD_OF_ALL.items() if key.startswith(begin)), None)


def _owned(settings: Mapping[str, Any]) -> list[str]:
    return [key for key in settings if _instead(key) is not None]


_OWNED = Rule(
    "the framework sets some of these itself: the master, the names and addresses, what a pod is made of, and whatever "
    "has a field of its own; write the fields of runtime.spark and podTemplate instead",
    lambda settings: not _owned(settings),
    f"!self.exists(key, !(key in [{', '.join(map(repr, _READ_BY_DRIVERS))}])"
    f" && (key in [{', '.join(map(repr, _INSTEAD))}]"
    f" || {' || '.join(f'key.startsWith({begin!r})' for begin in _INSTEAD_OF_ALL)}))",
    told=lambda settings: f"the framework sets {_owned(settings)[0]} itself: {_instead(_owned(settings)[0])}",
    at=lambda settings: _owned(settings)[0],
    place=Place.CLUSTER,
)

_SECRET = "(?i).*(?:password|passwd|secret|token|secret[.]?key|access[.]?key|account[.]key[.].*)"
_REFERENCE = r"spark\.kubernetes\.executor\.secret(?:s|KeyRef)\..*"


def is_secret(key: str) -> bool:
    """Whether the name of a setting says that its value is a secret."""
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


class Driver(Written):
    """The size of the driver."""

    cores: Cores = Field(
        default=1,
        description="What it computes with; without executors also how many Spark tasks it works on at a time. On a "
        "cluster the CPU request of its pod.",
    )
    memory: SparkMemory = Field(default="1g", description="The heap of its JVM, such as 512m or 4g.")
    memory_overhead: Memory | None = Field(
        default=None,
        description="What its pod has beside the heap: Python, threads, buffers. The default is 40 % of the heap and "
        f"at least 384m; without executors 128m more for each core, for Python workers. {_NOT_LOCAL}",
    )


class Executor(Written):
    """The number and the size of the executors."""

    instances: Annotated[Count, Field(le=_MOST_EXECUTORS)] = Field(
        default=0, description=f"How many there are; 0: the driver does it all in its own pod. {_NOT_LOCAL}"
    )
    cores: Cores = Field(default=1, description=f"How many Spark tasks each works on at a time. {_NOT_LOCAL}")
    memory: SparkMemory = Field(default="1g", description=f"The heap of each. {_NOT_LOCAL}")
    memory_overhead: Memory | None = Field(
        default=None,
        description=f"What each has beside the heap; the default is 40 % of it and at least 384m. {_NOT_LOCAL}",
    )


class DynamicAllocation(Written):
    """As many executors as there is work for."""

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

    enabled: Flag = Field(default=True, description="False: as if it was not written.")
    minimum: Annotated[Count, Field(le=_MOST_EXECUTORS)] = Field(
        default=0, alias="min", description="The fewest executors."
    )
    maximum: Annotated[int, Strict(), Field(ge=1, le=_MOST_EXECUTORS)] = Field(
        alias="max", description="The most executors."
    )
    initial: Annotated[Count, Field(le=_MOST_EXECUTORS)] | None = Field(
        default=None, description="How many there are at first; the default is min."
    )


class Dependencies(Written):
    """What Spark gives to driver and executors beside Python files. Paths are those of the image, or URLs."""

    jars: Files = Field(default=(), description="Jars for the class path, such as JDBC drivers.")
    files: Files = Field(default=(), description="Files for the working directories.")
    packages: Packages = Field(
        default=(), description="Maven packages with all that they need; Spark fetches them at each start."
    )


def _one_name(short: str, name: str) -> Rule:
    """Not two names for one list or map. Both are those of YAML and of Python, aside from camel case."""
    return Rule(
        f"{short} is short for {name}; write one of them",
        lambda it: not (getattr(it, short) and getattr(it, re.sub("([A-Z])", r"_\1", name).lower())),
        f"!has(self.{short}) || !has(self.{name}) || self.{short}.size() == 0 || self.{name}.size() == 0",
        at=short,
    )


class OnSpark(Written):
    """What everything that Spark runs has in common: its size, its settings, its pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "executor.instances and dynamicAllocation contradict each other; write one of them",
            lambda it: not (it.executor.instances and it.dynamic_allocation and it.dynamic_allocation.enabled),
            "!has(self.executor) || self.executor.instances == 0 || !has(self.dynamicAllocation)"
            " || !self.dynamicAllocation.enabled",
            at="executor",
        ),
    )

    py_files: Files = Field(default=(), description="Python files and zips that the program imports.")
    deps: Dependencies = Field(default_factory=Dependencies, description="Jars, files and packages.")
    spark_conf: SparkConf = Field(default_factory=dict, description="Spark's own settings.")
    image: NonEmpty | None = Field(
        default=None, description=f"The image of driver and executors; the default is the operator's. {_NOT_LOCAL}"
    )
    image_pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, NEVER_NULL] = Field(
        default=None, description=f"When the image is fetched; the default is Kubernetes'. {_NOT_LOCAL}"
    )
    driver: Driver | None = Field(default=None, description="The size of the driver.")
    executor: Executor = Field(default_factory=Executor, description="The number and the size of the executors.")
    dynamic_allocation: DynamicAllocation | None = Field(
        default=None, description=f"As many executors as there is work for. {_NOT_LOCAL}"
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
        description="Whose rights the driver starts executors with; the default is the operator's setting. "
        f"{_NOT_LOCAL}",
    )

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's own settings."""
        return self.spark_conf

    @property
    def driver_size(self) -> Driver:
        """The size of the driver."""
        return self.driver or Driver()

    @property
    def allocation(self) -> DynamicAllocation | None:
        """The dynamic allocation; None where there is none."""
        return self.dynamic_allocation if self.dynamic_allocation and self.dynamic_allocation.enabled else None

    @property
    def has_executors(self) -> bool:
        """Whether there are executors beside the driver."""
        return self.allocation is not None or self.executor.instances > 0


class Spark(OnSpark):
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
        *OnSpark.rules,
    )

    main_application_file: Annotated[NonEmpty, StringConstraints(max_length=4096)] | None = Field(
        default=None,
        description="The Python file. On one machine it is relative to the folder of the file; on a cluster it is a "
        "path in the image, or an address that Spark fetches it from (https, s3a, gs ...).",
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
        """The Python file, as it is written."""
        return self.main or self.main_application_file or ""

    @property
    def program_arguments(self) -> tuple[str, ...]:
        """The arguments of the program."""
        return self.args or self.arguments

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's own settings."""
        return self.conf or self.spark_conf

    @property
    def driver_size(self) -> Driver:
        """The size of the driver."""
        if self.driver is not None:
            return self.driver
        written = {"cores": self.cores, "memory": self.memory}
        return Driver.model_validate({name: value for name, value in written.items() if value is not None})
