"""Nodes of a graph are placed so that every edge leads to the right, and nothing covers anything."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.status.graph_layout import Place, lay_out

NODES = [chr(ord("a") + number) for number in range(9)]
EDGES = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda edge: edge[0] < edge[1]))
ANY = st.lists(st.tuples(st.sampled_from([*NODES, "unknown"]), st.sampled_from(NODES)))


@given(EDGES)
def test_the_layer_of_a_node_is_the_length_of_the_longest_path_to_it(edges: list[tuple[str, str]]) -> None:
    layout = lay_out(NODES, edges)
    longest = dict.fromkeys(NODES, 0)
    for node in NODES:  # every edge leads to a later letter
        longest[node] = max((longest[one] + 1 for one, other in edges if other == node), default=0)
    assert {node: place.layer for node, place in layout.nodes.items()} == longest
    assert layout.layers == max(longest.values()) + 1


@given(EDGES)
def test_no_two_boxes_or_bends_are_at_one_place(edges: list[tuple[str, str]]) -> None:
    layout = lay_out(NODES, edges)
    bends = [place for line in layout.edges.values() for place in line[1:-1]]
    counted = Counter([*layout.nodes.values(), *bends])
    assert max(counted.values()) == 1
    assert all(0 <= place.row < layout.rows and 0 <= place.layer < layout.layers for place in counted)


@given(ANY)
def test_a_line_passes_every_layer_from_left_to_right_also_where_the_graph_has_cycles(
    edges: list[tuple[str, str]],
) -> None:
    layout = lay_out(NODES, edges)
    assert set(layout.edges) <= set(edges)
    for (one, other), line in layout.edges.items():
        assert (line[0], line[-1]) == (layout.nodes[one], layout.nodes[other])
        assert all(after.layer == before.layer + 1 for before, after in pairwise(line))


@given(EDGES)
def test_the_order_of_the_input_does_not_matter(edges: list[tuple[str, str]]) -> None:
    assert lay_out(NODES, edges) == lay_out(NODES[::-1], edges[::-1])


def test_lines_do_not_cross_where_the_order_of_a_layer_can_prevent_it() -> None:
    layout = lay_out("abxy", [("a", "y"), ("b", "x")])
    rows = {node: place.row for node, place in layout.nodes.items()}
    assert (rows["a"] < rows["b"]) == (rows["y"] < rows["x"])


def test_parts_that_are_not_connected_are_below_each_other() -> None:
    layout = lay_out("abc", [("b", "c")])
    assert layout.nodes == {"b": Place(0, 0), "c": Place(1, 0), "a": Place(0, 1)}
    assert (layout.layers, layout.rows) == (2, 2)


def test_an_empty_graph_has_no_places() -> None:
    layout = lay_out([], [])
    assert (layout.nodes, layout.layers, layout.rows) == ({}, 0, 0)
