"""Conversions between rows of SQL functions and records of runs."""

from dataclasses import asdict

from opendataflow.model.records.claim import Claimed, ClaimedRun, Completion, DeclaredJob, Position
from opendataflow.model.records.run import Host
from opendataflow.store.connections.connection import Row


def claimed(answer: Row) -> Claimed:
    """Convert the answer of a claim."""
    runs = tuple(claimed_run({**answer["owner"], **run}) for run in answer["runs"])
    job = declared(answer["facts"]) if answer["facts"] else None
    return Claimed(runs, answer["dropped"], Position(answer["rank"], answer["key"]), job)


def declared(facts: Row) -> DeclaredJob:
    """Convert the facts about one job."""
    return DeclaredJob(facts["job"], tuple(facts["datasets"]))


def claimed_run(row: Row) -> ClaimedRun:
    """Convert the values of one run."""
    return ClaimedRun(
        run=row["run"],
        job=row["job"],
        data_id=row["data_id"],
        fence=row["fence"],
        attempt=row["attempt"],
        attempts=row["attempts"],
        infrastructure_attempts=row["infrastructure_attempts"],
        bounds=row["bounds"],
        lease=row["lease"],
        host=Host(row["host"], row["boot"]),
        runs_home=row["runs_home"],
        nonce=row["nonce"],
        before_restore=row.get("before_restore", False),
    )


def outcome_row(completion: Completion) -> Row:
    """Return the outcome of a run as `complete` reads it."""
    steps = {"steps": [asdict(step) for step in completion.steps]} if completion.steps else {}
    return {
        **steps,
        "run": completion.run,
        "fence": completion.fence,
        "verdict": completion.verdict,
        "state": completion.state,
        "class": completion.kind,
        "delay": completion.delay,
        "exit_code": completion.exit_code,
        "message": completion.message,
        "reason": completion.reason,
        "log_tail": completion.log_tail,
        "log_path": completion.log_path,
        "pod_uid": completion.pod_uid,
        "node": completion.node,
        "metrics": completion.metrics,
    }
