"""What functions of transformations print inside Python workers: of which step it is, and in whole lines.

Spark keeps it with the name of the function that it has called there, which many may have. So each function that a step
sends to workers says in that name whose it is. What is printed by functions of RDDs, or while a frame is cached, Spark
does not keep.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import CodeType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.spark.pipeline.execute.running import MOST_PRINTED
from opendataflow.spark.pipeline.measure.session import WORKER_LOGGING

_OF = ", of step "
_MOST_LINES = MOST_PRINTED // 64


class WorkerOutput:
    """What is printed on workers from now on, by the functions of some steps."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._began = datetime.now()  # noqa: DTZ005 # as Spark's own log of its workers says it
        self._sent = False

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Let functions that are sent to workers meanwhile be those of a step."""
        table: Any = cloudpickle.Pickler.dispatch_table
        plain, inner = table[CodeType], set[int]()

        def marked(code: CodeType) -> Any:
            self._sent = True
            inner.update(id(it) for it in code.co_consts if isinstance(it, CodeType))
            if id(code) in inner:  # made on the worker, by one that is marked; its __name__ comes from here
                return plain(code)
            return plain(code.replace(co_name=f"{code.co_name}{_OF}{step}"))

        table[CodeType] = marked
        try:
            yield
        finally:
            table[CodeType] = plain

    def by_step(self) -> Mapping[str, str]:
        """Return the last lines of each step."""
        if not self._sent:
            return {}
        try:
            if self._spark.conf.get(WORKER_LOGGING, "false") != "true":
                return {}
            newest_first = Window.partitionBy("step").orderBy(F.desc("ts"))
            lines = (
                self._spark.tvf.python_worker_logs()
                .where(F.col("ts") >= F.lit(self._began))
                .select("ts", "msg", F.substring_index(F.col("context")["func_name"], _OF, -1).alias("step"))
                .withColumn("nth", F.row_number().over(newest_first))
                .where(F.col("nth") <= _MOST_LINES)
                .orderBy("ts")
                .collect()
            )
        except (PySparkException, Py4JError, ConnectionError):
            return {}  # it is no reason to fail
        found: dict[str, str] = {}
        for line in lines:
            found[line["step"]] = f"{found.get(line['step'], '')}{line['msg']}\n"
        return found


def without_steps(traceback: str) -> str:
    """Return a traceback of a worker with the functions' own names."""
    return "\n".join(line.partition(_OF)[0] if line.startswith('  File "') else line for line in traceback.split("\n"))


def whole_print() -> Callable[..., None]:
    """Return a print() that writes its text at once, as Spark keeps each text that is written as lines of its own. It
    goes to workers with its code, which need nothing of this package for it."""

    def whole(
        *values: object, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
    ) -> None:
        import io
        import sys

        text = io.StringIO()
        print(*values, sep=sep, end=end, file=text)
        to = sys.stdout if file is None else file
        to.write(text.getvalue())
        if flush:
            to.flush()

    return whole
