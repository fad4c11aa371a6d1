"""Every output of `-o json` is as its JSON Schema in docs/reference/output says, and no command is without one."""

import json
import shlex
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.main import get_command

import output_schemas
from opendataflow.cli.commands import all_commands
from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, raw

EXAMPLE = Path(__file__).parents[2] / "examples" / "django-project"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CHECKS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}

CALLS = {
    "get jobs": "get jobs",
    "get tasks": "get tasks j",
    "get datasets": "get datasets",
    "get chunks": "get chunks",
    "get runs": "get runs",
    "status": "status",
    "why": "why j 2",
    "describe job": "describe job j",
    "describe dataset": "describe dataset a",
    "describe chunk": "describe chunk b 1",
    "describe run": "describe run 1",
    "inspect": "inspect j 1",
    "logs": "logs j 2",
    "apply": "apply -f job.yaml --dry-run",
    "resubmit": "resubmit j --failed",
    "hold": "hold --dataset a 1",
    "release": "release --dataset a 1",
    "skip": "skip j 4 --dry-run",
    "force": "force j 1 --dry-run",
    "cancel": "cancel j 3 --dry-run",
    "publish": "publish a 9",
    "accept": "accept c 1",
    "reject": "reject c 2 --dry-run",
    "lost": "lost 3 --yes",
    "scale": "scale j 3",
    "suspend": "suspend j",
    "resume": "resume j",
    "delete": "delete k",
    "chunks load": "chunks load list.csv --dataset a",
    "doctor": "doctor",
    "db status": "db status",
    "db verify": "db verify",
    "history clean": "history clean --dry-run",
    "chunks plan": "chunks plan orders --by list word",
    "chunks check": "chunks check orders",
    "pipeline list": "pipeline list",
    "pipeline describe": "pipeline describe greetings",
    "pipeline test": "pipeline test",
    "pipeline run": "pipeline run new_entry --stream incoming.csv",
    "pipeline history": "pipeline history",
    "sql": "sql 'SELECT * FROM job'",
    "runs": "runs",
    "jobs": "jobs",
    "datasets": "datasets",
}
"""Command -> a call that succeeds in the scene of these tests."""


def faults(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """Return how a value differs from a JSON Schema, for the words that these schemas use."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return [] if "null" in types else [f"{where} is null"]
    if not isinstance(value, CHECKS[types[0]]) or (isinstance(value, bool) and types[0] != "boolean"):
        return [f"{where} is {type(value).__name__}, not {types[0]}"]
    if schema.get("format") == "date-time" and datetime.fromisoformat(value).tzinfo is None:
        return [f"{where} has no offset"]
    found = []
    if "items" in schema:
        found += [
            fault for number, one in enumerate(value) for fault in faults(one, schema["items"], f"{where}[{number}]")
        ]
    if "properties" in schema:
        found += [f"{where} has no {name}" for name in schema["required"] if name not in value]
        found += [f"{where} has {name}" for name in value if name not in schema["properties"]]
        for name, one in schema["properties"].items():
            found += faults(value[name], one, f"{where}.{name}") if name in value else []
    return found


def location_of(dsn: str) -> dict[str, Any]:
    """The columns of a data set that is the table `orders` of the tests' database."""
    parts = conninfo_to_dict(dsn)
    sealed = seal(str(parts["password"]), "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    place = {"hostname": f"{parts['host']}:{parts['port']}", "database": parts["dbname"], "username": parts["user"]}
    partitioning = {"column": "word", "type": "list"}
    return {
        **place,
        "schemaname": "public",
        "tablename": "orders",
        "encryptedpass": sealed,
        "partitioning": partitioning,
    }


@pytest.fixture
def scene(dataflow: Program, db: Connection, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A job with a task in most states, a chunk that waits for a person, and the files that the calls name."""
    apply(db, [dataset("a", "1", "2", "3", "4"), dataset("b")], [job("j", ["a"], ["b"], retry_limit=0)])
    apply(db, [dataset("c", "1", "2"), dataset("d")], [job("k", ["c"], ["d"])])
    one, two, _ = claim(db, open_lease(db), "j", 3)
    end(db, one, "DONE")
    end(db, two, "FAILED", log_tail="oops\n")
    for data_id in ("1", "2"):
        db.execute(
            "INSERT INTO dataflow.datastatus (dataid, datasetid, jobid, locktype, status) "
            "VALUES (%s, 'c', 'x', 'OUT', 'PENDING')",
            (data_id,),
        )
    ask(db, "hold", "j", "4")
    raw(db, "UPDATE opendataflow.job SET pipeline = 'p' WHERE id = 'j'")
    shutil.copytree(EXAMPLE, tmp_path, ignore=shutil.ignore_patterns("output", "__pycache__"), dirs_exist_ok=True)
    db.execute("CREATE TABLE public.orders AS SELECT 'w' || i % 2 AS word FROM generate_series(1, 9) i")
    monkeypatch.setenv("PASSKEY", "plugh")
    apply(db, [{**dataset("orders", "w0"), **location_of(dsn)}], [])
    (tmp_path / "list.csv").write_text("id\n7\n8\n")
    (tmp_path / "job.yaml").write_text(
        "apiVersion: opendataflow.io/v1alpha1\nkind: DataSet\nmetadata: {name: new}\n"
        "spec: {chunkSource: {list: ['1']}}\n"
    )
    return dataflow


def test_the_output_of_each_command_is_as_its_schema_says(scene: Program, inside: Inside, tmp_path: Path) -> None:
    for command, call in CALLS.items():
        answer = inside.ask(scene, *shlex.split(call), "-o", "json", cwd=tmp_path)
        assert answer.code in (0, 1), answer
        schema = json.loads((REFERENCE / output_schemas.file_of(command)).read_text("utf-8"))
        document = json.loads(answer.out)
        assert document or command == "get tasks", command
        assert faults(document, schema) == [], command


def test_every_command_with_output_has_a_schema_and_a_call_here() -> None:
    def leaves(command: Any, name: str = "") -> list[str]:
        below = getattr(command, "commands", {})
        if below:
            return [
                leaf for word, one in below.items() if not one.hidden for leaf in leaves(one, f"{name} {word}".strip())
            ]
        return [name] if any("--output" in parameter.opts for parameter in command.params) else []

    assert set(leaves(get_command(all_commands()))) == set(output_schemas.OUTPUTS) == set(CALLS)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"run": "7"}, "$.run is str, not integer"),
        ({}, "$ has no run"),
        ({"run": 7, "boot": "x"}, "$ has boot"),
        (None, "$ is null"),
    ],
)
def test_a_document_that_differs_from_its_schema_is_found(value: Any, sentence: str) -> None:
    assert faults(value, output_schemas.schema({"run": "int"})) == [sentence]
