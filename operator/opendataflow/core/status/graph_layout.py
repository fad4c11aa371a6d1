"""Place the nodes of an acyclic graph in layers, for a drawing. Pure.

The layer of a node is the length of the longest path that ends at the node, so that every edge leads to a later layer.
An edge over several layers gets a bend in each of them. Parts that are not connected are placed one below the other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 4
"""How often the order within the layers is improved. More sweeps change hardly anything."""

_Bend = tuple[str, str, int]
"""Where an edge crosses a layer: its ends, and the layer."""
_Spot = str | _Bend


@dataclass(frozen=True)
class Place:
    """Where a node is: its layer, and its row in the drawing."""

    layer: int
    row: int


@dataclass(frozen=True)
class Layout:
    """The places of all nodes, and for each edge the places that its line passes, with both ends."""

    nodes: Mapping[str, Place]
    edges: Mapping[tuple[str, str], tuple[Place, ...]]
    layers: int
    rows: int


def lay_out(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> Layout:
    """Return the layout of a graph. Edges to unknown nodes are left out, and so is one edge of each cycle."""
    names = sorted(set(nodes))
    known = set(names)
    wanted = sorted({(one, other) for one, other in edges if one in known and other in known})
    layer = _layers(names, wanted)
    drawn = [edge for edge in wanted if layer[edge[0]] < layer[edge[1]]]
    places: dict[_Spot, Place] = {}
    first_row = 0
    for part in _connected(names, drawn):
        rows = _place(part, [edge for edge in drawn if edge[0] in part], layer, first_row, places)
        first_row += rows
    lines = {edge: tuple(places[spot] for spot in _path(edge, layer)) for edge in drawn}
    found = {name: places[name] for name in names}
    return Layout(found, lines, max(layer.values(), default=-1) + 1, first_row)


def _layers(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the length of the longest path to each node. A cycle is cut at its first node."""
    readers, missing = defaultdict(list), dict.fromkeys(names, 0)
    for one, other in edges:
        readers[one].append(other)
        missing[other] += 1
    layer = dict.fromkeys(names, 0)
    open_nodes, ready = set(names), [name for name in names if not missing[name]]
    while open_nodes:
        if not ready:  # a cycle
            ready = [min(open_nodes)]
        name = ready.pop()
        if name not in open_nodes:
            continue
        open_nodes.remove(name)
        for other in readers[name]:
            if other in open_nodes:
                layer[other] = max(layer[other], layer[name] + 1)
                missing[other] -= 1
                if not missing[other]:
                    ready.append(other)
    return layer


def _connected(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> Iterator[set[str]]:
    """Yield the parts of the graph that are connected, the largest first."""
    near = defaultdict(set)
    for one, other in edges:
        near[one].add(other)
        near[other].add(one)
    parts, seen = [], set[str]()
    for name in names:
        if name in seen:
            continue
        part, found = {name}, [name]
        while found:
            new = near[found.pop()] - part
            part |= new
            found += new
        seen |= part
        parts.append(part)
    yield from sorted(parts, key=lambda part: (-len(part), min(part)))


def _path(edge: tuple[str, str], layer: Mapping[str, int]) -> list[_Spot]:
    one, other = edge
    return [one, *((one, other, at) for at in range(layer[one] + 1, layer[other])), other]


def _place(
    part: set[str],
    edges: Sequence[tuple[str, str]],
    layer: Mapping[str, int],
    first_row: int,
    places: dict[_Spot, Place],
) -> int:
    """Place one part from a row on, and return how many rows it needs."""
    columns: dict[int, list[_Spot]] = defaultdict(list)
    for name in sorted(part):
        columns[layer[name]].append(name)
    before, after = defaultdict(list), defaultdict(list)
    for edge in edges:
        path = _path(edge, layer)
        for number, spot in enumerate(path[1:-1], layer[edge[0]] + 1):
            columns[number].append(spot)
        for one, other in pairwise(path):
            after[one].append(other)
            before[other].append(one)
    order = sorted(columns)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        row = _rows(columns)
        for number in order if forward else reversed(order):
            near = before if forward else after
            columns[number].sort(key=lambda spot: _mean([row[it] for it in near[spot]], row[spot]))  # used at once
            row.update({spot: float(at) for at, spot in enumerate(columns[number])})
    height = max(len(column) for column in columns.values())
    for number, column in columns.items():
        top = first_row + (height - len(column)) // 2
        places.update({spot: Place(number, top + at) for at, spot in enumerate(column)})
    return height


def _rows(columns: Mapping[int, Sequence[_Spot]]) -> dict[_Spot, float]:
    return {spot: float(at) for column in columns.values() for at, spot in enumerate(column)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
