"""Resources that the tests of the operator apply, and questions about what has become of them in Postgres."""

from collections import Counter
from typing import Any

import psycopg
import yaml
from psycopg.rows import dict_row

from opendataflow.names import API_VERSION


def dataset(name: str, chunks: int | None = None, **spec: Any) -> dict[str, Any]:
    """A DataSet with chunks "0-0", "1-1" … where their number is given."""
    source = {} if chunks is None else {"chunkSource": {"range": {"from": 0, "to": chunks, "step": 1}}}
    return _resource("DataSet", name, {**source, **spec})


def job(
    name: str, inputs: list[str], outputs: list[str], pods: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A DataFlowJob whose pods do what their annotations say; see tests/kube/cluster/stages.py."""
    annotations = {f"test.opendataflow.io/{key}": value for key, value in (pods or {}).items()}
    return _resource(
        "DataFlowJob",
        name,
        {
            "inputs": inputs,
            "outputs": outputs,
            "parallelism": 3,
            "retry": {"backoff": {"initial": "0s", "max": "0s"}},
            "runtime": {"script": {"image": "busybox", "command": ["true"]}},
            "podTemplate": {"metadata": {"annotations": annotations}},
            **spec,
        },
    )


def action(name: str, **spec: Any) -> dict[str, Any]:
    """A DataFlowAction."""
    return _resource("DataFlowAction", name, spec)


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


PLURALS = {"DataSet": "datasets", "DataFlowJob": "dataflowjobs", "DataFlowAction": "dataflowactions"}


def path_of(namespace: str, resource: dict[str, Any]) -> str:
    """Where the API server has a resource."""
    plural, name = PLURALS[resource["kind"]], resource["metadata"]["name"]
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}/{name}"


def documents(*resources: dict[str, Any]) -> str:
    """The text of a file with these resources."""
    return yaml.safe_dump_all(resources)


class Database:
    """What Postgres knows, for asking again and again."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)

    def reopen(self) -> None:
        """Connect anew: the server was unreachable."""
        self._connection.close()
        self._connection = psycopg.connect(self._dsn, autocommit=True, row_factory=dict_row)

    def close(self) -> None:
        self._connection.close()

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        return self._connection.execute(query, values).fetchall()

    def states(self, job_id: str) -> Counter[str]:
        """How many tasks of a job are in which state. `job_id`: without its namespace, or the whole key."""
        query = "SELECT state FROM opendataflow.task WHERE %s IN (job, opendataflow.bare_id(job))"
        return Counter(row["state"] for row in self.rows(query, job_id))

    def running(self, job_id: str) -> int:
        """How many runs of a job there are."""
        return self.states(job_id)["RUNNING"]

    def done(self, job_id: str) -> int:
        """How many tasks of a job are done."""
        return self.states(job_id)["DONE"]

    def problems(self, of: str = "") -> list[str]:
        """What `dataflow db verify` finds, and what may not be left when nothing runs. `of`: the keys begin so."""
        found = [row["verify"] for row in self.rows("SELECT * FROM opendataflow.verify()")]
        found += [
            f"{row['dataset']}/{row['data_id']} is still read"
            for row in self.rows(
                "SELECT dataset, data_id FROM opendataflow.chunk WHERE readers > 0 AND starts_with(dataset, %s)", of
            )
        ]
        return found

    def published_more_than_once(self, of: str = "") -> list[str]:
        """Chunks that became READY by more runs than they were asked for: once, and once for each resubmit. `of`: the
        beginning of the keys."""
        rows = self.rows(
            """SELECT h.owner || '/' || h.data_id AS chunk,
                      count(*) FILTER (WHERE h.to_state = 'READY' AND h.event = 'complete') AS published,
                      count(*) FILTER (WHERE h.to_state = 'RESUBMIT') AS asked
               FROM opendataflow.history h WHERE h.kind = 'chunk' AND starts_with(h.owner, %s) GROUP BY 1""",
            of,
        )
        return [f"{row['chunk']}: {row}" for row in rows if row["published"] > 1 + row["asked"]]
