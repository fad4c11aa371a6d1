"""The cases of Spark jobs in tests/unit/data/spark: a job and what is remembered of its data sets, as pods.

What is expected is two documents: the pod, and what its driver is to do, which the pod has as an annotation.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from opendataflow import names
from opendataflow.control.resources.orders import PodOrders
from opendataflow.core.kubernetes.pods import Operator
from opendataflow.core.kubernetes.policy.pod_security import PodPolicy
from opendataflow.keys import key_of
from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Host
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.names import API_VERSION
from tests.pods import NONCE

CASES = Path(__file__).parent / "unit" / "data" / "spark"
OPERATOR = Operator(
    engine="0123456789ab",
    image="example.org/opendataflow:1",
    spark_image="example.org/spark:1",
    spark_account="opendataflow-spark",
    policy=PodPolicy(accounts=("opendataflow-spark", "loader")),
)
Document = dict[str, Any]


def job_of(written: Document) -> DataFlowJob:
    """A job as a cluster takes it."""
    whole = {"apiVersion": API_VERSION, "kind": "DataFlowJob", **written}
    return DataFlowJob.model_validate(whole, context=CLUSTER_CONTEXT, by_name=False)


def orders(case: Document) -> PodOrders:
    """Return the order maker of a case."""
    return PodOrders(job_of(case["job"]), "", OPERATOR)


def declared(case: Document) -> DeclaredJob:
    """Return what the store has of a case."""
    columns = dict.fromkeys(DataSetFacts.__dataclass_fields__) | {"options": {}, "secret_ref": None}
    namespace = job_of(case["job"]).metadata.namespace
    rows = ({**columns, **row, "id": key_of(namespace, row["id"]), "itemtype": "IN"} for row in case["datasets"])
    return DeclaredJob({"tests": None}, tuple(rows))


def made(case: Document) -> tuple[Document, Document]:
    """The pod and the order of a case."""
    run = _claimed(job_of(case["job"]).id, **case["run"])
    pod = dict(orders(case)(run, declared(case)).manifest)
    return pod, json.loads(pod["metadata"]["annotations"].pop(names.ANNOTATION_SPARK))


def _claimed(job: str, run: int, data_id: str, fence: int, attempt: int) -> ClaimedRun:
    return ClaimedRun(run, job, data_id, fence, attempt, 0, 0, {}, "lease", Host("kubernetes", ""), "", NONCE)


def cases() -> list[str]:
    """The names of the cases."""
    return sorted(path.stem for path in CASES.glob("*.yaml") if "." not in path.stem)


def case(name: str) -> Document:
    """One case, as it is written down."""
    read: Document = yaml.safe_load((CASES / f"{name}.yaml").read_text("utf-8"))
    return read


def expected(name: str) -> tuple[Document, Document]:
    """The pod and the order that a case is to become."""
    pod, order = yaml.safe_load_all((CASES / f"{name}.manifest.yaml").read_text("utf-8"))
    return pod, order


def with_order(pod: Document, order: Document) -> Document:
    """The pod as it is sent."""
    annotations = {**pod["metadata"]["annotations"], names.ANNOTATION_SPARK: json.dumps(order)}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
