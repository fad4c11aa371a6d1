"""Spark's daemon for Python workers with unlimited output (`spark.python.daemon.module`).

As of Spark 4.3, the JVM parses the records of workers' output recursively. After some thousand records its stack
overflows, the JVM stops reading, and the workers block for ever. A line that is no record ends the recursion.
"""

from itertools import count
from logging import LogRecord

from pyspark.daemon import manager
from pyspark.logger import worker_io

_RECORDS = 100
_number = count(1)


class _InterruptedFormatter(worker_io.JSONFormatterWithMarker):
    def format(self, record: LogRecord) -> str:
        text = super().format(record)
        return text if next(_number) % _RECORDS else f"\n{text}"


worker_io.JSONFormatterWithMarker = _InterruptedFormatter  # type: ignore[misc]  # pyspark has no setting for it

if __name__ == "__main__":
    manager()
