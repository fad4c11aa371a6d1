"""Estimates pi with random points in a square: one run for each shard, with its own points.

The argument is the number of points. The result is printed. In a pod it is also the report of the run.
"""

import json
import os
import sys
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

PARTS = 8
REPORT = Path("/dev/termination-log")


def hits(seed: str, points: int) -> int:
    """Return the number of points within the quarter circle."""
    toss = Random(seed).random
    return sum(toss() ** 2 + toss() ** 2 < 1 for _ in range(points))


def main(points: int, shard: str) -> float:
    """Return the estimate of one shard."""
    share = points // PARTS
    with SparkSession.builder.getOrCreate() as spark:
        parts = spark.sparkContext.parallelize([f"{shard}-{part}" for part in range(PARTS)], PARTS)
        return 4 * parts.map(lambda seed: hits(seed, share)).sum() / (share * PARTS)


if __name__ == "__main__":
    shard = os.environ["DATAFLOW_DATA_ID"]
    pi = main(int(sys.argv[1]), shard)
    print(f"shard {shard}: pi is about {pi}")
    if REPORT.exists():
        REPORT.write_text(json.dumps({"rows": int(sys.argv[1]), "pi": pi}), "utf-8")
