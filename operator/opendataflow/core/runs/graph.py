"""Check the graph of jobs and data sets: known data sets, one producer for each, no cycles. Pure.

The check uses all declared resources together. It never uses the state of a chunk.
"""

import difflib
import graphlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.keys import bare, namespace_of
from opendataflow.names import TODAY


@dataclass(frozen=True)
class JobLinks:
    """The ids of the data sets that one job reads (inputs) and writes (outputs)."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check_graph(jobs: Iterable[JobLinks], datasets: Collection[str]) -> None:
    """Check all jobs together. `datasets`: the ids of all declared data sets; `today` is built in.

    Raise InvalidInput with one line for each unknown data set, each producer of `today` and each second producer. Raise
    UnknownThing instead if data sets are unknown and nothing else is wrong. Raise InvalidInput with the path of one
    cycle if there are no other faults.
    """
    ordered = sorted(jobs, key=lambda job: job.id)
    unknown = list(_unknown_datasets(ordered, {*datasets, TODAY}))
    faults = [*_producers_of_today(ordered), *_second_producers(ordered)]
    if unknown or faults:
        kind = InvalidInput if faults else UnknownThing
        raise kind("\n".join([*unknown, *faults]))
    _check_cycles(ordered)


def _unknown_datasets(jobs: list[JobLinks], datasets: Collection[str]) -> Iterator[str]:
    known = set(datasets)
    for job in jobs:
        for field, names in (("inputs", job.inputs), ("outputs", job.outputs)):
            for index, name in enumerate(names):
                if name not in known and not (field == "outputs" and bare(name) == TODAY):
                    close = difflib.get_close_matches(name, _visible(known, job.id, name), n=1)
                    remedy = f"did you mean {close[0]}?" if close else "declare it as a DataSet"
                    yield f"job {job.id}: spec.{field}[{index}]: there is no data set {name}; {remedy}"


def _visible(known: Collection[str], job: str, name: str) -> list[str]:
    """Return the data sets of the job's namespace, if the name is one of them: others are none of its business."""
    namespace = namespace_of(name)
    return sorted(each for each in known if namespace_of(each) == namespace) if namespace == namespace_of(job) else []


def _producers_of_today(jobs: list[JobLinks]) -> Iterator[str]:
    for job in jobs:
        if TODAY in map(bare, job.outputs):
            yield f"job {job.id}: spec.outputs: the data set {TODAY} is built in and comes by itself; no job makes it"


def _second_producers(jobs: list[JobLinks]) -> Iterator[str]:
    producers: dict[str, str] = {}
    for job in jobs:
        for name in job.outputs:
            if name in producers:
                yield (
                    f"job {job.id}: spec.outputs: the data set {name} is made by the job {producers[name]} "
                    "already; one job makes a data set; after a rename, delete the job with the old name first: "
                    "dataflow delete JOB (on a cluster, delete its DataFlowJob)"
                )
            producers.setdefault(name, job.id)


def _check_cycles(jobs: list[JobLinks]) -> None:
    producers = {name: job.id for job in jobs for name in job.outputs}
    edges = {(producers[name], job.id): name for job in jobs for name in job.inputs if name in producers}
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for producer, reader in edges:
        sorter.add(reader, producer)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        # In the path, each job reads an output of the job before it. It starts with the lowest id, so that the message
        # is the same every time.
        cycle = error.args[1][:-1]
        start = cycle.index(min(cycle))
        path = [*cycle[start:], *cycle[: start + 1]]
        links = ", ".join(
            f"{reader} reads {edges[producer, reader]} of {producer}" for producer, reader in itertools.pairwise(path)
        )
        raise InvalidInput(
            f"the jobs wait for each other: {' -> '.join(path)} ({links}); remove one of these inputs"
        ) from None
