"""Which frames have passed as a whole in what Spark has just done, so that what was measured of them is true.

Spark measures the rows that are asked for. A limit asks for fewer ones, and so do a join whose other side is at its
end and a function that leaves its iterator; a product asks for some of them several times. The plan that has run tells
it, and what is not known here to ask for each row once is taken for something that doesn't.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST = 10
"""How many of the things that Spark has done last are looked through: a connector may do some after the write."""

_NODE = re.compile(r'^\s*(\d+) \[id="\S+" label="((?:[^"\\]|\\.)*)" tooltip="((?:[^"\\]|\\.)*)"', re.MULTILINE)
_EDGE = re.compile(r"^\s*(\d+)->(\d+);", re.MULTILINE)

_STAGE = re.compile("(Broadcast)?Exchange ")
"""It takes all rows of what is below it, whatever becomes of them above."""
_ASKS_FOR_ALL = re.compile(
    r"(AQEShuffleRead|AdaptiveSparkPlan|ArrowEvalPython|BatchEvalPython|Coalesce|CollectMetrics|ColumnarToRow|Expand|"
    r"Filter|Generate|HashAggregate|ObjectHashAggregate|Project|Sample|Sort|SortAggregate|TakeOrderedAndProject|Union|"
    r"Window)\b|BroadcastNestedLoopJoin \w+, (Cross|Inner)\b"
)
_ADAPTIVE, _JOIN = "AdaptiveSparkPlan", "BroadcastHashJoin"
"""The join asks for all unless its other side is empty; then an adaptive plan ends without it."""
_FIRST_ROWS, _SORTED = "WindowGroupLimit", "Sort"
"""The one stops early, and the other has all of its rows before it gives one."""


def passed_whole(spark: "SparkSession", names: Collection[str], last: str | None = None) -> set[str]:
    """Return those of some observations that were whole in the newest thing that Spark has done with one of them.
    `last`: the one whose rows were all asked for, whatever has asked."""
    try:
        for graph in _newest_graphs(spark):
            if any(name in graph for name in (*names, *filter(None, [last]))):
                return _Plan(graph, last).whole().intersection(names)
    except Py4JError:  # it is made for Spark's own pages, and may be another one in another version
        pass
    return set()


def _newest_graphs(spark: "SparkSession") -> Iterator[str]:
    jvm: Any = spark._jvm
    store: Any = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList(max(0, store.executionsCount() - _NEWEST), _NEWEST)
    for number in reversed(range(done.size())):
        yield store.planGraph(done.apply(number).executionId()).makeDotFile(jvm.PythonUtils.toScalaMap({}))


class _Plan:
    """A plan that has run, as Spark draws it: rows go along its edges from the lower nodes to the upper ones."""

    def __init__(self, graph: str, last: str | None) -> None:
        nodes: dict[str, tuple[str, str]] = {number: (label, text) for number, label, text in _NODE.findall(graph)}
        self._above: dict[str, list[str]] = defaultdict(list)
        for lower, upper in _EDGE.findall(graph):
            self._above[lower].append(upper)
        self._nodes = defaultdict(lambda: ("", ""), nodes)
        self._adaptive = any(label == _ADAPTIVE for label, _ in nodes.values())
        self._last = last

    def whole(self) -> set[str]:
        """The observations that were whole wherever the plan has them."""
        found: dict[str, bool] = {}
        for number in [*self._nodes]:
            name = self._name(number)
            if name is not None:
                found[name] = found.get(name, True) and self._is_whole(number)
        return {name for name, whole in found.items() if whole}

    def _name(self, number: str) -> str | None:
        label, text = self._nodes[number]
        return text.split(" ", 2)[1].rstrip(",") if label == "CollectMetrics" else None

    def _is_whole(self, number: str) -> bool:
        todo = [number]
        while todo:
            lower = todo.pop()
            for upper in self._above[lower]:
                if _STAGE.match(self._nodes[upper][1]) or (self._last and self._name(upper) == self._last):
                    continue
                if not self._asks_for_all(upper, lower):
                    return False
                todo.append(upper)
        return True

    def _asks_for_all(self, upper: str, lower: str) -> bool:
        label, text = self._nodes[upper]
        if label == _FIRST_ROWS:
            return self._nodes[lower][0] == _SORTED
        return self._adaptive if label == _JOIN else _ASKS_FOR_ALL.match(text) is not None
