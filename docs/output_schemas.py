"""The JSON Schemas of all outputs of `-o json`, for `generate`. A test validates the outputs of the program with them.

A type is `text`, `int`, `number`, `bool`, `time`, `object` (with any fields) or `list` (of anything); `?` allows null.
A dictionary is an object with exactly these fields, and a list of one element is a list of such elements.
"""

import json
from collections.abc import Iterator
from typing import Any

JOB_LIMITS = {"job": "text", "parallelism": "int", "suspended": "bool", "running": "int"}
ANSWERS = [
    {"dataset": "text?", "job": "text?", "data_id": "text", "changed": "bool", "state": "text?", "message": "text?"}
]
RUN = {
    "run": "int",
    "job": "text",
    "data_id": "text",
    "state": "text",
    "attempt": "int",
    "fence": "int",
    "host": "text",
    "claimed_at": "time",
    "finished_at": "time?",
    "seconds": "number",
    "failure_class": "text?",
    "exit_code": "int?",
    "message": "text?",
    "log_path": "text?",
    "metrics": "object?",
    "forced": "bool",
}
STATUS = {
    "job": "text",
    "parallelism": "int",
    "suspended": "bool",
    "deleted": "bool",
    "declaring": "object?",
    "sample": "int",
    "counts": "object",
    "stale": "int",
    "stale_examples": "list",
    "next_due": "number?",
    "breaker": "object?",
    "tests": "object?",
    "sharing": "text?",
    "shared_inputs": "list",
    "preflight": "object?",
    "missing": "object?",
    "unmanaged_namespaces": "list",
    "limits": [{"host": "text", "slots": "int", "parallelism": "int", "jobs": "int"}],
    "waiting": "list",
    "incomplete": "list",
    "running": [{"run": "int", "data_id": "text", "attempt": "int", "seconds": "number"}],
    "failed": [{"reason": "text?", "class": "text?", "chunks": "int", "examples": "list"}],
    "gaps": "int",
    "gap_examples": "list",
    "watermark": "text?",
    "per_minute": "number?",
    "eta_seconds": "number?",
}

OUTPUTS: dict[str, tuple[str, Any]] = {
    "get jobs": (
        "One element for each job.",
        [
            {
                "job": "text",
                "state": "text",
                "done": "int",
                "total": "int",
                "stale": "int",
                "running": "int",
                "retrying": "int",
                "failed": "int",
                "parallelism": "int",
                "inputs": "text?",
                "outputs": "text?",
            }
        ],
    ),
    "get tasks": (
        "One element for each task, in the order of its job.",
        [
            {
                "job": "text",
                "data_id": "text",
                "state": "text",
                "stale": "bool",
                "incomplete": "bool",
                "blockers": "int",
                "attempts": "int",
                "infrastructure_attempts": "int",
                "due_at": "time?",
                "run": "int?",
                "reason": "text?",
            }
        ],
    ),
    "get datasets": (
        "One element for each data set.",
        [
            {
                "dataset": "text",
                "kind": "text?",
                "place": "text?",
                "producer": "text?",
                "consumers": "text?",
                "ready": "int",
                "failed": "int",
                "chunks": "int",
                "declaring": "text?",
            }
        ],
    ),
    "get chunks": (
        "One element for each chunk, in natural order.",
        [
            {
                "dataset": "text",
                "data_id": "text",
                "status": "text",
                "stale": "bool",
                "fence": "int?",
                "run": "int?",
                "readers": "int",
                "published_at": "time?",
                "reason": "text?",
                "forced": "bool",
            }
        ],
    ),
    "get runs": ("One element for each run, newest first.", [RUN]),
    "status": ("One element for each job.", [STATUS]),
    "why": (
        "Why one task does not run.",
        {
            "job": "text",
            "data_id": "text",
            "state": "text",
            "reason": "text?",
            "held_from": "text?",
            "again": "bool",
            "forced": "bool",
            "stale": "bool",
            "missing_outputs": "list",
            "attempts": "int",
            "infrastructure_attempts": "int",
            "retry_limit": "int",
            "due_at": "time?",
            "due_in_seconds": "number?",
            "suspended": "bool",
            "deleted": "bool",
            "parallelism": "int",
            "breaker": "object?",
            "tests": "object?",
            "orphan": "object?",
            "preflight": "object?",
            "looks": "int",
            "sharing": "text?",
            "running": "int",
            "before_it": "int",
            "engines": "int",
            "blockers": "list",
            "engine_lives": "bool",
            "unmanaged_namespaces": "object?",
            "last_run": "object?",
            "own_jvm": "text?",
        },
    ),
    "describe job": (
        "One job.",
        {"job": "object", "status": STATUS, "datasets": "list", "env": "object", "runs": [RUN], "events": "list"},
    ),
    "describe dataset": (
        "One data set.",
        {
            "dataset": "object",
            "has_password": "bool",
            "producer": "text?",
            "consumers": "list",
            "counts": "object",
            "declaring": "object?",
            "events": "list",
        },
    ),
    "describe chunk": (
        "One chunk.",
        {
            "chunk": "object",
            "publication": "object?",
            "producer": "object?",
            "consumers": "list",
            "behind": "object",
            "changes": "object",
            "expectations": "list?",
            "events": "list",
        },
    ),
    "describe run": (
        "One run.",
        {
            "run": "object",
            "task": "text?",
            "last": "bool",
            "seconds": "number?",
            "datasets": "list?",
            "behind": "object",
            "steps": "list",
            "events": "list",
        },
    ),
    "inspect": (
        "The five answers about one chunk; `looks` with --check only.",
        {"job": "text", "data_id": "text", "answers": "list", "facts": "object"},
    ),
    "logs": (
        "The log of one run. `whole`: whether it is more than the stored end.",
        {
            "run": "int",
            "job": "text",
            "data_id": "text",
            "attempt": "int",
            "state": "text",
            "message": "text?",
            "step": "text?",
            "whole": "bool",
            "log": "text",
        },
    ),
    "apply": ("The plan of an apply.", {"plan": "object", "applied": "bool"}),
    **dict.fromkeys(
        ("resubmit", "hold", "release", "skip", "force", "cancel", "publish", "accept", "reject"),
        ("One element for each chunk or task. With --dry-run, nothing was changed.", ANSWERS),
    ),
    "lost": ("The task of the lost run.", {"run": "int", "job": "text", "data_id": "text", "state": "text"}),
    "scale": ("The limits of a job. `before`: its parallelism.", {**JOB_LIMITS, "before": "int"}),
    "suspend": ("The limits of a job. `before`: whether it was suspended.", {**JOB_LIMITS, "before": "bool"}),
    "resume": ("The limits of a job. `before`: whether it was suspended.", {**JOB_LIMITS, "before": "bool"}),
    "delete": ("What is left of a job.", {"job": "text", "running": "int", "stale": "int"}),
    "chunks load": (
        "The numbers of declared chunks.",
        {"dataset": "text", "chunks": "int", "new": "int", "known": "int", "published": "int", "dry_run": "bool"},
    ),
    "doctor": ("One element for each finding.", [{"level": "text", "text": "text", "remedy": "text?"}]),
    "db status": (
        "The schema of the database.",
        {
            "database": "text",
            "postgres": "text",
            "current": "bool",
            "moved_to": "text?",
            "conflict": "text?",
            "migrations": [{"name": "text", "state": "text"}],
        },
    ),
    "db verify": ("Whether the data are consistent.", {"consistent": "bool", "problems": "list"}),
    "history clean": (
        "What was deleted, or would be deleted with --dry-run.",
        {"job": "text?", "before": "time", "dry_run": "bool", "runs": "int", "logs": "int", "events": "int"},
    ),
    "chunks plan": (
        "The chunks of a plan.",
        {
            "dataset": "text",
            "table": "text",
            "column": "text",
            "by": "text",
            "rows": "int",
            "counted": "text",
            "skew": "number",
            "outside": "int?",
            "covers_later_values": "bool",
            "chunks": [{"data_id": "text", "bounds": "object", "rows": "int?"}],
        },
    ),
    "chunks check": (
        "The rows of each chunk in the tables. `datasets`: those of a data set by its name.",
        {
            "good": "bool",
            "figures": "list",
            "datasets": "object",
            "chunks": [{"data_id": "text", "status": "text?", "different": "text?", "datasets": "object"}],
        },
    ),
    "pipeline list": (
        "One element for each pipeline of a project.",
        [{"pipeline": "text", "sources": "text", "transformations": "text", "destination": "text"}],
    ),
    "pipeline describe": (
        "One pipeline of a project. `there`: whether a source exists. `fault`: why a step can't be run.",
        {
            "pipeline": "text",
            "sources": [{"name": "text", "path": "text", "format": "text", "there": "bool", "chunk": "text?"}],
            "transformations": [{"name": "text", "fault": "text?", "says": "text?"}],
            "expectations": [{"name": "text", "severity": "text"}],
            "destination": {"name": "text", "path": "text", "format": "text", "mode": "text?"},
        },
    ),
    "pipeline test": (
        "One element for each transformation. `sentence`: why its test has failed.",
        [
            {
                "pipeline": "text",
                "transformation": "text",
                "seconds": "number",
                "sentence": "text?",
                "details": "list",
                "stdout": "text",
                "warning": "text?",
            }
        ],
    ),
    "pipeline run": (
        "One element for each item, or for the chunk. `written`: the table, folder or file.",
        [
            {
                "data_id": "text?",
                "item": "object?",
                "steps": [
                    {
                        "name": "text",
                        "status": "text",
                        "rows": "int?",
                        "seconds": "number?",
                        "stdout": "text",
                        "error": "text?",
                    }
                ],
                "written": "text?",
                "rows": "int?",
                "bytes": "int?",
                "checksum": "text?",
                "kept": "bool?",
                "expectations": [{"name": "text", "held": "bool", "severity": "text", "found": "text"}],
            }
        ],
    ),
    "pipeline history": (
        "One element for each run of a pipeline, newest first.",
        [
            {
                "run": "int",
                "pipeline": "text",
                "job": "text",
                "data_id": "text",
                "state": "text",
                "attempt": "int",
                "claimed_at": "time",
                "finished_at": "time?",
                "seconds": "number",
                "failure_class": "text?",
                "message": "text?",
                "log_path": "text?",
                "metrics": "object?",
                "steps": "list",
            }
        ],
    ),
    "sql": ("One element for each row of the query, with its columns.", ["object"]),
    "runs": (
        "The rows of the old table datastatus that changed last. Its times have no offset.",
        [
            {
                "dataid": "text",
                "datasetid": "text",
                "jobid": "text?",
                "locktype": "text",
                "modified": "text?",
                "status": "text",
            }
        ],
    ),
    "jobs": (
        "The rows of the old table job. Its times have no offset.",
        [{"datasetid": "text?", "itemtype": "text", "itemvalue": "text?", "jobid": "text", "modified": "text?"}],
    ),
    "datasets": (
        "The rows of the old table dataset, with its columns. Of a password only its beginning.",
        [
            {
                "database": "text?",
                "datasetid": "text",
                "encryptedpass": "text?",
                "hostname": "text?",
                "schemaname": "text?",
                "tablename": "text?",
                "username": "text?",
            }
        ],
    ),
}
"""Command -> what its output is, and its type."""

_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "list": {"type": "array"},
}

HEAD = """# Output as JSON

<!-- Written by docs/generate.py from docs/output_schemas.py. -->

With `-o json` or `-o yaml`, commands print documents for programs. Each has a
[JSON Schema](https://json-schema.org/draft/2020-12/schema). Times are in ISO 8601 with their offset. The same thing
has the same name everywhere: `job`, `dataset`, `data_id`, `run`, `state` of a task or a run, `status` of a chunk.
Fields are added in minor versions, and removed or renamed in major versions only. Errors are one sentence on stderr,
with an [exit code](exit-codes.md).

| command | what it prints | schema |
|---|---|---|
"""


def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    if isinstance(kind, list):
        return {"type": "array", "items": schema(kind[0])}
    if isinstance(kind, dict):
        fields = {name: schema(one) for name, one in kind.items()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    found = dict(_TYPES[kind.rstrip("?")])
    return {**found, "type": [found["type"], "null"]} if kind.endswith("?") else found


def file_of(command: str) -> str:
    """Return the name of the schema's file."""
    return f"output/{command.replace(' ', '-')}.json"


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file in docs/reference."""
    rows = "".join(
        f"| `dataflow {command}` | {text} | [schema]({file_of(command)}) |\n" for command, (text, _) in OUTPUTS.items()
    )
    yield "output.md", HEAD + rows
    for command, (text, kind) in OUTPUTS.items():
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"dataflow {command} -o json"}
        document = {**head, "description": text, **schema(kind)}
        yield file_of(command), json.dumps(document, indent=2) + "\n"
