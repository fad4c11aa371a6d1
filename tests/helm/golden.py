"""Writes what the chart renders to anew: python -m tests.helm.golden. The difference is for you to read."""

import sys

from tests.helm.chart import GOLDEN, SETS, Helm, golden
from tests.kube.cluster.providers import programs

if __name__ == "__main__":
    helm = Helm(programs(lambda line: print(line, file=sys.stderr), ["helm"])["helm"])
    GOLDEN.mkdir(exist_ok=True)
    for values in SETS:
        (GOLDEN / values.name).write_text(golden(helm, values), "utf-8")
