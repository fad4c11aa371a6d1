"""Small graphs of data sets and jobs for the tests, and calls of the functions that they are about."""

import json
import uuid
from typing import Any

import psycopg
from psycopg.errors import LockNotAvailable, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from opendataflow.store.connections.connection import Row

Connection = psycopg.Connection[Row]
Run = dict[str, Any]
"""A run as `claim` returns it."""

TRY_AGAIN = (SerializationFailure, LockNotAvailable)
"""Errors that ask for the same request once more; the store does that by itself."""

JOB: dict[str, Any] = {
    "parallelism": 100,
    "priority": 0,
    "suspended": False,
    "descending": False,
    "retry_limit": 1,
    "infrastructure_limit": 2,
    "backoff_initial": 0,
    "backoff_factor": 2,
    "backoff_maximum": 10,
    "env": {},
}


def job(job_id: str, inputs: list[str], outputs: list[str], **changes: Any) -> dict[str, Any]:
    """A job as `apply` takes it."""
    return {**JOB, "id": job_id, "inputs": inputs, "outputs": outputs, **changes}


def dataset(dataset_id: str, *ids: str) -> dict[str, Any]:
    """A data set as `apply` takes it, with the ids of its chunk source. Without ids its source is not mentioned."""
    return source(dataset_id, *ids) if ids else {"id": dataset_id}


def source(dataset_id: str, *ids: str) -> dict[str, Any]:
    """A data set whose chunk source has exactly these ids."""
    return {"id": dataset_id, "chunks": [{"id": i, "bounds": None} for i in ids]}


def of_namespace(namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    """A data set or a job as a resource of a namespace declares it."""
    keys: dict[str, Any] = {
        field: [f"{namespace}/{one}" for one in made[field]] for field in ("inputs", "outputs") if field in made
    }
    return {**made, **keys, "id": f"{namespace}/{made['id']}", "owner": f"{namespace}/{made['id']}"}


def apply(db: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> list[str]:
    """Apply; return the jobs that have QUEUED tasks."""
    return list(apply_allowing(db, datasets, jobs)["woken"])


def apply_allowing(
    db: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]], **consent: Any
) -> dict[str, Any]:
    """Apply with a consent: change, retire, overlap, backfill; return the plan and the jobs that have QUEUED tasks."""
    query = "SELECT opendataflow.apply(%s, %s, 'test', %s) AS applied"
    row = db.execute(query, (Jsonb(datasets), Jsonb(jobs), Jsonb(consent))).fetchone()
    assert row is not None
    return dict(row["applied"])


def open_lease(db: Connection, seconds: float = 3600) -> str:
    """A lease of a made-up engine."""
    lease = str(uuid.uuid4())
    query = "SELECT opendataflow.open_lease(%s::uuid, 'local', 'host', 'boot', '/runs', make_interval(secs => %s))"
    db.execute(query, (lease, seconds))
    return lease


def claim(db: Connection, lease: str, job_id: str, limit: int = 1) -> list[dict[str, Any]]:
    """Claim; return the runs."""
    return list(claim_all(db, lease, job_id, limit)["runs"])


def claim_all(db: Connection, lease: str, job_id: str, limit: int = 1, rank: int = -1, key: str = "") -> dict[str, Any]:
    """Claim; return the whole answer.

    A claim waits 50 ms for a lock, which an autovacuum may hold for longer on a busy machine. It is then repeated.
    """
    query = "SELECT opendataflow.claim(%s::uuid, %s, %s, %s, decode(%s, 'hex')) AS answer"
    while True:
        try:
            return dict(value(db, query, lease, job_id, limit, rank, key))
        except LockNotAvailable:
            if db.info.transaction_status != TransactionStatus.IDLE:
                raise  # the whole transaction has failed


def end(db: Connection, run: dict[str, Any], verdict: str, **changes: Any) -> dict[str, Any]:
    """Complete a run: verdict DONE, RETRYING (due at once) or FAILED; return the row of the answer."""
    outcome = {
        "run": run["run"],
        "fence": run["fence"],
        "verdict": verdict,
        "state": "SUCCEEDED" if verdict == "DONE" else "FAILED",
        "class": "Success" if verdict == "DONE" else "Application",
        "delay": 0,
        "exit_code": 0 if verdict == "DONE" else 1,
        "message": "fine" if verdict == "DONE" else "exit code 1",
        **changes,
    }
    row = db.execute("SELECT * FROM opendataflow.complete(%s, 'test')", (json.dumps([outcome]),)).fetchone()
    assert row is not None
    return row


def ask(db: Connection, verb: str, owner: str, *ids: str) -> list[dict[str, Any]]:
    """Call a verb of tasks (resubmit, hold …) or chunks (publish, hold_chunks …); return its rows as they are."""
    query = f"SELECT * FROM opendataflow.{verb}(%s, %s, 'test', NULL)"
    return db.execute(query, (owner, list(ids))).fetchall()


def chunks(db: Connection) -> dict[str, str]:
    """Every chunk's status by 'data set/id'."""
    return {f"{r['dataset']}/{r['data_id']}": r["status"] for r in db.execute("SELECT * FROM opendataflow.chunk")}


def tasks(db: Connection) -> dict[str, str]:
    """Every task's state by 'job/id'."""
    return {f"{r['job']}/{r['data_id']}": r["state"] for r in db.execute("SELECT * FROM opendataflow.task")}


def problems(db: Connection) -> list[str]:
    """What `verify` finds."""
    return [row["verify"] for row in db.execute("SELECT * FROM opendataflow.verify()")]


def value(db: Connection, query: str, *values: object) -> Any:
    """The one value that a query returns."""
    row = db.execute(query, values).fetchone()
    assert row is not None
    return next(iter(row.values()))


def task(db: Connection, job_id: str, data_id: str) -> dict[str, Any]:
    """The whole row of one task."""
    row = db.execute("SELECT * FROM opendataflow.task WHERE job = %s AND data_id = %s", (job_id, data_id)).fetchone()
    assert row is not None
    return row


def chunk(db: Connection, dataset_id: str, data_id: str) -> dict[str, Any]:
    """The whole row of one chunk."""
    query = "SELECT * FROM opendataflow.chunk WHERE dataset = %s AND data_id = %s"
    row = db.execute(query, (dataset_id, data_id)).fetchone()
    assert row is not None
    return row


def transitions(db: Connection, kind: str, owner: str, data_id: str) -> list[str]:
    """The states that the history of a chunk or task goes through, from the first one on."""
    query = """SELECT from_state, to_state FROM opendataflow.history
               WHERE kind = %s AND owner = %s AND data_id = %s ORDER BY id"""
    rows = db.execute(query, (kind, owner, data_id)).fetchall()
    return [row["from_state"] for row in rows[:1]] + [row["to_state"] for row in rows]


def raw(db: Connection, statement: str, *values: object) -> None:
    """Change a state around the functions, as nothing but a test does: for states that no function reaches yet."""
    for setting in ("event", "actor"):
        db.execute("SELECT set_config(%s, 'test', false)", (f"opendataflow.{setting}",))
    db.execute(statement, values)
