"""Kubeflow's Spark operator, for the tests here. Without its program they are left out, and the end reports it."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.kubeflow.spark_operator import VARIABLE, SparkOperator, find
from tests.e2e.cluster.real_cluster import RealCluster
from tests.left_out import left_out, report_left_out

_LEFT_OUT = "no Spark operator of Kubeflow"
_REQUIRED = "DATAFLOW_REQUIRE_SPARK_OPERATOR"


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Report at the end of the run that these tests were left out."""
    yield
    report_left_out(
        session,
        _LEFT_OUT,
        "TESTS WITH KUBEFLOW'S SPARK OPERATOR WERE LEFT OUT",
        f"{VARIABLE} has to name a folder with its program: see docs/tests.md.",
    )


@pytest.fixture(scope="session")
def spark_operator(tmp_path_factory: pytest.TempPathFactory) -> SparkOperator:
    """Its program and its definitions."""
    with left_out(_LEFT_OUT, _REQUIRED):
        return find(tmp_path_factory.mktemp("spark-operator"))


@pytest.fixture
def submitting(spark_operator: SparkOperator, cluster: RealCluster, namespace: str) -> Iterator[None]:
    """It works in the fresh namespace."""
    spark_operator.install(cluster.api)
    with spark_operator.operating(cluster.api, namespace):
        yield
