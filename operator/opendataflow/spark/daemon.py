"""Spark's daemon for Python workers, whose functions may print as much as they like: `spark.python.daemon.module`.

The JVM reads the records of what workers print one inside of the other (as of Spark 4.3). After some thousand its stack
is full, nobody reads any more, and the workers wait for ever. Any line that is no record brings it back.
"""

from itertools import count
from logging import LogRecord

from pyspark.daemon import manager
from pyspark.logger import worker_io

_RECORDS = 100
_number = count(1)


class _Interrupted(worker_io.JSONFormatterWithMarker):
    def format(self, record: LogRecord) -> str:
        text = super().format(record)
        return text if next(_number) % _RECORDS else f"\n{text}"


worker_io.JSONFormatterWithMarker = _Interrupted  # type: ignore[misc]  # there is no other way in

if __name__ == "__main__":
    manager()
