"""What a run executes: arguments untouched, files for its folder, paths from the job file's folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.pipelines.pipeline_order import LocalFacts
from opendataflow.core.runs.command import SPARK_DEFAULTS, command, spark_defaults
from opendataflow.core.runs.environment import CONTEXT_FILE
from opendataflow.core.runs.wrapped import wrapped_order
from opendataflow.core.text.project_tests import subject_of
from opendataflow.engine.orders import FileOrders
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command, Host
from opendataflow.model.resources.api import DataFlowJob, Spark
from opendataflow.names import API_VERSION
from tests.pods import NONCE

FOLDER = Path("/jobs/flights")
PYTHON = "/venv/bin/python"
RUN = ClaimedRun(
    run=7,
    job="load",
    data_id="2013-02",
    fence=42,
    attempt=2,
    attempts=1,
    infrastructure_attempts=0,
    bounds={"flights": {"from": "2013-02-01", "to": "2013-03-01"}},
    lease="lease",
    host=Host("h", "b"),
    runs_home="/runs",
    nonce=NONCE,
)
DATASETS = {
    "flights": DataSetFacts("flights", url="data/flüge", options={"sep": ";"}, encryptedpass="lmibu"),
    "delays": DataSetFacts("delays"),
}


def job_of_spec(**spec: Any) -> DataFlowJob:
    whole = {"inputs": ["flights"], "outputs": ["delays"], "runtime": {"script": {"command": ["x"]}}, **spec}
    return DataFlowJob.model_validate(
        {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "load"}, "spec": whole}
    )


def made(runtime: dict[str, Any], **spec: Any) -> Command:
    return command(job_of_spec(runtime=runtime, **spec), RUN, DATASETS, FOLDER, PYTHON, LocalFacts(FOLDER / "clones"))


def script(*argv: str, **more: str) -> Command:
    return made({"script": {"command": list(argv), **more}})


def test_a_script_gets_its_arguments_as_they_are_written() -> None:
    argv = ("./load.sh", "$HOME", "$(date)", "a b", "'\"", "", "*", "{run_folder}")
    assert script(*argv).argv == argv


def test_the_args_of_a_script_follow_its_command() -> None:
    assert made({"script": {"command": ["./load.sh", "a"], "args": ["b"]}}).argv == ("./load.sh", "a", "b")


def test_a_script_starts_in_the_folder_of_its_file() -> None:
    assert script("./load.sh").cwd == FOLDER


def test_a_working_directory_is_relative_to_the_folder_of_the_file() -> None:
    assert script("./load.sh", workingDirectory="bin").cwd == FOLDER / "bin"
    assert script("./load.sh", workingDirectory="/srv").cwd == Path("/srv")


def test_a_run_has_the_variables_of_its_chunk_and_its_job() -> None:
    env = made({"script": {"command": ["./load.sh"]}}, env={"MODE": "full"}).env
    assert (env["dataid"], env["jobid"], env["cmd"], env["MODE"]) == ("2013-02", "load", "./load.sh", "full")
    assert (env["DATAFLOW_RUN_ID"], env["DATAFLOW_ATTEMPT"], env["DATAFLOW_FENCE"]) == ("7", "2", "42")
    assert env["flights_encryptedpass"] == "lmibu"


def test_the_context_file_contains_the_chunk_with_its_bounds() -> None:
    context = json.loads(script("./load.sh").files["context.json"])
    assert (context["job"], context["data_id"], context["run_id"], context["fence"]) == ("load", "2013-02", 7, 42)
    assert context["datasets"]["flights"]["bounds"] == {"from": "2013-02-01", "to": "2013-03-01"}
    assert context["datasets"]["delays"]["bounds"] is None


def test_the_context_file_can_be_read_by_people_and_holds_no_password() -> None:
    text = script("./load.sh").files["context.json"]
    assert "data/flüge" in text
    assert "lmibu" not in text


def test_a_script_has_no_file_but_the_context() -> None:
    assert set(script("./load.sh").files) == {"context.json"}


def test_a_spark_program_is_started_by_the_interpreter_from_the_folder_of_the_file() -> None:
    spark = made({"spark": {"main": "delays.py", "args": ["--day", "$x"]}})
    assert spark.argv == (PYTHON, "/jobs/flights/delays.py", "--day", "$x")
    assert spark.cwd == FOLDER
    assert spark.env["cmd"] == "delays.py"


def test_a_spark_program_finds_its_properties_and_its_interpreter_by_itself() -> None:
    spark = made({"spark": {"main": "delays.py"}})
    assert spark.env["SPARK_CONF_DIR"] == "{run_folder}"
    assert spark.env["PYSPARK_PYTHON"] == spark.env["PYSPARK_DRIVER_PYTHON"] == PYTHON
    assert set(spark.files) == {"context.json", "spark-defaults.conf"}


def properties(spark: Spark) -> dict[str, str]:
    return parse_properties(spark_defaults(spark, FOLDER))


def parse_properties(text: str) -> dict[str, str]:
    """Read as java.util.Properties does."""
    found = {}
    for line in text.split("\n"):
        parts, escaped, blank = ["", ""], False, 0
        for letter in line:
            if escaped:
                parts[blank] += {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(letter, letter)
            elif letter != "\\":
                assert letter not in "\r\t\f=:#!"
                if letter == " " and blank == 0:
                    blank = 1
                    continue
                assert letter != " "
                parts[blank] += letter
            escaped = letter == "\\" and not escaped
        if line:
            found[parts[0]] = parts[1]
    return found


def test_spark_runs_on_as_many_cores_and_as_much_memory_as_is_written() -> None:
    found = properties(Spark(main="x.py", cores=3, memory="2g"))
    assert found["spark.master"] == "local[3]"
    assert found["spark.driver.memory"] == "2g"


def test_a_run_opens_no_web_page_unless_the_user_wants_one() -> None:
    assert properties(Spark(main="x.py"))["spark.ui.enabled"] == "false"
    assert properties(Spark(main="x.py", conf={"spark.ui.enabled": "true"}))["spark.ui.enabled"] == "true"


def test_the_users_properties_count_more_than_ours() -> None:
    assert properties(Spark(main="x.py", conf={"spark.master": "local[1]"}))["spark.master"] == "local[1]"


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
keys = words.filter(lambda key: not key.casefold().endswith(("password", "passwd", "secret", "token")))  # refused
values = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.dictionaries(keys, values))
def test_every_property_reaches_spark_as_it_is_written(conf: dict[str, str]) -> None:
    found = properties(Spark(main="x.py", conf=conf))
    assert {key: found[key] for key in conf} == conf


def test_a_driver_on_one_machine_asks_nobody_for_its_address_unless_other_machines_take_part() -> None:
    found = properties(Spark(main="x.py"))
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert made({"spark": {"main": "x.py"}}).env["SPARK_LOCAL_IP"] == "127.0.0.1"
    remote = {"spark.master": "spark://h:7077"}
    assert "spark.driver.host" not in properties(Spark(main="x.py", conf=remote))
    assert "SPARK_LOCAL_IP" not in made({"spark": {"main": "x.py", "conf": remote}}).env


def test_what_a_program_needs_is_relative_to_the_file_unless_spark_fetches_it() -> None:
    written = {
        "mainApplicationFile": "local:///app/x.py",
        "pyFiles": ["lib/common.py", "zips/more.zip", "s3a://b/y.py"],
        "deps": {"jars": ["pg.jar", "https://h/a.jar"], "files": ["/etc/a.txt"], "packages": ["a:b:1", "c:d:2"]},
    }
    spark = made({"spark": written})
    found = parse_properties(spark.files["spark-defaults.conf"])
    assert spark.argv == (PYTHON, "/app/x.py")
    assert spark.env["PYTHONPATH"] == f"{FOLDER}/lib:{FOLDER}/zips/more.zip"
    assert found["spark.submit.pyFiles"] == f"{FOLDER}/lib/common.py,{FOLDER}/zips/more.zip,s3a://b/y.py"
    assert found["spark.jars"] == f"{FOLDER}/pg.jar,https://h/a.jar"
    assert found["spark.files"] == "/etc/a.txt"
    assert found["spark.jars.packages"] == "a:b:1,c:d:2"


def test_executors_mean_nothing_on_one_machine() -> None:
    written = {"main": "x.py", "driver": {"cores": 2}, "executor": {"instances": 5}}
    found = parse_properties(made({"spark": written}).files["spark-defaults.conf"])
    assert found["spark.master"] == "local[2]"
    assert not [key for key in found if key.startswith("spark.executor")]


def test_a_wrapped_script_of_a_namespace_sees_ids_without_it() -> None:
    rows = [
        {**vars(facts), "id": f"team-a/{name}", "itemtype": role}
        for (name, facts), role in zip(DATASETS.items(), ("IN", "OUT"), strict=True)
    ]
    declared = DeclaredJob({"id": "team-a/load", "env": {}, "run_deadline": None}, tuple(rows))
    run = replace(RUN, job="team-a/load", bounds={"team-a/flights": RUN.bounds["flights"]})
    order = wrapped_order(run, declared, ("./load.sh",), FOLDER, {}, program="./load.sh", literal=True)
    assert order.command.env["jobid"] == order.command.env["DATAFLOW_JOB"] == "load"
    assert order.command.env["flights_datasetid"] == "flights"
    context = json.loads(order.command.files[CONTEXT_FILE])
    assert context["datasets"]["flights"]["bounds"] == RUN.bounds["flights"]
    assert order.name == "load-r7"


def test_a_run_of_a_file_sees_its_inputs_of_namespaces_under_their_ids_and_aliases() -> None:
    job = job_of_spec(inputs=["team-a/flights", "flights"], outputs=["delays"], aliases={"theirs": "team-a/flights"})
    rows = [
        {**vars(DATASETS["flights"]), "id": key, "url": key, "itemtype": "IN"} for key in ("team-a/flights", "flights")
    ]
    rows.append({**vars(DATASETS["delays"]), "itemtype": "OUT"})
    declared = DeclaredJob({"tests": None}, tuple(rows))
    orders = FileOrders(job, FOLDER, PYTHON, FOLDER / "clones")
    assert orders.matches(declared)
    context = json.loads(orders(RUN, declared).command.files[CONTEXT_FILE])
    assert {name: one["url"] for name, one in context["datasets"].items()} == {
        "theirs": "team-a/flights",
        "flights": "flights",
        "delays": None,
    }


def pipeline(**more: Any) -> dict[str, Any]:
    return {"pipeline": {"project": {"path": "project"}, "pipeline": "p", **more}}


def test_runs_of_a_pipeline_share_a_jvm_unless_the_job_forbids_it_or_its_settings_name_variables() -> None:
    assert made(pipeline(warm={"enabled": False})).holder is None
    assert made(pipeline(sparkConf={"spark.a": "${env.dataid}"})).holder is None
    holder = made(pipeline()).holder
    assert holder is not None
    assert holder == made(pipeline(warm={})).holder
    assert not holder.is_heard
    assert (holder.most_runs, holder.longest_idle, holder.longest_age) == (200, 60, 3600)


def test_runs_of_a_program_share_a_jvm_only_on_request_and_the_program_is_run_by_ours() -> None:
    program = {"main": "program.py", "args": ["a"]}
    own, cold = made({"spark": program}), made({"spark": {**program, "warm": {"enabled": False}}})
    assert own == cold
    assert (own.argv, own.holder) == ((PYTHON, "/jobs/flights/program.py", "a"), None)
    shared = made({"spark": {**program, "warm": {"maxChunks": 5}}})
    assert shared.argv == (PYTHON, "-P", "-m", "opendataflow.spark.shared.program", "/jobs/flights/program.py", "a")
    assert shared.holder is not None
    assert (shared.holder.most_runs, shared.holder.is_heard) == (5, True)
    assert shared.holder.command.files[SPARK_DEFAULTS] == own.files[SPARK_DEFAULTS]


def test_a_shared_jvm_knows_nothing_of_a_chunk_and_has_the_settings_of_the_job() -> None:
    own = made(pipeline(warm={}, sparkConf={"spark.a": "b"}), env={"REGION": "north"})
    assert own.holder is not None
    holder = own.holder.command
    assert holder.files[SPARK_DEFAULTS] == own.files[SPARK_DEFAULTS]
    assert CONTEXT_FILE not in holder.files
    assert RUN.data_id not in repr(holder)
    assert holder.env["SPARK_CONF_DIR"] == "{run_folder}"
    assert holder.env["REGION"] == "north"
    assert {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "REGION", "SPARK_CONF_DIR"} == {*holder.env}


def test_runs_of_one_declaration_share_a_jvm_whatever_is_known_of_tests_and_other_declarations_do_not() -> None:
    job = job_of_spec(runtime=pipeline(warm={}, requireTests=True))
    subject = subject_of(job.spec.runtime.pipeline)
    tested = LocalFacts(FOLDER / "clones", {"subject": subject, "passed": "c", "failed": None, "failure": None})
    later = replace(RUN, run=8, data_id="2013-03")
    one = command(job, RUN, DATASETS, FOLDER, PYTHON, LocalFacts(FOLDER / "clones")).holder
    assert command(job, later, DATASETS, FOLDER, PYTHON, tested).holder == one
    for changed in (
        {"warm": {"maxChunks": 3}},
        {"warm": {}, "sparkConf": {"spark.a": "b"}},
        {"warm": {}, "driver": {"memory": "2g"}},
        {"warm": {}, "project": {"path": "other"}},
    ):
        assert made(pipeline(**{"requireTests": True, **changed})).holder not in (one, None)
