"""View model of the graph of data sets and jobs: boxes and lines with their positions in the drawing. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from opendataflow.core.status.graph_layout import Place, lay_out
from opendataflow.dashboard.models import Page, Row, Segment, bar
from opendataflow.dashboard.templating import number
from opendataflow.names import ChunkStatus, TaskState

WIDTH, HEIGHT = 190, 52
"""The size of a box."""
_COLUMN, _ROW = 250, 70
_MARGIN = 4
_SHOWN = 24
"""How many characters of a name fit into a box."""


@dataclass(frozen=True)
class Box:
    """A job or a data set. `state`: names its colour. `line`: what is below its name. `bar`: of a job."""

    kind: str
    id: str
    name: str
    state: str
    line: str
    bar: tuple[Segment, ...]
    x: int
    y: int


@dataclass(frozen=True)
class Line:
    """The path of a line from one box to another, as the attribute `d` of an SVG path."""

    path: str


@dataclass(frozen=True)
class GraphPage(Page):
    """All data sets and jobs, and which job reads and writes what."""

    template: ClassVar[str] = "graph.html"
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    jobs: int
    datasets: int


def graph_page(found: Row, path: str) -> GraphPage:
    """Return the page. `found`: the row of dashboard_graph()."""
    jobs = {f"j:{it['job']}": it for it in found["jobs"]}
    datasets = {f"d:{it['dataset']}": it for it in found["datasets"]}
    edges = [(f"d:{it}", key) for key, job in jobs.items() for it in job["inputs"]]
    edges += [(key, f"d:{it}") for key, job in jobs.items() for it in job["outputs"]]
    layout = lay_out([*jobs, *datasets], edges)
    return GraphPage(
        "Graph",
        "graph",
        path,
        boxes=tuple(
            _box(key, jobs, datasets, place) for key, place in sorted(layout.nodes.items(), key=_reading_order)
        ),
        lines=tuple(Line(_path(places)) for _, places in sorted(layout.edges.items())),
        width=max(layout.layers * _COLUMN - (_COLUMN - WIDTH), 0) + 2 * _MARGIN,
        height=max(layout.rows * _ROW - (_ROW - HEIGHT), 0) + 2 * _MARGIN,
        jobs=len(jobs),
        datasets=len(datasets),
    )


def _reading_order(node: tuple[str, Place]) -> tuple[int, int]:
    return node[1].layer, node[1].row


def _box(key: str, jobs: dict[str, Row], datasets: dict[str, Row], place: Place) -> Box:
    x, y = _corner(place)
    if key in jobs:
        job = jobs[key]
        total, done = sum(job["counts"].values()), job["counts"].get(TaskState.DONE, 0)
        line = f"{number(done)} of {number(total)} done"
        return Box("job", job["job"], _short(job["job"]), job["state"], line, bar(job["counts"], job["stale"]), x, y)
    dataset = datasets[key]
    ready, total = dataset["counts"].get(ChunkStatus.READY, 0), sum(dataset["counts"].values())
    line = f"{ready} of {total} READY" if total else "no chunks"
    if dataset["more"]:
        line = f"more than {number(total - 1)} chunks"
    return Box("dataset", dataset["dataset"], _short(dataset["dataset"]), _state(dataset["counts"]), line, (), x, y)


def _state(counts: Row) -> str:
    """Return the status that a person has to know first."""
    for status in (
        ChunkStatus.FAILED,
        ChunkStatus.PENDING,
        ChunkStatus.HOLD,
        ChunkStatus.RUNNING,
        ChunkStatus.RESUBMIT,
    ):
        if counts.get(status):
            return status
    return ChunkStatus.DECLARED if counts.get(ChunkStatus.DECLARED) or not counts else ChunkStatus.READY


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"


def _corner(place: Place) -> tuple[int, int]:
    return _MARGIN + place.layer * _COLUMN, _MARGIN + place.row * _ROW


def _path(places: Sequence[Place]) -> str:
    """Return a curve from the first box, which covers its beginning, through all bends to the last one."""
    points, middle = [_left_side(place) for place in places], (_COLUMN - WIDTH) // 2
    pieces = [f"M{points[0][0]} {points[0][1]}"]
    for (x, y), (to_x, to_y) in pairwise(points):  # straight through a layer, then a curve to the next one
        pieces.append(f"H{x + WIDTH}C{x + WIDTH + middle} {y} {to_x - middle} {to_y} {to_x} {to_y}")
    return "".join(pieces)


def _left_side(place: Place) -> tuple[int, int]:
    x, y = _corner(place)
    return x, y + HEIGHT // 2
