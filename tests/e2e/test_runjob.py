"""RunJob around an unchanged script: the words, rows and environment that users of the old framework rely on."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from tests.e2e.conftest import Inside, Program, alive
from tests.sql.conftest import Connection
from tests.sql.graph import apply, dataset, job
from tests.waiting import wait_for_file, wait_until

DATE = re.compile(r"^\w{3} \w{3} \d\d [\d:]{8} \S* ?\d{4}: ")
RUNJOB = Path(sys.executable).parent / "RunJob"

JOB = """
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: bobin}
spec:
  location: {hostname: h1, database: d1, schemaname: s1, tablename: t1, username: u1}
  chunkSource: {list: ["2.0", "10.0"]}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: bobout}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: loadbob}
spec:
  inputs: [bobin]
  outputs: [bobout]
  parallelism: 10
  retry: {limit: 0, backoff: {initial: 0s}}
  env: {COLOUR: "it's \\"blue\\" $HOME `x`"}
  runtime: {script: {command: [./loadbob.sh]}}
"""


@pytest.fixture
def folder(tmp_path: Path, dataflow: Program, inside: Inside) -> Path:
    """A folder with the job applied; its script is still to be written."""
    (tmp_path / "job.yaml").write_text(JOB)
    assert inside.ask(dataflow, "apply", "-f", str(tmp_path / "job.yaml")).code == 0
    return tmp_path


def script(folder: Path, text: str) -> None:
    """Write the script that the job is named after."""
    file = folder / "loadbob.sh"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def start(program: Program, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start RunJob for the script."""
    return subprocess.Popen(
        [RUNJOB, "./loadbob.sh", *arguments],
        cwd=folder,
        env=program.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def words(path: Path) -> int:
    """How many words a file has."""
    return len(path.read_text().split()) if path.exists() else 0


def run(program: Program, folder: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Run it to its end; return the exit code, the lines of stdout without their dates, and stderr."""
    process = start(program, folder, *arguments)
    out, err = process.communicate(timeout=300)
    return (
        process.returncode,
        [re.sub(r"^\w{3} \w{3} \d\d [\d:]{8} \S* ?\d{4}: ", "", line) for line in out.splitlines()],
        err,
    )


def outputs(db: Connection) -> dict[str, str]:
    rows = db.execute("SELECT data_id, status FROM opendataflow.chunk WHERE dataset = 'bobout'").fetchall()
    return {row["data_id"]: row["status"] for row in rows}


def test_it_prints_the_words_of_the_old_framework_around_what_the_script_prints(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    script(folder, 'echo "loading $1 $2"')
    code, lines, err = run(dataflow, folder, "one", "two words")
    assert (code, err) == (0, "")
    assert lines == [
        "Launching ./loadbob.sh with dataid 2.0",
        "loading one two words",
        "Job ./loadbob.sh is complete. Updating status",
        "1 rows updated to READY for loadbob and 2.0 1 IN file-local locks released",
    ]
    assert outputs(db) == {"2.0": "READY", "10.0": "DECLARED"}


def test_the_exit_code_of_the_script_is_passed_on_and_its_chunk_is_failed(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    script(folder, "echo no such table >&2; exit 7")
    code, lines, err = run(dataflow, folder)
    assert code == 7
    assert lines[1:] == [
        "Job ./loadbob.sh has failed. Updating status",
        "1 rows updated to FAILED for loadbob and 2.0 1 IN file-local locks released",
    ]
    assert err.startswith("no such table\n")
    assert outputs(db)["2.0"] == "FAILED"


SHAPES = {
    "two outputs": ("inputs: [bobin]\n  outputs: [bobout, second]", "true", "2 rows updated to READY", "1 IN"),
    "two inputs": ("inputs: [bobin, other]\n  outputs: [bobout]", "exit 1", "1 rows updated to FAILED", "2 IN"),
    "no inputs": ("inputs: []\n  outputs: [bobout]", "true", "1 rows updated to READY", "0 IN"),
    "no outputs": ("inputs: [bobin]\n  outputs: []", "exit 1", "0 rows updated to FAILED", "1 IN"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_it_counts_rows_and_locks_as_the_old_framework_did(dataflow: Program, tmp_path: Path, shape: str) -> None:
    links, ending, rows, locks = SHAPES[shape]
    head = "---\napiVersion: opendataflow.io/v1alpha1\nkind: DataSet\n"
    more = (
        f"{head}metadata: {{name: second}}\n{head}metadata: {{name: other}}\nspec: {{chunkSource: {{list: ['2.0']}}}}\n"
    )
    text = JOB.replace("inputs: [bobin]\n  outputs: [bobout]", links)
    text = text.replace("{name: bobout}", "{name: bobout}\nspec: {chunkSource: {list: ['2.0']}}")
    (tmp_path / "job.yaml").write_text(text + more)
    dataflow.run("apply", "-f", str(tmp_path / "job.yaml"))
    script(tmp_path, ending)
    _, lines, _ = run(dataflow, tmp_path)
    assert lines[-1] == f"{rows} for loadbob and 2.0 {locks} file-local locks released"


def test_its_dates_are_those_of_java(dataflow: Program, folder: Path) -> None:
    script(folder, "true")
    process = start(dataflow, folder)
    out, _ = process.communicate(timeout=300)
    assert re.match(
        r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [A-Z+-]\S* \d{4}: Launching ", out
    )


def test_with_nothing_ready_it_says_so_and_why_and_starts_nothing(dataflow: Program, folder: Path) -> None:
    script(folder, "touch was-started")
    dataflow.run("hold", "loadbob", "2.0", "10.0")
    code, lines, err = run(dataflow, folder)
    assert (code, lines) == (75, ["no suitable data available for job. Not running it"])
    assert err == "job loadbob runs 10 at a time: 2 HELD; see: dataflow status loadbob\n"
    assert not (folder / "was-started").exists()
    assert list((dataflow.home / "runs").rglob("*.lock")) == [], "it leaves something behind each time"


def test_the_environment_is_that_of_the_old_framework(dataflow: Program, folder: Path) -> None:
    script(folder, "env -0 > seen")
    run(dataflow, folder)
    seen = dict(item.split("=", 1) for item in (folder / "seen").read_text().split("\0") if item)
    names = ("dataid", "jobid", "cmd", "bobin", "bobout", "COLOUR")
    assert {name: value for name, value in seen.items() if name.startswith(names)} == {
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
        "bobout_datasetid": "bobout",
        "bobout_itemtype": "OUT",
        "COLOUR": 'it\'s "blue" $HOME `x`',
    }
    assert "DATAFLOW_DSN" not in seen


HOSTILE_COLUMNS = {
    "hostname": "h'1\"",
    "database": "$HOME ${IFS} $(id) `id`",
    "schemaname": "two\nlines\n",
    "tablename": "tää漢字🚲 = ; & | > \\",
    "username": "x" * 100_000,
    "encryptedpass": "-n %s \t",
}


def test_columns_and_items_arrive_untouched_whatever_is_in_them(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    columns = ", ".join(f"{column} = %s" for column in HOSTILE_COLUMNS)
    db.execute(f"UPDATE opendataflow.dataset SET {columns} WHERE id = 'bobin'".encode(), (*HOSTILE_COLUMNS.values(),))
    items = {
        "ITEM_EMPTY": "",
        "ITEM_LINES": "a\n\n'b'\"$x`",
        "ITEM_LONG": "ü" * 50_000,
        "IFS": " x",
    }
    for item in items.items():
        db.execute("INSERT INTO opendataflow.job_env VALUES ('loadbob', %s, %s)", item)
    file = folder / "loadbob.sh"
    file.write_text(f"#!{sys.executable} -I\nimport os, json\njson.dump(dict(os.environ), open('seen', 'w'))\n")
    file.chmod(0o755)
    code, _, err = run(dataflow, folder)
    assert (code, err) == (0, "bobin_password is not set: no passkey is given\n")
    seen = json.loads((folder / "seen").read_text())
    assert {column: seen[f"bobin_{column}"] for column in HOSTILE_COLUMNS} == HOSTILE_COLUMNS
    assert {name: seen[name] for name in items} == items


def test_arguments_arrive_untouched(dataflow: Program, folder: Path) -> None:
    script(folder, 'for a in "$@"; do printf "%s\\0" "$a"; done > seen')
    arguments = ("", "two words", "it's", '"', "$HOME", "`x`", "a\nb", "--help", "-n", "*", "ü漢")
    code, _, _ = run(dataflow, folder, *arguments)
    assert code == 0
    assert tuple((folder / "seen").read_text().split("\0")[:-1]) == arguments


def test_several_at_once_take_different_chunks_and_the_third_finds_none(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    script(folder, 'echo "$dataid" >> seen; while [ ! -e stop ]; do sleep 0.05; done')
    running = [start(dataflow, folder), start(dataflow, folder)]
    wait_until(lambda: words(folder / "seen") == 2, "two scripts run")
    code, _, _ = run(dataflow, folder)
    (folder / "stop").touch()
    for process in running:
        process.communicate(timeout=300)
    assert [process.returncode for process in running] == [0, 0]
    assert code == 75
    assert sorted((folder / "seen").read_text().split()) == ["10.0", "2.0"]
    assert outputs(db) == {"2.0": "READY", "10.0": "READY"}


def test_a_reader_that_goes_away_does_not_fail_the_run(dataflow: Program, folder: Path, db: Connection) -> None:
    script(folder, "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; touch done")
    process = start(dataflow, folder)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(300) == 0
    assert process.stderr is not None
    process.stderr.close()
    assert (folder / "done").exists()
    assert outputs(db)["2.0"] == "READY"


def test_after_a_killed_runjob_the_next_one_ends_what_is_left_and_takes_the_chunk(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    script(folder, 'if [ ! -e first ]; then echo $$ > first; sleep 600; fi; echo "$dataid" > second')
    process = start(dataflow, folder)
    wait_until(lambda: words(folder / "first") == 1, "the script runs")
    process.kill()
    process.communicate()
    code, lines, err = run(dataflow, folder)
    assert code == 0
    assert lines[0] == "Launching ./loadbob.sh with dataid 2.0"
    assert "taken over from an engine that has ended" in err
    assert not alive((folder / "first").read_text().strip())
    states = db.execute("SELECT state FROM opendataflow.run ORDER BY id").fetchall()
    assert [row["state"] for row in states] == ["LOST", "SUCCEEDED"]


def test_sigterm_ends_the_script_and_gives_its_chunk_back(dataflow: Program, folder: Path, db: Connection) -> None:
    script(folder, "touch started; sleep 600")
    process = start(dataflow, folder)
    wait_for_file(folder / "started", process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    task = db.execute("SELECT state FROM opendataflow.task WHERE data_id = '2.0'").fetchone()
    assert task == {"state": "RETRYING"}


def test_dataflow_run_takes_the_job_and_the_chunk_that_are_named(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    assert (folder / "job.yaml").exists()
    output = dataflow.run("run", "--job", "loadbob", "--data-id", "10.0", "--", "echo", "--hello")
    assert "Launching echo with dataid 10.0" in output
    assert "\n--hello\n" in output
    assert outputs(db) == {"2.0": "DECLARED", "10.0": "READY"}
    again = dataflow.run("run", "--job", "loadbob", "--data-id", "10.0", "--", "true", code=75)
    assert "10.0 of job loadbob is DONE" in again


def call(program: Program, folder: Path, *arguments: str, runjob: Path = RUNJOB) -> subprocess.CompletedProcess[str]:
    """Call RunJob with other arguments than those of `run`."""
    return subprocess.run(
        [runjob, *arguments], cwd=folder, env=program.environ, capture_output=True, text=True, check=False
    )


def test_a_script_of_no_known_job_is_one_sentence_with_the_known_jobs_and_the_database(
    dataflow: Program, folder: Path, inside: Inside
) -> None:
    program(folder / "other.sh", "#!/bin/sh\n")
    done = call(dataflow, folder, "./other.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no job other in the database ")
    assert done.stderr.endswith("; its jobs are loadbob\n")
    assert inside.ask(dataflow, "run", "--", str(folder / "other.sh")).err == done.stderr


def test_without_any_configuration_the_error_names_the_database_that_is_started(
    embedded: Program, tmp_path: Path
) -> None:
    program(tmp_path / "other.sh", "#!/bin/sh\n")
    done = call(embedded, tmp_path, "./other.sh")
    assert done.returncode == 2
    assert f"the embedded database in {embedded.home / 'postgres'} (DATAFLOW_DSN is not set" in done.stderr


def program(file: Path, text: str, mode: int = 0o755) -> None:
    """Write a program as it is."""
    file.write_text(text, newline="")
    file.chmod(mode)


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/bin/sh\r\ntrue\r\n", 0o755, "carriage return"),
        ("#!/no/such/interpreter\n", 0o755, "/no/such/interpreter"),
        ("#!/usr/bin/env no-such-interpreter\n", 0o755, "no-such-interpreter"),
        ("#!/bin/sh\n", 0o644, "chmod +x"),
    ],
)
def test_a_script_that_the_system_can_not_start_is_found_before_a_chunk_is_claimed(
    dataflow: Program, folder: Path, db: Connection, text: str, mode: int, words: str
) -> None:
    program(folder / "loadbob.sh", text, mode)
    done = call(dataflow, folder, "./loadbob.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ./loadbob.sh")
    assert words in done.stderr
    assert db.execute("SELECT FROM opendataflow.run").fetchall() == []


def test_inputs_of_one_id_in_two_namespaces_are_named_by_their_keys_before_a_chunk_is_claimed(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    apply(db, [dataset("team-a/raw", "1"), dataset("raw", "1"), dataset("both-out")], [])
    apply(db, [], [job("both", ["team-a/raw", "raw"], ["both-out"])])
    program(folder / "both.sh", "#!/bin/sh\n")
    done = call(dataflow, folder, "./both.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the data set raw and the data set team-a/raw both set the variable raw_datasetid" in done.stderr
    assert db.execute("SELECT FROM opendataflow.run").fetchall() == []


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("--version",)])
def test_its_help_and_version_need_no_database(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = call(Program(tmp_path / "home", "postgresql://me@127.0.0.1:1/nothing"), tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "RunJob" in done.stdout


KEY = "plugh+xyzzy/plover="
"""A passkey that looks like a path."""


def test_the_form_of_the_old_readme_runs_the_named_job_and_never_prints_the_passkey(
    dataflow: Program, folder: Path, db: Connection
) -> None:
    program(folder / "any.sh", '#!/bin/sh\necho "$jobid $dataid $1"\n')
    done = call(dataflow, folder, KEY, "loadbob", "./any.sh", "one")
    assert done.returncode == 0, done.stderr
    assert "loadbob 2.0 one" in done.stdout
    assert outputs(db)["2.0"] == "READY"
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments", [(KEY, "loadbob", "./missing.sh"), (KEY, "./missing.sh"), (KEY,), (KEY, "loadbob"), ("./missing.sh",)]
)
def test_a_word_that_may_be_a_passkey_is_not_printed_by_an_error(
    dataflow: Program, folder: Path, arguments: tuple[str, ...]
) -> None:
    done = call(dataflow, folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert KEY not in done.stderr
    assert ("./missing.sh: there is no such program" in done.stderr) == ("./missing.sh" in arguments)


def test_variables_of_the_run_in_arguments_are_expanded_and_nothing_is_split_or_executed(
    dataflow: Program, folder: Path
) -> None:
    script(folder, 'for a in "$@"; do printf "%s\\0" "$a"; done > seen; printf %s "$args" > args')
    words = (
        "$dataid",
        "--table=${bobin_tablename}.x",
        "$COLOUR",
        "$(date)",
        "$HOME",
        "a;b",
        "$dataidx",
        "$bobin_password",
    )
    assert run(dataflow, folder, *words)[0] == 0
    blue = 'it\'s "blue" $HOME `x`'
    expanded = ["2.0", "--table=t1.x", blue, "$(date)", "$HOME", "a;b", "$dataidx", "$bobin_password"]
    assert (folder / "seen").read_text().split("\0")[:-1] == expanded
    assert (folder / "args").read_text() == " ".join(expanded)
    assert call(dataflow, folder, "--literal", "./loadbob.sh", "$dataid").returncode == 0
    assert (folder / "seen").read_text() == "$dataid\0"


def test_a_relative_script_is_found_in_the_current_folder_and_then_beside_runjob(
    dataflow: Program, folder: Path
) -> None:
    beside = folder / "opt"
    beside.mkdir()
    (beside / "RunJob").symlink_to(RUNJOB)
    program(beside / "loadbob.sh", "#!/bin/sh\necho beside $cmd in $PWD\n")
    done = call(dataflow, folder, "./loadbob.sh", runjob=beside / "RunJob")
    assert f"beside ./loadbob.sh in {folder}" in done.stdout, done.stderr
    script(folder, "echo here")
    assert "here" in call(dataflow, folder, "loadbob.sh", runjob=beside / "RunJob").stdout


def test_it_needs_a_script(dataflow: Program) -> None:
    done = subprocess.run([RUNJOB], env=dataflow.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: RunJob needs a script")


def test_it_loads_none_of_the_slow_parts() -> None:
    """What makes it start in a moment: neither the models of job files nor the command line's tables."""
    slow = {"pydantic", "rich", "typer", "yaml", "psycopg_pool", "tenacity", "cryptography", "uuid", "secrets"}
    slow |= {
        "opendataflow.store.embedded",
        "opendataflow.opening.properties",
        "opendataflow.model.resources.api",
        "getpass",
    }
    code = f"import sys, opendataflow.runjob.program; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def seal_password(db: Connection, password: str) -> None:
    """Give the input data set a password that the passkey `plugh` opens."""
    text = seal(password, "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    db.execute("UPDATE opendataflow.dataset SET encryptedpass = %s WHERE id = 'bobin'", (text,))


HOSTILE = 'it\'s "secret" $HOME `x`\nline two ü'


@pytest.mark.parametrize("form", ["environment", "argument"])
def test_passwords_reach_the_script_untouched_and_nothing_else(
    dataflow: Program, folder: Path, db: Connection, form: str
) -> None:
    seal_password(db, HOSTILE)
    script(
        folder, 'printf %s "$bobin_password" > seen; echo "connecting with $bobin_password"; env | grep PASSKEY; true'
    )
    environ = dataflow.environ | ({"PASSKEY": "plugh"} if form == "environment" else {})
    arguments = [*(["plugh"] if form == "argument" else []), "./loadbob.sh"]
    done = subprocess.run([RUNJOB, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (folder / "seen").read_text() == HOSTILE
    assert "PASSKEY" not in done.stdout
    assert ("other users of this machine can read" in done.stderr) == (form == "argument")
    for table in ("run", "history", "task", "chunk", "dataset", "job_env", "lease"):
        for row in db.execute(f"SELECT to_jsonb(t)::text AS row FROM opendataflow.{table} t"):
            assert "line two" not in row["row"]
            assert "plugh" not in row["row"]
    assert all("line two" not in file.read_text() for file in (dataflow.home / "runs").rglob("context.json"))


def test_a_wrong_passkey_costs_no_chunk_its_attempt(dataflow: Program, folder: Path, db: Connection) -> None:
    seal_password(db, "secret")
    script(folder, "touch was-started")
    environ = dataflow.environ | {"PASSKEY": "xyzzy"}
    done = subprocess.run(
        [RUNJOB, "./loadbob.sh"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the password of data set bobin can't be opened: ")
    assert not (folder / "was-started").exists()
    assert outputs(db)["2.0"] == "DECLARED"


def test_without_a_passkey_it_says_which_password_is_not_set(dataflow: Program, folder: Path, db: Connection) -> None:
    seal_password(db, "secret")
    script(folder, 'test -z "${bobin_password+x}"')
    code, _, err = run(dataflow, folder)
    assert (code, err) == (0, "bobin_password is not set: no passkey is given\n")
