"""What a run sees: the old framework's names and ours, values untouched, nothing set twice."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.runs.environment import JobFacts, RunFacts, check_names, context, environment
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.names import API_VERSION, shell_name

RUN = RunFacts(run=42, data_id="2.0", attempt=2, fence=7)
LOADBOB = JobFacts("loadbob", "./loadbob.sh", ("bobin",), ("bobout",))
BOBIN = DataSetFacts(
    id="bobin",
    hostname="h1",
    database="d1",
    schemaname="s1",
    tablename="t1",
    username="u1",
    encryptedpass="lmibu",
)
BOB = {"bobin": BOBIN, "bobout": DataSetFacts("bobout")}


def job(
    inputs: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> JobFacts:
    return JobFacts("j", "./j.sh", inputs, outputs, env or {})


def test_a_run_has_exactly_these_variables() -> None:
    assert environment(LOADBOB, RUN, BOB) == {
        "dataid": "2.0",
        "jobid": "loadbob",
        "cmd": "./loadbob.sh",
        "bobin_datasetid": "bobin",
        "bobin_itemtype": "IN",
        "bobin_hostname": "h1",
        "bobin_database": "d1",
        "bobin_schemaname": "s1",
        "bobin_tablename": "t1",
        "bobin_username": "u1",
        "bobin_encryptedpass": "lmibu",
        "bobout_datasetid": "bobout",
        "bobout_itemtype": "OUT",
        "DATAFLOW_JOB": "loadbob",
        "DATAFLOW_DATA_ID": "2.0",
        "DATAFLOW_RUN_ID": "42",
        "DATAFLOW_ATTEMPT": "2",
        "DATAFLOW_FENCE": "7",
        "DATAFLOW_CONTEXT": "{run_folder}/context.json",
    }


def test_the_namespace_is_there_where_the_job_has_one() -> None:
    facts = JobFacts("j", "./j.sh", (), (), namespace="team")
    assert environment(facts, RUN, {})["DATAFLOW_NAMESPACE"] == "team"


def test_env_items_of_the_job_are_delivered() -> None:
    assert environment(job(env={"MODE": "full"}), RUN, {})["MODE"] == "full"


def test_letters_that_a_shell_name_can_not_have_become_underscores_but_the_id_stays() -> None:
    variables = environment(job(inputs=("1-flüge.eu",)), RUN, {"1-flüge.eu": DataSetFacts("1-flüge.eu")})
    assert variables["_1_fl_ge_eu_datasetid"] == "1-flüge.eu"


def test_an_empty_column_sets_an_empty_variable_and_a_null_one_sets_none() -> None:
    variables = environment(job(inputs=("d",)), RUN, {"d": DataSetFacts("d", hostname="", database=None)})
    assert variables["d_hostname"] == ""
    assert "d_database" not in variables


def test_a_data_set_that_is_not_declared_is_named() -> None:
    with pytest.raises(UnknownThing) as caught:
        environment(job(inputs=("nope",)), RUN, {})
    assert str(caught.value) == "job j: there is no data set nope; declare it as a DataSet"


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            job(inputs=("a-b",), outputs=("a_b",)),
            (
                "the data set a-b and the data set a_b both set the variable a_b_datasetid; "
                "give one of them another id or alias"
            ),
        ),
        (
            job(inputs=("1a", "_1a")),
            (
                "the data set 1a and the data set _1a both set the variable _1a_datasetid; "
                "give one of them another id or alias"
            ),
        ),
        (
            job(env={"dataid": "x"}),
            "the framework and the env item dataid both set the variable dataid; rename the env item",
        ),
        (
            job(env={"DATAFLOW_NAMESPACE": "x"}),
            (
                "the framework and the env item DATAFLOW_NAMESPACE both set the variable DATAFLOW_NAMESPACE; "
                "rename the env item"
            ),
        ),
        (
            job(env={"DATAFLOW_HOME": "x"}),
            ("the names DATAFLOW_* are the framework's, also that of the env item DATAFLOW_HOME; rename the env item"),
        ),
        (
            job(inputs=("a-b",), env={"a_b_hostname": "x"}),
            ("the data set a-b and the env item a_b_hostname both set the variable a_b_hostname; rename the env item"),
        ),
        (
            job(inputs=("d",), env={"d_password": "x"}),
            ("the data set d and the env item d_password both set the variable d_password; rename the env item"),
        ),
        (
            job(env={"a=b": "x"}),
            "the env item a=b has a name that no shell can have; use letters, digits and _ only",
        ),
    ],
)
def test_two_things_that_set_one_variable_are_refused(facts: JobFacts, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_names(facts)
    assert str(caught.value) == f"job j: {sentence}"


def test_a_run_refuses_what_the_check_refuses() -> None:
    with pytest.raises(InvalidInput, match="rename the env item"):
        environment(job(env={"cmd": "x"}), RUN, {})


ids = st.text(alphabet="ab-_.1é", min_size=1, max_size=4)
items = st.sampled_from(["dataid", "cmd", "DATAFLOW_JOB", "a_b_hostname", "a__database", "_1_itemtype", "MODE"])
values = st.text()


@given(
    inputs=st.lists(ids, unique=True, max_size=3),
    outputs=st.lists(ids, unique=True, max_size=3),
    env=st.dictionaries(items, values, max_size=3),
    value=values,
    data_id=values,
)
def test_either_every_value_arrives_untouched_or_the_job_is_refused(
    inputs: list[str], outputs: list[str], env: dict[str, str], value: str, data_id: str
) -> None:
    facts = job(tuple(inputs), tuple(outputs), env)
    datasets = {name: DataSetFacts(name, hostname=value, tablename=value) for name in [*inputs, *outputs]}
    wanted = [("dataid", data_id), ("cmd", "./j.sh"), ("DATAFLOW_JOB", "j"), *env.items()]
    for name in [*inputs, *outputs]:
        prefix = shell_name(name)
        wanted += [
            (f"{prefix}_datasetid", name),
            (f"{prefix}_hostname", value),
            (f"{prefix}_tablename", value),
        ]
    try:
        variables = environment(facts, RunFacts(1, data_id, 1, 1), datasets)
    except InvalidInput:
        return
    assert len(dict(wanted)) == len(wanted)
    assert dict(wanted).items() <= variables.items()


@given(inputs=st.lists(ids, unique=True, max_size=4))
def test_ids_with_different_shell_names_are_never_refused(inputs: list[str]) -> None:
    if len({shell_name(name) for name in inputs}) == len(inputs):
        check_names(job(tuple(inputs)))


# The context file ----------------------------------------------------------------------------------------


def test_the_context_has_the_job_the_run_and_every_data_set() -> None:
    facts = DataSetFacts("in", kind="table", hostname="h", url="s3://b", format="csv", options={"header": "true"})
    bounds = {"in": {"from": "2013-01-01", "to": "2013-02-01"}}
    written = context(job(("in",), ("out",)), RUN, {"in": facts, "out": DataSetFacts("out")}, bounds)
    nothing = dict.fromkeys(["hostname", "database", "schemaname", "tablename", "username", "url", "format"])
    assert json.loads(json.dumps(written)) == {
        "job": "j",
        "data_id": "2.0",
        "run_id": 42,
        "attempt": 2,
        "fence": 7,
        "namespace": None,
        "datasets": {
            "in": {
                **nothing,
                "id": "in",
                "itemtype": "IN",
                "kind": "table",
                "hostname": "h",
                "url": "s3://b",
                "format": "csv",
                "options": {"header": "true"},
                "bounds": {"from": "2013-01-01", "to": "2013-02-01"},
            },
            "out": {**nothing, "id": "out", "itemtype": "OUT", "kind": None, "options": {}, "bounds": None},
        },
    }


def test_the_context_holds_no_ciphertext() -> None:
    assert "lmibu" not in json.dumps(context(LOADBOB, RUN, BOB, {}))


# From what is written ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "program"),
    [({"script": {"command": ["./x.sh", "one"]}}, "./x.sh"), ({"spark": {"main": "etl.py"}}, "etl.py")],
)
def test_cmd_is_the_program_without_its_arguments(runtime: dict[str, object], program: str) -> None:
    written = DataFlowJob.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "DataFlowJob",
            "metadata": {"name": "j", "namespace": "team"},
            "spec": {"inputs": ["a"], "outputs": ["b"], "runtime": runtime, "env": {"MODE": "full"}},
        }
    )
    assert JobFacts.of(written) == JobFacts("j", program, ("a",), ("b",), {"MODE": "full"}, "team")
