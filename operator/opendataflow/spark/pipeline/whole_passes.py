"""Which frames have passed as a whole in what Spark has just done, so that what was measured of them is true.

Spark measures the rows that are asked for. A limit asks for fewer ones, and so do a join whose other side is at its
end and a function that leaves its iterator; a product asks for some of them several times. The plan that has run tells
it, and what is not known here to ask for each row once is taken for something that doesn't.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEWEST = 10
"""How many of the things that Spark has done last are looked through: a connector may do some after the write."""

_NODE = re.compile(r'^\s*(\d+) \[id="\S+" label="([^"]*)" tooltip="((?:[^"\\]|\\.)*)"', re.MULTILINE)
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
    jvm: Any = spark._jvm
    store: Any = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList(max(0, store.executionsCount() - _NEWEST), _NEWEST)
    for number in reversed(range(done.size())):
        graph: str = store.planGraph(done.apply(number).executionId()).makeDotFile(jvm.PythonUtils.toScalaMap({}))
        if any(name in graph for name in (*names, *filter(None, [last]))):
            return _whole(graph, names, last)
    return set()


def _whole(graph: str, names: Collection[str], last: str | None) -> set[str]:
    nodes: dict[str, tuple[str, str]] = {number: (label, text) for number, label, text in _NODE.findall(graph)}
    above: dict[str, list[str]] = defaultdict(list)
    for lower, upper in _EDGE.findall(graph):
        above[lower].append(upper)
    adaptive = any(label == _ADAPTIVE for label, _ in nodes.values())

    def asks_for_all(upper: str, lower: str) -> bool:
        label, text = nodes[upper]
        if label == _FIRST_ROWS:
            return nodes[lower][0] == _SORTED
        return adaptive if label == _JOIN else _ASKS_FOR_ALL.match(text) is not None

    def is_whole(number: str) -> bool:
        todo = [number]
        while todo:
            lower = todo.pop()
            for upper in above[lower]:
                text = nodes[upper][1]
                if _STAGE.match(text) or (last is not None and text.startswith(f"CollectMetrics {last},")):
                    continue
                if not asks_for_all(upper, lower):
                    return False
                todo.append(upper)
        return True

    found: dict[str, bool] = {}
    for number, (label, text) in nodes.items():
        if label == "CollectMetrics":
            name = text.split(" ", 2)[1].rstrip(",")
            found[name] = found.get(name, True) and is_whole(number)
    return {name for name in names if found.get(name, False)}
