"""A data set of many chunks: its status says so until the last chunk, and other namespaces do not wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from opendataflow.names import ConditionType, Reason
from tests.kube.cluster.api import Api
from tests.kube.jobs import dataset, job
from tests.kube.operators import Operators
from tests.kube.test_one_resource import Tenants
from tests.waiting import wait_until

MANY = 30_000


@pytest.fixture
def tenants(cluster: Api, operators: Operators, namespace: str, other_namespace: str) -> Tenants:
    """The operator is started by `begin`."""
    return Tenants(cluster, namespace, other_namespace, operators)


@contextmanager
def batches_stopped(dsn: str) -> Iterator[None]:
    """Let no operator write more than one batch of a namespace.

    A declaration of no namespace has its turn after each batch of one. It waits for a lock that is held here.
    """
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as connection:
        holder.execute("SELECT opendataflow.lock_datasets('{blocked}', true)")
        connection.execute("INSERT INTO opendataflow.dataset (id) VALUES ('blocked')")
        connection.execute(
            """INSERT INTO opendataflow.declaring (kind, id, source, total, batch, actor)
               VALUES ('dataset', 'blocked', '{"hash": {"buckets": 2}}', 2, 2, 'test')"""
        )
        yield
        holder.rollback()


def test_a_job_of_another_namespace_ends_while_many_chunks_are_declared(tenants: Tenants, dsn: str) -> None:
    def big(kind: str, name: str, of: ConditionType) -> tuple[str, str, str]:
        return tenants.condition(tenants.tenant, kind, name, of)

    with batches_stopped(dsn):
        tenants.begin()
        tenants.create(tenants.tenant, dataset("big", MANY))
        tenants.create(tenants.tenant, dataset("made"))
        tenants.create(tenants.tenant, job("reads", ["big"], ["made"], parallelism=0))
        wait_until(
            lambda: big("DataSet", "big", ConditionType.PROGRESSING)[2].endswith(f"of {MANY} chunks"),
            "the status says how many chunks are declared",
        )
        assert big("DataSet", "big", ConditionType.PROGRESSING)[:2] == ("True", Reason.DECLARING)
        assert big("DataSet", "big", ConditionType.READY)[:2] == ("False", Reason.DECLARING)
        assert "watermark" not in tenants.status(tenants.tenant, "DataSet", "big")
        wait_until(
            lambda: big("DataFlowJob", "reads", ConditionType.SUCCEEDED)[:2] == ("False", Reason.DECLARING),
            "the job is not done",
        )
        tenants.create(tenants.other, dataset("small", 1))
        tenants.create(tenants.other, dataset("result"))
        tenants.create(tenants.other, job("quick", ["small"], ["result"]))
        wait_until(
            lambda: tenants.condition(tenants.other, "DataFlowJob", "quick", ConditionType.SUCCEEDED)[0] == "True",
            "the job of the other namespace is done",
        )
        assert big("DataSet", "big", ConditionType.READY)[0] == "False"
    wait_until(lambda: big("DataSet", "big", ConditionType.READY)[0] == "True", "all chunks are declared", seconds=120)
    assert big("DataSet", "big", ConditionType.PROGRESSING)[:2] == ("False", Reason.DECLARED)
    wait_until(
        lambda: tenants.status(tenants.tenant, "DataFlowJob", "reads").get("counts", {}).get("total") == MANY,
        "the job has a task for each chunk",
    )
    assert tenants.operator.alive


def test_an_operator_continues_the_declaration_of_one_that_was_killed(tenants: Tenants, dsn: str) -> None:
    def declared() -> int:
        with psycopg.connect(dsn) as connection:
            (found,) = connection.execute(
                "SELECT coalesce(sum(declared), 0) FROM opendataflow.declaring"
            ).fetchone() or (0,)
        return int(found)

    with batches_stopped(dsn):
        tenants.begin()
        tenants.create(tenants.tenant, dataset("big", MANY))
        tenants.create(tenants.tenant, dataset("made"))
        tenants.create(tenants.tenant, job("reads", ["big"], ["made"], parallelism=0))
        wait_until(lambda: 0 < declared() < MANY, "the first batch is written")
        tenants.operator.kill()
    assert 0 < declared() < MANY
    spaces = f"{tenants.tenant},{tenants.other}"
    tenants.operators.start(DATAFLOW_NAMESPACES=spaces)
    wait_until(
        lambda: tenants.condition(tenants.tenant, "DataSet", "big", ConditionType.READY)[0] == "True",
        "all chunks are declared",
        seconds=120,
    )
    wait_until(
        lambda: tenants.status(tenants.tenant, "DataFlowJob", "reads").get("counts", {}).get("total") == MANY,
        "the job has a task for each chunk",
    )
    with psycopg.connect(dsn) as connection:
        chunks = connection.execute(
            """SELECT count(*), count(DISTINCT data_id), bool_and(status = 'READY')
               FROM opendataflow.chunk WHERE dataset LIKE '%%/big'"""
        ).fetchone()
    assert chunks == (MANY, MANY, True)


def test_a_namespace_with_too_many_chunks_is_stalled_and_nothing_of_the_resource_is_written(
    tenants: Tenants, dsn: str
) -> None:
    spaces = f"{tenants.tenant},{tenants.other}"
    tenants.operators.start(DATAFLOW_NAMESPACES=spaces, DATAFLOW_MAX_CHUNKS_PER_NAMESPACE="10")
    tenants.create(tenants.tenant, dataset("few", 4))
    tenants.create(tenants.other, dataset("others", 8))
    wait_until(
        lambda: tenants.condition(tenants.tenant, "DataSet", "few", ConditionType.READY)[0] == "True",
        "few are accepted",
    )
    tenants.create(tenants.tenant, dataset("more", 7))
    message = tenants.sees("more", Reason.LIMIT_REACHED, kind="DataSet")
    assert "would have 11 chunks, and 10 are allowed" in message
    assert "limits.chunksPerNamespace" in message
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT id FROM opendataflow.dataset WHERE id LIKE '%/more'").fetchall()
    assert found == []
    tenants.goes_on()
