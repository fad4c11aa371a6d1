"""What an apply of many jobs does goes by their number: twice as many jobs that feed each other cost twice as much.

What is counted are the rows that pass through all nodes of all plans, which no busy machine changes.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql import graph
from tests.sql.conftest import Connection

FEW, MANY = 40, 160
AT_MOST = 1.4
"""What a job of many may cost more than one of few."""

SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}

Flow = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def chain(name: str, jobs: int, **changes: Any) -> Flow:
    """Jobs that feed each other, and their data sets."""
    names = [f"{name}-{number}" for number in range(jobs + 1)]
    datasets = [graph.dataset(names[0], "1", "2", "3"), *(graph.dataset(other) for other in names[1:])]
    return datasets, [graph.job(f"{a}-job", [a], [b], **changes) for a, b in itertools.pairwise(names)]


def _rows(plan: dict[str, Any]) -> float:
    counted = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Join Filter", 0)
    return float(counted * plan["Actual Loops"]) + sum(map(_rows, plan.get("Plans", ())))


@contextmanager
def counting(db: Connection) -> Iterator[Callable[[], float]]:
    """Count the rows that pass through plans, while the block goes on."""
    rows: list[float] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        _, found, text = (diagnostic.message_primary or "").partition("plan:\n")
        if found:
            rows.append(_rows(json.loads(text)["Plan"]))

    db.add_notice_handler(note)
    yield lambda: sum(rows)
    db.remove_notice_handler(note)


@pytest.fixture
def explained(db: Connection) -> Connection:
    """A connection that gets the plan of every statement, also of those within functions."""
    try:
        db.execute("LOAD 'auto_explain'")
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("only a superuser can load auto_explain")
    for name, setting in SETTINGS.items():
        db.execute("SELECT set_config(%s, %s, false)", (name, setting))
    return db


def apply(db: Connection, flow: Flow) -> None:
    graph.apply(db, *flow)


def plan(db: Connection, flow: Flow) -> None:
    db.execute("SELECT opendataflow.plan_apply(%s, %s)", (Jsonb(flow[0]), Jsonb(flow[1])))


def publish(db: Connection, name: str) -> None:
    db.execute("SELECT opendataflow.publish(%s, %s, 'test')", (name, ["4"]))


def end_of(flow: Flow) -> Flow:
    return flow[0][:1], flow[1][:1]


def story(db: Connection, name: str, jobs: int) -> dict[str, float]:
    """Plan, apply and change a chain; return the rows of each step for each job."""
    flow = chain(name, jobs)
    steps: dict[str, Callable[[], None]] = {
        "plan": lambda: plan(db, flow),
        "apply": lambda: apply(db, flow),
        "apply again": lambda: apply(db, flow),
        "apply its first job": lambda: apply(db, end_of(flow)),
        "change the order": lambda: apply(db, chain(name, jobs, descending=True)),
        "publish": lambda: publish(db, f"{name}-0"),
    }
    done = {}
    for step, do in steps.items():
        with counting(db) as counted:
            do()
        done[step] = counted() / jobs
    return done


def test_many_jobs_that_feed_each_other_cost_no_more_each_than_few(explained: Connection) -> None:
    few = story(explained, "few", FEW)
    many = story(explained, "many", MANY)
    assert {step: (few[step], many[step]) for step in few if many[step] > AT_MOST * few[step]} == {}
