"""Jobs and data sets as custom resources of a namespace: changes their limits and reads their statuses.

A status is some seconds older than Postgres and has fewer fields. The missing fields are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from opendataflow.cli.cluster.choice import Cluster, with_cluster
from opendataflow.core.text.explain import stale_sentence
from opendataflow.core.text.moments import rate
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.keys import bare, input_key, key_of
from opendataflow.names import COUNTED_TASKS, ConditionType, Reason

Resource = Mapping[str, Any]
Row = dict[str, Any]

_SHOWN_CONDITIONS = (
    ("Stalled", "True", "stalled"),
    ("DatabaseReachable", "False", "database"),
    ("BreakerOpen", "True", "breaker"),
    ("Succeeded", Reason.DECLARING, "declaring"),
    ("TestsPassed", "False", "tests"),
)


def scale(job: str, parallelism: int, reason: str | None) -> Row:
    """Change spec.parallelism of a job. Return its limits before and after, like `Store.scale`."""
    found = _change(job, {"parallelism": parallelism}, reason)
    return {**_limits(found), "before": found["spec"].get("parallelism", 1), "after": parallelism}


def suspend(job: str, reason: str | None, *, suspended: bool) -> Row:
    """Change spec.suspend of a job. Return its limits before and after, like `Store.suspend`."""
    found = _change(job, {"suspend": suspended}, reason)
    return {**_limits(found), "before": found["spec"].get("suspend", False), "after": suspended}


def list_jobs() -> list[Row]:
    """Return a row for each job of the namespace, like `Store.list_jobs`."""
    return [_job_row(job) for job in with_cluster(lambda cluster: _all(cluster, "dataflowjobs"))]


def list_datasets() -> list[Row]:
    """Return a row for each data set of the namespace, like `Store.list_datasets`."""

    async def ask(cluster: Cluster) -> tuple[list[Resource], list[Resource]]:
        return await _all(cluster, "datasets"), await _all(cluster, "dataflowjobs")

    datasets, jobs = with_cluster(ask)
    return [_dataset_row(dataset, jobs) for dataset in datasets]


def statuses(names: Sequence[str]) -> list[Row]:
    """Return the statuses of jobs. `names` is empty: of all jobs of the namespace."""

    async def ask(cluster: Cluster) -> list[Resource]:
        return await _all(cluster, "dataflowjobs")

    async def ask_one(cluster: Cluster, name: str) -> Resource:
        return _find_job(cluster, await _all(cluster, "dataflowjobs"), bare(name))

    jobs = [with_cluster(partial(ask_one, name=name), name) for name in names] if names else with_cluster(ask)
    return [{**_limits(job), **(job.get("status") or {})} for job in jobs]


def task_counts(status: Row) -> dict[str, int]:
    """Return the number of tasks by state."""
    counts = status.get("counts") or {}
    return {state.value: counts.get(state.value.lower(), 0) for state in COUNTED_TASKS}


def stale_count(status: Row) -> int:
    """Return the number of DONE tasks that are stale."""
    return int((status.get("counts") or {}).get("stale", 0))


def lines(status: Row) -> Iterator[str]:
    """Yield the lines below the counts of a job."""
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    if not status.get("counts") and not conditions:
        yield "status     none yet: the operator has not taken the job over"
    for kind, value, word in _SHOWN_CONDITIONS:
        if value in (conditions.get(kind, {}).get("status"), conditions.get(kind, {}).get("reason")):
            yield f"{word:<10} {conditions[kind].get('message') or conditions[kind].get('reason')}"
    if status.get("rate"):
        left = f", about {status['eta']} left" if status.get("eta") else ""
        yield f"rate       {rate(status['rate'] / 60)}{left}"
    stale = stale_count(status)
    if status.get("watermark"):
        yield f"watermark  all done up to {status['watermark']}{', stale ones included' if stale else ''}"
    if stale:
        yield f"stale      {stale_sentence(status['job'], stale)}"
    for failure in status.get("lastFailures") or ():
        forced = ", forced" if failure.get("forced") else ""
        yield f"failed     {failure['dataId']}, run {failure['run']}{forced}: {failure['message']}"


def _change(job: str, spec: Row, reason: str | None) -> Resource:
    if reason is not None:
        raise InvalidInput(
            "--reason goes into the history in Postgres, which a change of a DataFlowJob does not: leave it out"
        )

    async def change(cluster: Cluster) -> Resource:
        from opendataflow.launch.cluster.api import custom

        found = _find_job(cluster, await _all(cluster, "dataflowjobs"), bare(job))
        name = found["metadata"]["name"]
        await cluster.api.patch_merge(custom("dataflowjobs"), cluster.namespace, name, {"spec": spec})
        return found

    return with_cluster(change, job)


async def _all(cluster: Cluster, plural: str) -> list[Resource]:
    """Return all resources of a kind, sorted by id."""
    from opendataflow.launch.cluster.api import custom

    found = [item async for items, _ in cluster.api.pages(custom(plural), cluster.namespace) for item in items]
    return sorted(found, key=_id)


def _find_job(cluster: Cluster, jobs: Sequence[Resource], name: str) -> Resource:
    found = next((job for job in jobs if _id(job) == name), None)
    if found is None:
        hint = did_you_mean(name, [_id(job) for job in jobs])
        raise UnknownThing(f"there is no job {name} in namespace {cluster.namespace}{hint}")
    return found


def _id(resource: Resource) -> str:
    return str(resource["spec"].get("id") or resource["metadata"]["name"])


def _reads(job: Resource, dataset: Resource) -> bool:
    """Return whether a job reads a data set of its namespace, whichever way it is written."""
    namespace = dataset["metadata"]["namespace"]
    return key_of(namespace, _id(dataset)) in [input_key(namespace, name) for name in job["spec"].get("inputs") or ()]


def _limits(job: Resource) -> Row:
    return {
        "job": _id(job),
        "parallelism": job["spec"].get("parallelism", 1),
        "suspended": job["spec"].get("suspend", False),
        "running": _counts(job).get("running", 0),
    }


def _counts(resource: Resource) -> Mapping[str, int]:
    return (resource.get("status") or {}).get("counts") or {}


def _job_row(job: Resource) -> Row:
    counts, spec = _counts(job), job["spec"]
    numbers = {name: counts.get(name, 0) for name in ("done", "total", "stale", "running", "retrying", "failed")}
    return {
        "job": _id(job),
        "state": (job.get("status") or {}).get("state"),
        **numbers,
        "parallelism": spec.get("parallelism", 1),
        "inputs": ", ".join(sorted(spec.get("inputs") or ())) or None,
        "outputs": ", ".join(sorted(spec.get("outputs") or ())) or None,
    }


def _dataset_row(dataset: Resource, jobs: Sequence[Resource]) -> Row:
    counts, place = _counts(dataset), dataset["spec"].get("location") or {}
    name = _id(dataset)
    table = ".".join(place[part] for part in ("database", "schemaname", "tablename") if place.get(part))
    return {
        "dataset": name,
        "kind": place.get("kind") or place.get("format"),
        "place": place.get("url") or table,
        "producer": next((_id(job) for job in jobs if name in (job["spec"].get("outputs") or ())), None),
        "consumers": ", ".join(_id(job) for job in jobs if _reads(job, dataset)) or None,
        "ready": counts.get("ready", 0),
        "failed": counts.get("failed", 0),
        "chunks": counts.get("total", 0),
        "declaring": _declaring(dataset),
    }


def _declaring(resource: Resource) -> str | None:
    """Return how many of how many chunks are declared, while more follow."""
    for condition in (resource.get("status") or {}).get("conditions") or ():
        if condition["type"] == ConditionType.PROGRESSING and condition.get("reason") == Reason.DECLARING:
            return str(condition.get("message", "")).removeprefix("declaring ").removesuffix(" chunks")
    return None
