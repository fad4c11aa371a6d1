"""A process with one Spark session that does the work of contenders, one after another, as ordered on stdin."""

import contextlib
import io
import json
import sys
import time

from opendataflow.cli.commands import run
from opendataflow.core.databases.postgres import Postgres
from opendataflow.spark.pipeline.measure.session import local_session
from tests.bench.pipelines import script
from tests.bench.pipelines.place import CONTENDERS


def main(verb: str, size: str) -> None:
    """`fill ROWS` writes a table as Parquet; `serve ROWS` reads numbers of contenders and prints seconds."""
    rows = int(size)
    with local_session("bench", [Postgres.driver]) as spark:
        if verb == "fill":
            divided = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": "4"}
            reader = spark.read.format("jdbc").options(
                **script.login(), **divided, dbtable=script.SOURCE, fetchsize="10000"
            )
            reader.load().write.mode("overwrite").parquet(f"sources/{script.SOURCE}.parquet")
            return
        for line in sys.stdin:
            it = CONTENDERS[int(line)]
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()) as output:
                if it.name:
                    script.work(it.name, None if it.name == "csv" else spark, rows)
                    code = 0
                else:
                    code = run(["pipeline", "run", it.direction, "--data-id", f"1-{rows}"])
            seconds = time.perf_counter() - began
            assert code == 0, output.getvalue()
            print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
