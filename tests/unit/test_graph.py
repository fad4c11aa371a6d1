"""Declared jobs and data sets fit together, or the sentence says which do not."""

import pytest

from opendataflow.core.runs.graph import JobLinks, check_graph
from opendataflow.errors import InvalidInput


def links(id_: str, inputs: str = "", outputs: str = "") -> JobLinks:
    return JobLinks(id_, tuple(inputs.split()), tuple(outputs.split()))


def refusal(*jobs: JobLinks, datasets: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        check_graph(jobs, datasets.split())
    return str(caught.value)


def test_a_diamond_is_fine() -> None:
    check_graph(
        [
            links("extract", "", "raw"),
            links("left", "raw", "l"),
            links("right", "raw", "r"),
            links("join", "l r", "out"),
        ],
        {"raw", "l", "r", "out"},
    )


def test_many_jobs_may_read_what_no_job_makes() -> None:
    check_graph([links("a", "x"), links("b", "x")], ["x"])


def test_a_chain_of_thousands_is_fine() -> None:
    chain = [links(f"j{n}", f"d{n}", f"d{n + 1}") for n in range(3000)]
    check_graph(chain, {f"d{n}" for n in range(3001)})


def test_an_unknown_input_is_named_with_its_place_and_a_guess() -> None:
    assert refusal(links("delays", "airports flihgts"), datasets="flights airports") == (
        "job delays: spec.inputs[1]: there is no data set flihgts; did you mean flights?"
    )


def test_an_unknown_output_without_a_guess_asks_for_its_declaration() -> None:
    assert refusal(links("delays", "", "zzz"), datasets="flights") == (
        "job delays: spec.outputs[0]: there is no data set zzz; declare it as a DataSet"
    )


def test_a_second_producer_is_refused_by_name() -> None:
    assert refusal(links("b", "", "x"), links("a", "", "x"), datasets="x") == (
        "job b: spec.outputs: the data set x is made by the job a already; one job makes a data set; "
        "after a rename, delete the job with the old name first: dataflow delete JOB "
        "(on a cluster, delete its DataFlowJob)"
    )


def test_all_unknown_data_sets_and_producers_are_reported_at_once() -> None:
    message = refusal(links("a", "nope", "x"), links("b", "nada", "x"), datasets="x")
    assert len(message.splitlines()) == 3


def test_a_cycle_is_named_by_its_path_and_the_data_sets_between() -> None:
    assert refusal(links("b", "x", "y"), links("a", "y", "x"), datasets="x y") == (
        "the jobs wait for each other: a -> b -> a (b reads x of a, a reads y of b); remove one of these inputs"
    )


def test_only_the_jobs_of_the_cycle_are_named() -> None:
    message = refusal(
        links("first", "", "start"),
        links("c", "start q", "r"),
        links("d", "r", "s"),
        links("e", "s", "q"),
        links("last", "r", "end"),
        datasets="start q r s end",
    )
    assert message == (
        "the jobs wait for each other: c -> d -> e -> c (d reads r of c, e reads s of d, c reads q of e); "
        "remove one of these inputs"
    )


def test_the_path_begins_at_the_first_job_of_the_alphabet_wherever_it_is_found() -> None:
    message = refusal(links("a", "zz"), links("m", "zz", "mm"), links("z", "mm", "zz"), datasets="mm zz")
    assert message == (
        "the jobs wait for each other: m -> z -> m (z reads mm of m, m reads zz of z); remove one of these inputs"
    )


def test_a_job_that_reads_what_it_makes_is_a_cycle() -> None:
    assert refusal(links("a", "x", "x"), datasets="x") == (
        "the jobs wait for each other: a -> a (a reads x of a); remove one of these inputs"
    )
