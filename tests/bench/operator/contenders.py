"""Those whom the operator is measured beside: Kubernetes' own Indexed Job, and the bare API calls."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.operator.loads import Load, Measured
from tests.bench.operator.place import LONGEST, Place, behaviour, container
from tests.bench.operator.processes import costs
from tests.bench.operator.watching import Watching
from tests.waiting import wait_until


def indexed_job(place: Place, namespace: str, name: str, load: Load) -> Measured:
    """Work off a load by an Indexed Job: from its creation until it is Complete."""
    pod = {
        "metadata": {"annotations": behaviour(str(load.seconds))},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", **container()}]},
    }
    spec = {
        "completionMode": "Indexed",
        "completions": load.pods,
        "parallelism": load.parallelism,
        "backoffLimit": 0,
        "template": pod,
    }
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with Watching(place.plane.kubeconfig, namespace):  # what it costs, it costs everybody
        before, begun = costs(place.meters), time.time()
        place.api.create(jobs, {"metadata": {"name": name}, "spec": spec})
        wait_until(lambda: _complete(place.api.get(f"{jobs}/{name}")), f"{name} is complete", seconds=LONGEST)
        measured = Measured(load, time.time() - begun, costs(place.meters).since(before))
    place.api.delete(f"{jobs}/{name}", propagationPolicy="Orphan")
    place.empty(namespace)
    return measured


def _complete(job: Mapping[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def bare(place: Place, namespace: str, load: Load, manifests: Sequence[Mapping[str, Any]]) -> Measured:
    """Work off manifests by a plain loop."""
    file = place.folder / "manifests.json"
    file.write_text(json.dumps(manifests))
    before = costs(place.meters)
    arguments = (str(place.plane.kubeconfig), str(file), str(load.parallelism))
    with Watching(place.plane.kubeconfig, namespace):
        costs_of_loop = place.python("tests.bench.operator.bare", *arguments)
    cpu = {**costs(place.meters).since(before), "loop": costs_of_loop["cpu"]}
    place.empty(namespace)
    return Measured(load, costs_of_loop["seconds"], cpu)
