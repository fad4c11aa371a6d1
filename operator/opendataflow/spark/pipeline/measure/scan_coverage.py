"""Find the frames of which Spark's last execution read every row once, so that their measures are exact.

Spark measures only requested rows. A limit, a join with an exhausted other side, or a function that leaves its
iterator requests fewer rows. A cross product requests rows repeatedly. The executed plan shows these operators. Unknown
operators count as incomplete.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_LAST_EXECUTIONS = 10
"""Number of recent executions to search. A connector may run some after the write."""

_NODE = re.compile(r'^[^\S\n]*(\d+) \[id="\S+" label="((?:[^"\\]|\\.)*)" tooltip="((?:[^"\\]|\\.)*)"', re.MULTILINE)
_EDGE = re.compile(r"^[^\S\n]*(\d+)->(\d+);", re.MULTILINE)

_STAGE = re.compile("(Broadcast)?Exchange ")
"""Operators that read all rows of their input, independent of the operators above."""
_READS_ALL = re.compile(
    r"(AQEShuffleRead|AdaptiveSparkPlan|ArrowEvalPython|BatchEvalPython|Coalesce|CollectMetrics|ColumnarToRow|Expand|"
    r"Filter|Generate|HashAggregate|ObjectHashAggregate|Project|Sample|Sort|SortAggregate|TakeOrderedAndProject|Union|"
    r"Window)\b|BroadcastNestedLoopJoin \w+, (Cross|Inner)\b"
)
_ADAPTIVE, _JOIN = "AdaptiveSparkPlan", "BroadcastHashJoin"
"""The join reads all rows unless its other side is empty. Then an adaptive plan removes the join."""
_FIRST_ROWS, _SORTED = "WindowGroupLimit", "Sort"
"""The first stops early. The second reads all rows before it returns one."""


def find_complete(spark: SparkSession, names: Collection[str], last: str | None = None) -> set[str]:
    """Return the observations that saw every row once in the newest execution with one of them.

    `names`: of the observations. `last`: the observation of the written frame, whose rows were all requested.
    """
    try:
        for graph in _newest_graphs(spark):
            if any(name in graph for name in (*names, *filter(None, [last]))):
                return _ExecutedPlan(graph, last).find_complete().intersection(names)
    except Py4JError:  # an internal API of Spark's web pages, which may change in another version
        pass
    return set()


def _newest_graphs(spark: SparkSession) -> Iterator[str]:
    jvm: Any = spark._jvm
    store: Any = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList(max(0, store.executionsCount() - _LAST_EXECUTIONS), _LAST_EXECUTIONS)
    for number in reversed(range(done.size())):
        yield store.planGraph(done.apply(number).executionId()).makeDotFile(jvm.PythonUtils.toScalaMap({}))


class _ExecutedPlan:
    """An executed plan, parsed from Spark's graph. Rows flow along the edges from lower to upper nodes."""

    def __init__(self, graph: str, last: str | None) -> None:
        nodes: dict[str, tuple[str, str]] = {number: (label, text) for number, label, text in _NODE.findall(graph)}
        self._above: dict[str, list[str]] = defaultdict(list)
        for lower, upper in _EDGE.findall(graph):
            self._above[lower].append(upper)
        self._nodes = defaultdict(lambda: ("", ""), nodes)
        self._is_adaptive = any(label == _ADAPTIVE for label, _ in nodes.values())
        self._last = last

    def find_complete(self) -> set[str]:
        """Return the observations that are complete at each of their nodes."""
        found: dict[str, bool] = {}
        for number in [*self._nodes]:
            name = self._observation_name(number)
            if name is not None:
                found[name] = found.get(name, True) and self._is_complete(number)
        return {name for name, complete in found.items() if complete}

    def _observation_name(self, number: str) -> str | None:
        label, text = self._nodes[number]
        return text.split(" ", 2)[1].rstrip(",") if label == "CollectMetrics" else None

    def _is_complete(self, number: str) -> bool:
        todo = [number]
        while todo:
            lower = todo.pop()
            for upper in self._above[lower]:
                if _STAGE.match(self._nodes[upper][1]) or self._is_last(upper):
                    continue
                if not self._reads_all(upper, lower):
                    return False
                todo.append(upper)
        return True

    def _is_last(self, number: str) -> bool:
        return bool(self._last) and self._observation_name(number) == self._last

    def _reads_all(self, upper: str, lower: str) -> bool:
        label, text = self._nodes[upper]
        if label == _FIRST_ROWS:
            return self._nodes[lower][0] == _SORTED
        return self._is_adaptive if label == _JOIN else _READS_ALL.match(text) is not None
