"""Whatever is wrong, a person reads one sentence that names it, and nothing is half applied."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.names import ExitCode
from opendataflow.store.embedded import EmbeddedPostgres
from tests.e2e.conftest import Answer, Inside, Program
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, claim, end, open_lease

HEAD = "apiVersion: opendataflow.io/v1alpha1\n"


def dataset(name: str, spec: str = "{}") -> str:
    return f"---\n{HEAD}kind: DataSet\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def job(name: str, inputs: str, outputs: str, more: str = "parallelism: 1") -> str:
    spec = f"{{inputs: [{inputs}], outputs: [{outputs}], {more}, runtime: {{script: {{command: ['true']}}}}}}"
    return f"---\n{HEAD}kind: DataFlowJob\nmetadata: {{name: {name}}}\nspec: {spec}\n"


GOOD = dataset("numbers", "{chunkSource: {list: ['1', '2']}}") + dataset("squares")
GOOD += job("square", "numbers", "squares")
NEW = dataset("brand-new", "{chunkSource: {list: ['7']}}")
"""Stands before the fault in each bad file: it must not be applied either."""


def rows(program: Program) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    assert program.dsn is not None
    with open_connection(program.dsn) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'opendataflow' ORDER BY 1").fetchall()
        queries = {
            table["tablename"]: f"SELECT to_jsonb(t) AS row FROM opendataflow.{table['tablename']} t ORDER BY 1"
            for table in tables
        }
        return {name: db.execute(query.encode()).fetchall() for name, query in queries.items()}


def assert_one_sentence(answer: Answer, code: ExitCode, words: str) -> None:
    assert answer.code == code, answer
    assert answer.out == ""
    [sentence] = answer.err.splitlines()
    assert sentence.startswith("error: ")
    assert re.search(words, sentence), sentence


@pytest.fixture(scope="module")
def applied(lasting_dsn: str, lasting_open_folder: Path) -> Program:
    """The program with GOOD applied; no test here changes anything."""
    (lasting_open_folder / "good.yaml").write_text(GOOD)
    program = Program(lasting_open_folder / "home", lasting_dsn)
    program.run("apply", "-f", str(lasting_open_folder / "good.yaml"))
    return program


FAULTS = {
    "a cycle between jobs": (
        dataset("sums") + job("sum", "squares", "sums") + job("back", "sums", "numbers"),
        r"the jobs wait for each other: back -> square -> sum -> back \(.*\); remove one of these inputs",
    ),
    "two producers in one file": (
        dataset("sums") + job("one", "numbers", "sums") + job("two", "numbers", "sums"),
        r"job two: spec\.outputs: the data set sums is made by the job one already; ",
    ),
    "a producer of what another file's job makes": (
        job("other", "numbers", "squares"),
        r"the data set squares is made by the job (other|square) already; ",
    ),
    "an unknown data set": (
        job("other", "nombers", "brand-new"),
        r"job other: spec\.inputs\[0\]: there is no data set nombers; did you mean numbers\?",
    ),
    "a data set of one's own that is built in": (
        dataset("today", "{chunkSource: {list: ['2026-11-28']}}"),
        r"DataSet today: the data set today is built in: give yours another id",
    ),
    "a job that makes the built-in data set": (
        job("other", "numbers", "today"),
        r"job other: spec\.outputs: the data set today .* comes by itself; no job makes it",
    ),
    "ids that are one variable's name": (
        dataset("a-b") + dataset("a.b") + job("other", "a-b", "a.b"),
        r"job other: the data set a-b and .* a\.b both set .* a_b_datasetid; ",
    ),
    "an env item in the place of a data set's variable": (
        job("other", "numbers", "brand-new", "env: {numbers_hostname: h}"),
        r"job other: the data set numbers and the env item numbers_hostname both set .*; rename the env item",
    ),
    "a typo in a field": (
        job("other", "numbers", "brand-new", "paralelism: 2"),
        r"bad\.yaml, DataFlowJob other: spec\.paralelism: no such field; did you mean parallelism\?",
    ),
    "a wrong type": (
        job("other", "numbers", "brand-new", "parallelism: many"),
        r'bad\.yaml, DataFlowJob other: spec\.parallelism: a whole number .* found "many"',
    ),
    "a number for a text": (
        dataset("versions", "{chunkSource: {list: [1.10]}}"),
        r'bad\.yaml, DataSet versions: spec\.chunkSource\.list\[0\]: text is wanted; quote it: "1\.10"',
    ),
    "a password in plain text": (
        dataset("secret", "{location: {url: 'postgresql://u:hunter2@h/db'}}"),
        r"bad\.yaml, DataSet secret: spec\.location\.url: a password in a URL ",
    ),
    "an unknown kind": (
        f"---\n{HEAD}kind: DataFlowJobs\nmetadata: {{name: x}}\n",
        r'bad\.yaml, line \d+: kind "DataFlowJobs" is not known; .* DataFlowJob and DataSet',
    ),
    "broken YAML": ("---\nkind: [DataSet\nmetadata: {}\n", r"bad\.yaml, line \d+, column \d+: .*expected ',' or '\]'"),
    "text that is no resource": ("---\nhello\n", r'bad\.yaml, line \d+: a resource has .*, this is "hello"'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused_as_a_whole(applied: Program, inside: Inside, tmp_path: Path, fault: str) -> None:
    text, words = FAULTS[fault]
    (tmp_path / "bad.yaml").write_text(NEW + text)
    before = rows(applied)
    answer = inside.ask(applied, "apply", "-f", "bad.yaml", cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, words)
    assert "hunter2" not in answer.err
    assert rows(applied) == before


def test_a_good_file_beside_a_bad_one_is_not_applied(applied: Program, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(NEW)
    (tmp_path / "bad.yaml").write_text(job("other", "nowhere", "brand-new"))
    before = rows(applied)
    answer = applied.ask("apply", "-f", "new.yaml", "-f", "bad.yaml", cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, r"there is no data set nowhere; declare it as a DataSet")
    assert rows(applied) == before


def test_the_same_job_in_two_files_is_refused(applied: Program, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "again.yaml").write_text(job("square", "numbers", "squares"))
    before = rows(applied)
    answer = inside.ask(applied, "apply", "-f", "good.yaml", "-f", "again.yaml", cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, r"again\.yaml: DataFlowJob square is in another of the files too")
    assert rows(applied) == before


def test_local_runs_nothing_of_a_faulty_file(applied: Program, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(GOOD + job("other", "numbers", "nowhere"))
    before = rows(applied)
    answer = applied.ask("local", "-f", "bad.yaml", "--until-caught-up", cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, r"there is no data set nowhere")
    assert rows(applied) == before


NOWHERE = Program(Path("/nowhere"), "host=/nowhere")
"""Without any database: faults of a file or an argument are reported before one is asked."""

UNREADABLE = {
    "missing.yaml": r"missing\.yaml: can't be read: No such file",
    "folder": r"folder: can't be read: Is a directory",
    "empty.yaml": r"empty\.yaml: nothing is declared here",
    "binary.yaml": r"binary\.yaml: the file is not UTF-8 text \(byte 7\)",
    "nul.yaml": r"nul\.yaml, line 1, column 8: the character U\+0000 is not allowed in YAML",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_job_file_is_refused(inside: Inside, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "binary.yaml").write_bytes(b"\x7fELF\2\1\1\xff\xfe\0")
    (tmp_path / "nul.yaml").write_bytes(b"kind:  \0\n")
    answer = inside.ask(NOWHERE, "apply", "-f", name, cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, UNREADABLE[name])


# Ids -----------------------------------------------------------------------------------------------------

IDS = {
    ("resubmit", "square", "11"): r"job square has no task for 11 \(did you mean 1\?\)$",
    ("resubmit", "square", "1", "x"): r"job square has no task for x \(known: 1, 2\); nothing was changed$",
    (
        "resubmit",
        "square",
    ): r"no data ids: name one or more, or choose them by --from and --to, by --status, by --stale or by --failed$",
    (
        "hold",
        "square",
    ): r"no data ids: name one or more, or choose them by --from and --to, by --status or by --failed$",
    ("hold", "square", "1", "--failed"): r"data ids are given and also chosen by .*: do one of the two$",
    ("hold", "square", "--status", "BROKEN"): r"tasks are never BROKEN, but WAITING, QUEUED, .*, SKIPPED$",
    ("hold", "square", "--status", "READY"): r"READY is a status of chunks: .* write QUEUED$",
    ("hold", "--dataset", "numbers", "--status", "DONE"): r"chunks are never DONE, but DECLARED, READY, .*, PENDING$",
    ("force", "squares", "--failed"): r"there is no job squares: it is a data set$",
    ("resubmit", "sqare", "1"): r"there is no job sqare \(did you mean square\?\)$",
    ("resubmit", "squares", "1"): r"there is no job squares: it is a data set, which needs --dataset$",
    ("hold", "--dataset", "number", "1"): r"there is no data set number \(did you mean numbers\?\)$",
    ("hold", "--dataset", "numbers", "3"): r"data set numbers has no chunk 3 \(known: 1, 2\)$",
    ("release", "sqare", "1"): r"there is no job sqare \(did you mean square\?\)$",
    ("publish", "square", "1"): r"there is no data set square: it is a job$",
    ("why", "square", "3"): r"job square has no task for 3 \(known: 1, 2\)$",
    ("logs", "square", "1"): r"1 of job square has not run yet: see `dataflow why square 1`$",
    ("status", "sqare"): r"there is no job sqare \(did you mean square\?\)$",
    ("get", "runs", "sqare"): r"there is no job sqare \(did you mean square\?\)$",
    ("get", "chunks", "squares2"): r"there is no data set squares2 \(did you mean squares\?\)$",
    ("lost", "77", "--yes"): r"there is no run 77: see `dataflow get runs`$",
}


@pytest.mark.parametrize("arguments", IDS, ids=" ".join)
def test_an_unknown_name_is_reported_with_the_one_that_may_be_meant(
    applied: Program, inside: Inside, arguments: tuple[str, ...]
) -> None:
    before = rows(applied)
    assert_one_sentence(inside.ask(applied, *arguments), ExitCode.USAGE, IDS[arguments])
    assert rows(applied) == before


# Databases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1/dwh", r"127\.0\.0\.1:1/dwh"),
        ("host=127.0.0.1 port=1 user=u password=hunter2 dbname=dwh", r"127\.0\.0\.1:1/dwh"),
        ("postgresql://u:hunter2@no-such-host.invalid/dwh", r"no-such-host\.invalid:5432/dwh"),
    ],
)
def test_a_database_that_does_not_answer_is_named_without_its_password(inside: Inside, dsn: str, place: str) -> None:
    answer = inside.ask(Program(Path("/nowhere"), dsn), "get", "jobs")
    assert_one_sentence(answer, ExitCode.UNREACHABLE, rf"Postgres at {place} does not answer: ")
    assert "hunter2" not in answer.err


def test_a_wrong_password_is_reported_and_not_shown(applied: Program) -> None:
    wrong = Program(applied.home, make_conninfo(str(applied.dsn), user="nobody", password="hunter2"))
    for command in (("get", "jobs"), ("run", "--job", "j", "--", "true"), ("db", "verify")):
        answer = wrong.ask(*command)
        assert_one_sentence(
            answer,
            ExitCode.UNREACHABLE,
            r'Postgres at \S+ refuses the connection: password authentication failed for user "nobody"',
        )
    assert "hunter2" not in answer.err


@pytest.mark.parametrize(
    "dsn", ["hunter2", "postgresql:/u:hunter2@h/db", "host=h password='hunter2", "h=1 password=hunter2"]
)
def test_what_is_no_address_of_a_database_is_reported_and_not_shown(inside: Inside, dsn: str) -> None:
    answer = inside.ask(Program(Path("/nowhere"), dsn), "get", "jobs")
    assert_one_sentence(answer, ExitCode.USAGE, r"DATAFLOW_DSN is not ")
    assert "hunter2" not in answer.err


def test_an_empty_database_is_refused_and_migrating_it_is_proposed(
    dataflow: Program, inside: Inside, db: Connection
) -> None:
    db.execute("DROP SCHEMA opendataflow CASCADE")
    answer = inside.ask(dataflow, "get", "jobs")
    assert_one_sentence(answer, ExitCode.SCHEMA, r"no OpenDataFlow schema yet: .*`dataflow db migrate`, or")
    assert db.execute("SELECT to_regnamespace('opendataflow') AS schema").fetchone() == {"schema": None}


def test_functions_of_another_version_are_refused_and_migrating_is_proposed(
    dataflow: Program, inside: Inside, db: Connection
) -> None:
    db.execute("UPDATE opendataflow.installed SET functions = 'of an older program'")
    answer = inside.ask(dataflow, "get", "jobs")
    assert_one_sentence(answer, ExitCode.SCHEMA, r"functions of another version .* run `dataflow db migrate`, or")


def test_a_newer_schema_is_refused_with_the_way_out(dataflow: Program, inside: Inside, db: Connection) -> None:
    db.execute("INSERT INTO opendataflow.migration VALUES (9999, '9999_of_tomorrow', now(), 9999, '')")
    for command in (("get", "jobs"), ("db", "migrate")):
        words = r"the database has schema 9999, .* can work with: install"
        assert_one_sentence(inside.ask(dataflow, *command), ExitCode.SCHEMA, words)


def test_a_database_of_an_unreleased_version_is_refused_with_the_remedy(
    dataflow: Program, inside: Inside, db: Connection
) -> None:
    db.execute("ALTER TABLE opendataflow.migration DROP digest")
    for command in (("get", "jobs"), ("db", "migrate")):
        words = rf"/{db.info.dbname} was made by .* `DROP SCHEMA opendataflow CASCADE`; then"
        assert_one_sentence(inside.ask(dataflow, *command), ExitCode.SCHEMA, words)


def test_an_embedded_database_of_an_unreleased_version_is_refused_with_the_command_that_deletes_it(
    embedded: Program, inside: Inside
) -> None:
    with EmbeddedPostgres(embedded.home / "postgres") as dsn, open_connection(dsn) as db:
        assert inside.ask(embedded, "db", "migrate").code == ExitCode.OK
        db.execute("ALTER TABLE opendataflow.migration DROP digest")
        folder = re.escape(str(embedded.home))
        words = (
            rf"the embedded database in {folder}/postgres was made by .* can't "
            rf"be migrated: end what uses it and delete all of it by `rm -rf {folder}/postgres`$"
        )
        for command in (("get", "jobs"), ("db", "migrate")):
            answer = inside.ask(embedded, *command)
            assert_one_sentence(answer, ExitCode.SCHEMA, words)
        status = inside.ask(embedded, "db", "status")
        assert "schema    0001_base  of an unreleased version\n" in status.out
        assert (status.code, status.err) == (answer.code, answer.err)
        found = inside.ask(embedded, "doctor").out
        assert "problem  the schema is of an unreleased version " in found
        assert "rm -rf" in found
    remedy = re.search("`(.*)`", answer.err)
    assert remedy
    subprocess.run(remedy[1], shell=True, check=True)
    assert inside.ask(embedded, "get", "jobs").code == ExitCode.OK


# Arguments -----------------------------------------------------------------------------------------------

ARGUMENTS = {
    ("stauts",): r"no such command 'stauts'. Did you mean 'status'\?",
    ("status", "--nosuch-option"): r"no such option: --nosuch-option; see `dataflow status --help`$",
    ("why", "square"): r"missing argument 'DATA_ID'; see `dataflow why --help`$",
    (
        "get",
        "jobs",
        "-o",
        "xml",
    ): r"'xml' is not one of 'table', 'wide', 'json', 'yaml'; see `dataflow get jobs --help`$",
    ("logs", "square"): r"logs needs a job and a data id, or --run RUN$",
}


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_a_wrong_argument_is_reported_with_where_to_read_on(inside: Inside, arguments: tuple[str, ...]) -> None:
    answer = inside.ask(NOWHERE, *arguments)
    assert_one_sentence(answer, ExitCode.USAGE, ARGUMENTS[arguments])


def test_a_job_file_without_a_job_has_nothing_to_run(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(NEW)
    answer = NOWHERE.ask("local", "-f", "new.yaml", cwd=tmp_path)
    assert_one_sentence(answer, ExitCode.USAGE, r"new\.yaml: there is no DataFlowJob in it: nothing to run$")


def test_a_job_that_needs_a_cluster_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    runtime = "sparkApplication: {template: {spec: {mainApplicationFile: 'local:///a.py'}}}"
    job = f"metadata: {{name: load}}\nspec: {{inputs: [new], runtime: {{{runtime}}}}}\n"
    head = "apiVersion: opendataflow.io/v1alpha1\nkind: DataFlowJob\n"
    (tmp_path / "new.yaml").write_text(f"{NEW}---\n{head}{job}")
    answer = NOWHERE.ask("local", "-f", "new.yaml", cwd=tmp_path)
    sentence = r"job load: runtime\.sparkApplication needs a cluster .* write runtime\.spark with the same program$"
    assert_one_sentence(answer, ExitCode.USAGE, sentence)


# Control characters


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ("publish", "squares", "a\x1b[2J"),
            r'^error: "a\\x1b\[2J" can\'t be an id: an id can\'t hold control ',
        ),
        (("publish", "squares", "a\u202eb"), r'^error: "a\\u202eb" can\'t be an id'),
        (("chunks", "load", "-", "--dataset", "squares", "--reason", "a\nb"), "^error: --reason: one line of text"),
        (("hold", "square", "1", "--reason", "\x1b]0;x\x07"), r'without control characters, found "\\x1b]0;x\\x07"$'),
        (("suspend", "square", "--reason", "a\u2066b"), r'"a\\u2066b"$'),
        (("dml", "INSERT INTO job (jobid, itemtype, datasetid) VALUES ('a\x1b', 'IN', 'squares')"), "can't be an id"),
    ],
)
def test_control_characters_are_refused_in_ids_and_reasons(
    applied: Program, inside: Inside, command: tuple[str, ...], words: str
) -> None:
    before = rows(applied)
    answer = inside.ask(applied, *command)
    assert answer.code != ExitCode.OK
    assert re.search(words, answer.err.rstrip("\n")), answer.err
    assert rows(applied) == before


def test_control_characters_that_are_stored_are_shown_as_text_everywhere(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    apply(db, [graph.dataset("a", "1"), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])
    [run] = claim(db, open_lease(db), "j")
    evil = "\x1b]52;c;x\x07\u202e"
    end(db, run, "FAILED", message=evil, reason=evil)
    db.execute("SELECT opendataflow.hold('j', '{1}', %s, %s)", (evil, evil))
    commands = ("get runs", "get chunks", "get tasks", "status", "why j 1", "inspect j 1", "describe job j",
                "describe chunk b 1", f"describe run {run['run']}", "describe dataset b")  # fmt: skip
    seen = [inside.ask(dataflow, *command.split()) for command in commands]
    documents = [
        inside.ask(dataflow, *command.split(), "-o", form) for command in commands for form in ("json", "yaml")
    ]
    for answer in (*seen, *documents):
        assert not set("\x1b\x07\u202e") & set(answer.out + answer.err), answer
    assert sum(r"\x1b]52;c;x\x07\u202e" in answer.out for answer in seen) >= 5
