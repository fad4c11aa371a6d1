"""Checks that the declared jobs and data sets fit together: every data set is known, made by one job, and no
job waits for itself.

Pure; it looks at the union of what is declared and never at the state of any chunk.
"""

import difflib
import graphlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.names import TODAY


@dataclass(frozen=True)
class JobLinks:
    """The data sets that one job reads and makes, by id."""

    id: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check_graph(jobs: Iterable[JobLinks], datasets: Collection[str]) -> None:
    """Check all jobs together. `datasets`: the ids of all data sets that are declared; `today` is built in.

    Raises InvalidInput with one line for each unknown data set, maker of `today` and second producer; without these,
    with the path of one cycle. UnknownThing where nothing but data sets is missing.
    """
    ordered = sorted(jobs, key=lambda job: job.id)
    unknown = list(_unknown_datasets(ordered, {*datasets, TODAY}))
    faults = [*_makers_of_today(ordered), *_second_producers(ordered)]
    if unknown or faults:
        kind = InvalidInput if faults else UnknownThing
        raise kind("\n".join([*unknown, *faults]))
    _check_cycles(ordered)


def _unknown_datasets(jobs: list[JobLinks], datasets: Collection[str]) -> Iterator[str]:
    known = set(datasets)
    for job in jobs:
        for field, names in (("inputs", job.inputs), ("outputs", job.outputs)):
            for index, name in enumerate(names):
                if name not in known:
                    close = difflib.get_close_matches(name, sorted(known), n=1)
                    remedy = f"did you mean {close[0]}?" if close else "declare it as a DataSet"
                    yield f"job {job.id}: spec.{field}[{index}]: there is no data set {name}; {remedy}"


def _makers_of_today(jobs: list[JobLinks]) -> Iterator[str]:
    for job in jobs:
        if TODAY in job.outputs:
            yield f"job {job.id}: spec.outputs: the data set {TODAY} is built in and comes by itself; no job makes it"


def _second_producers(jobs: list[JobLinks]) -> Iterator[str]:
    producers: dict[str, str] = {}
    for job in jobs:
        for name in job.outputs:
            if name in producers:
                yield (
                    f"job {job.id}: spec.outputs: the data set {name} is made by the job {producers[name]} "
                    "already; one job makes a data set"
                )
            producers.setdefault(name, job.id)


def _check_cycles(jobs: list[JobLinks]) -> None:
    producers = {name: job.id for job in jobs for name in job.outputs}
    between = {(producers[name], job.id): name for job in jobs for name in job.inputs if name in producers}
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for maker, reader in between:
        sorter.add(reader, maker)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        # In the path each job makes what the next one reads; let it begin at the alphabet's first.
        cycle = error.args[1][:-1]
        start = cycle.index(min(cycle))
        path = [*cycle[start:], *cycle[: start + 1]]
        links = ", ".join(
            f"{reader} reads {between[maker, reader]} of {maker}" for maker, reader in itertools.pairwise(path)
        )
        raise InvalidInput(
            f"the jobs wait for each other: {' -> '.join(path)} ({links}); remove one of these inputs"
        ) from None
