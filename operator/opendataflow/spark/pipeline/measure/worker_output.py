"""Collect what transformations print on Python workers, by step.

Spark logs the output with the name of the called function, which is not unique. So the name of each function that a
step sends to workers is extended by the name of the step. Spark does not log functions of RDDs and of cached frames.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import CodeType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.spark.pipeline.errors.printed_output import MAX_PRINTED, STEP_MARK
from opendataflow.spark.pipeline.measure.session import WORKER_LOGGING

_MOST_LINES = MAX_PRINTED // 64


class WorkerOutput:
    """The output of functions on workers since the creation of this object, by step."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._began = datetime.now()  # noqa: DTZ005 # Spark's log of its workers has local times
        self._sent = False

    @contextmanager
    def label(self, step: str) -> Iterator[None]:
        """Attribute functions that are pickled during the block to a step."""
        table: Any = cloudpickle.Pickler.dispatch_table
        plain, inner = table[CodeType], set[int]()

        def marked(code: CodeType) -> Any:
            self._sent = True
            inner.update(id(it) for it in code.co_consts if isinstance(it, CodeType))
            if id(code) in inner:  # a nested function, created on the worker by a marked one; keeps its __name__
                return plain(code)
            return plain(code.replace(co_name=f"{code.co_name}{STEP_MARK}{step}"))

        table[CodeType] = marked
        try:
            yield
        finally:
            table[CodeType] = plain

    def by_step(self) -> Mapping[str, str]:
        """Return the last lines of output of each step."""
        if not self._sent:
            return {}
        try:
            if self._spark.conf.get(WORKER_LOGGING, "false") != "true":
                return {}
            newest_first = Window.partitionBy("step").orderBy(F.desc("ts"))
            lines = (
                self._spark.tvf.python_worker_logs()
                .where(F.col("ts") >= F.lit(self._began))
                .select("ts", "msg", F.substring_index(F.col("context")["func_name"], STEP_MARK, -1).alias("step"))
                .withColumn("nth", F.row_number().over(newest_first))
                .where(F.col("nth") <= _MOST_LINES)
                .orderBy("ts")
                .collect()
            )
        except (PySparkException, Py4JError, ConnectionError):
            return {}  # missing output does not fail a run
        found: dict[str, str] = {}
        for line in lines:
            found[line["step"]] = f"{found.get(line['step'], '')}{line['msg']}\n"
        return found
