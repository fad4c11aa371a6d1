"""Keys of data sets and jobs: ids belong to namespaces, and people see their own without the namespace."""

import pytest

from opendataflow.core.runs.declared import dataset_row, job_row
from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.graph import JobLinks, check_graph
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.keys import bare, input_key, key_of, namespace_of, seen_from, sentence_seen_from
from opendataflow.model.resources.jobfile import parse_job_file
from opendataflow.model.resources.jobs import DataFlowJob

HEAD = "apiVersion: opendataflow.io/v1alpha1\n"


def job(spec: str, name: str = "load") -> DataFlowJob:
    runtime = "runtime: {script: {command: [x]}}"
    text = f"{HEAD}kind: DataFlowJob\nmetadata: {{name: {name}}}\nspec: {{{spec}, {runtime}}}\n"
    (made,) = parse_job_file(text, "f.yaml").jobs
    return made


@pytest.mark.parametrize(("namespace", "id_", "key"), [("", "raw", "raw"), ("team-a", "raw", "team-a/raw")])
def test_a_key_has_a_namespace_and_an_id(namespace: str, id_: str, key: str) -> None:
    assert key_of(namespace, id_) == key
    assert (namespace_of(key), bare(key)) == (namespace, id_)


@pytest.mark.parametrize(("written", "key"), [("raw", "team-b/raw"), ("team-a/raw", "team-a/raw"), ("today", "today")])
def test_an_input_without_a_namespace_is_of_the_job_s_own(written: str, key: str) -> None:
    assert input_key("team-b", written) == key
    assert input_key("", written) == written


def test_people_see_their_own_ids_without_the_namespace() -> None:
    assert seen_from("team-a", "team-a/raw") == "raw"
    assert seen_from("team-a", "team-ab/raw") == "team-ab/raw"
    assert seen_from("", "team-a/raw") == "team-a/raw"
    sentence = "job team-a/load can't use team-b/team-a/x 'team-a/raw' (team-a/out)"
    assert sentence_seen_from("team-a", sentence) == "job load can't use team-b/team-a/x 'raw' (out)"
    assert sentence_seen_from("team-a", sentence, ["team-a/load"]) == sentence.replace("team-a/load", "load")
    assert sentence_seen_from("", sentence) == sentence


def test_the_rows_of_resources_have_keys_and_those_of_files_have_ids() -> None:
    made = job("inputs: [raw, team-a/other, today], outputs: [out]")
    row = job_row(made, "team-b")
    assert row["id"] == "team-b/load"
    assert row["inputs"] == ["team-b/raw", "team-a/other", "today"]
    assert row["outputs"] == ["team-b/out"]
    assert job_row(made)["inputs"] == ["raw", "team-a/other", "today"]
    (data,) = parse_job_file(f"{HEAD}kind: DataSet\nmetadata: {{name: raw}}\n", "f.yaml").datasets
    assert (dataset_row(data, "team-b")["id"], dataset_row(data)["id"]) == ("team-b/raw", "raw")


def test_runs_see_ids_without_the_namespace_or_their_aliases() -> None:
    facts = JobFacts.of(job("inputs: [team-a/raw, raw], outputs: [out], aliases: {raw_a: team-a/raw}"))
    assert (facts.id, facts.inputs, facts.outputs) == ("load", ("raw_a", "raw"), ("out",))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "inputs: [raw, team-a/raw]",
            "team-a/raw and raw have the same name in runs; give one that is read another name by aliases: {NAME: team",
        ),
        ("inputs: [team-a/out], outputs: [out]", "team-a/out and out have the same name in runs"),
        ("inputs: [team-a/raw], aliases: {a: team-a/other}", "team-a/other is not in inputs; write it as it is there"),
        ("inputs: [team-a/raw], aliases: {a/b: team-a/raw}", "an alias has letters, digits"),
        ("outputs: [team-a/raw]", "an id has no /"),
        ("inputs: [raw], id: a/b", "an id has no /"),
        ("inputs: [a/b/c]", "a data set is written as its id, or as namespace/id"),
    ],
)
def test_ids_that_no_run_or_no_namespace_could_have_are_refused(spec: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(spec)
    assert sentence in str(refused.value)


def test_a_name_with_a_slash_is_no_id() -> None:
    with pytest.raises(InvalidInput, match="an id has no /"):
        job("inputs: [raw]", name="a/b")


def test_one_data_set_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidInput, match="job load: the data set raw is named twice, also as team-a/raw"):
        job_row(job("inputs: [raw, team-a/raw], aliases: {again: team-a/raw}"), "team-a")


def test_no_job_of_a_namespace_makes_the_built_in_data_set() -> None:
    with pytest.raises(InvalidInput, match="today is built in") as refused:
        check_graph([JobLinks("team-a/j", (), ("team-a/today",))], ())
    assert "there is no data set" not in str(refused.value)


def test_no_sentence_names_a_data_set_of_another_namespace_that_the_job_did_not_write() -> None:
    known = {"team-a/secret", "team-b/own"}
    with pytest.raises(UnknownThing) as own:
        check_graph([JobLinks("team-b/j", ("team-b/owm",), ())], known)
    assert "did you mean team-b/own?" in str(own.value)
    with pytest.raises(UnknownThing) as other:
        check_graph([JobLinks("team-b/j", ("team-a/secre", "team-b/secret"), ())], known)
    assert "team-a/secret" not in str(other.value)
