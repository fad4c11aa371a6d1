"""Text about the plan of an apply: its lines, and why it was refused. Pure."""

from collections.abc import Iterator, Sequence

from opendataflow.core.text.explain import counted
from opendataflow.model.records.plan import DataSetChange, JobChange, Plan
from opendataflow.names import PlanNeed

MOST_CLAUSES = 3
"""The most consequences that a sentence names."""

WIDTH = 80
"""The most columns of a line, as far as the names of data sets and jobs permit."""


def plan_lines(plan: Plan) -> list[str]:
    """Return the plan as lines of text."""
    lines = [f"plan {plan.hash}"]
    for dataset in plan.datasets:
        lines += [f"  data set {dataset.dataset}", *(f"    {line}" for line in _dataset_lines(dataset))]
    for job in plan.jobs:
        lines += [f"  job {job.job}", *(f"    {line}" for line in _job_lines(job))]
    return lines if len(lines) > 1 else ["no changes of chunks or tasks"]


def changes_more_than_it_adds(plan: Plan) -> bool:
    """Return whether the plan changes or removes chunks or tasks."""
    chunks = (one.returned or one.retired or one.changed or one.overlapping for one in plan.datasets)
    tasks = (
        one.removed or one.retired or one.incomplete or one.changed or one.stale or one.fresh or one.removed_outputs
        for one in plan.jobs
    )
    return any(chunks) or any(tasks)


def _dataset_lines(change: DataSetChange) -> Iterator[str]:
    retired, changed = (
        _finished(change.retired, change.retired_finished),
        _finished(change.changed, change.changed_finished),
    )
    verb = "overlaps" if change.overlapping == 1 else "overlap"
    yield from _line("+", change.added, f"{counted(change.added, 'chunk')} added", change.examples.get("added"))
    returns = _returns(change.returned, "chunk")
    yield from _line("+", change.returned, f"{returns}, as before", change.examples.get("returned"))
    retired_text = f"{counted(change.retired, 'chunk')} retired{retired}"
    yield from _line("-", change.retired, retired_text, change.examples.get("retired"))
    changed_text = f"{counted(change.changed, 'chunk')} with other bounds{changed}"
    yield from _line("~", change.changed, changed_text, change.examples.get("changed"))
    overlapping = f"{counted(change.overlapping, 'chunk')} {verb} others"
    yield from _line("!", change.overlapping, overlapping, change.examples.get("overlapping"))


def _finished(count: int, finished: int) -> str:
    if not finished:
        return ""
    return ", finished" if count == 1 else f", {finished} of them finished"


def _returns(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'returns' if count == 1 else 'return'}"


def _returned(change: JobChange) -> Sequence[tuple[str, int]]:
    """Return how many tasks return in which state."""
    return ("done", change.returned_done), ("held", change.returned_held), ("skipped", change.returned_skipped)


def _job_lines(change: JobChange) -> Iterator[str]:
    outputs, added = ", ".join(change.outputs), change.added or 0
    texts = (
        ("+", "added", added, f"{counted(added, 'task')} added"),
        *(
            ("+", f"returned_{state}", count, f"{_returns(count, 'task')}, still {state}")
            for state, count in _returned(change)
        ),
        ("-", "removed", change.removed, f"{counted(change.removed, 'task')} removed, still to do"),
        ("-", "retired", change.retired, f"{counted(change.retired, 'finished task')} retired"),
        (
            "!",
            "incomplete",
            change.incomplete,
            f"{counted(change.incomplete, 'finished task')} without output {outputs}",
        ),
        ("~", "changed", change.changed, f"{counted(change.changed, 'finished task')} with other bounds"),
        ("~", "stale", change.stale, f"{counted(change.stale, 'finished task')} stale, because the inputs change"),
        ("~", "fresh", change.fresh, f"{counted(change.fresh, 'finished task')} not stale any more"),
    )
    for sign, name, count, text in texts:
        yield from _line(sign, count, text, change.examples.get(name))
    for output in change.removed_outputs:
        yield f"- output {output} is made no more, and its chunks stay"


def _line(sign: str, count: int, text: str, examples: Sequence[str] | None) -> Iterator[str]:
    """Yield a line with as many examples as fit, if there is anything to count."""
    if not count:
        return
    line, ids = f"{sign} {text}", list(examples or ())
    while ids:
        more = ", …" if count > len(ids) else ""
        whole = f"{line}: {', '.join(ids)}{more}"
        if len(whole) <= WIDTH - 4:
            yield whole
            return
        ids.pop()
    yield line


def refused_sentence(plan: Plan) -> str:
    """Return why a plan was refused, without the remedy, which depends on the caller."""
    found = list(_consequences(plan))
    more = f"; and {counted(len(found) - MOST_CLAUSES, 'further change')}" if len(found) > MOST_CLAUSES else ""
    if plan.needs == (PlanNeed.OVERLAP,):
        return f"nothing was changed: {'; '.join(found[:MOST_CLAUSES])}{more}"
    return f"nothing was changed, because finished work is affected: {'; '.join(found[:MOST_CLAUSES])}{more}"


def _consequences(plan: Plan) -> Iterator[str]:
    if PlanNeed.RETIRE in plan.needs:
        jobs = [job for job in plan.jobs if job.retired]
        for job in jobs:
            yield f"{counted(job.retired, 'finished task')} of job {job.job} would be retired{_some(job, 'retired')}"
        for dataset in () if jobs else plan.datasets:
            if dataset.retired_finished:
                chunks = counted(dataset.retired_finished, "finished chunk")
                yield f"{chunks} of data set {dataset.dataset} would be retired"
    for dataset in plan.datasets:
        if dataset.overlapping:
            yield overlap_sentence(dataset)
    for job in plan.jobs:
        if job.incomplete:
            some = _some(job, "incomplete")
            tasks = counted(job.incomplete, "finished task")
            yield f"{tasks} of job {job.job} never made the new output {', '.join(job.outputs)}{some}"
        if job.changed:
            yield f"{counted(job.changed, 'finished task')} of job {job.job} had other bounds{_some(job, 'changed')}"


def overlap_sentence(change: DataSetChange) -> str:
    """Return which chunks would process rows again."""
    chunks, some = counted(change.overlapping, "chunk"), _some(change, "overlapping")
    return f"{chunks} of data set {change.dataset} would process rows again, because bounds overlap{some}"


def _some(change: DataSetChange | JobChange, name: str) -> str:
    ids, count = change.examples.get(name, ()), getattr(change, name)
    return f" ({', '.join(ids[:3])}{', …' if count > len(ids[:3]) else ''})"


def options_sentence(plan: Plan, allowed: str | None) -> str:
    """Return the options of `dataflow apply` that give the missing consents. `allowed`: the hash that was given."""
    if allowed not in (None, plan.hash):
        return f"plan {allowed} is not this plan: look at this one, and allow {plan.hash}"
    flags = [f"--allow-{need}" for need in plan.missing if need is not PlanNeed.BACKFILL]
    choice = "--backfill all (process them again) or --backfill none (leave them as they are)"
    if not flags:
        return f"to apply it, add {choice}" if PlanNeed.BACKFILL in plan.missing else ""
    also = f", and {choice}" if PlanNeed.BACKFILL in plan.missing else ""
    return f"to apply it, add --allow {plan.hash} (this plan only) or {' '.join(flags)}{also}"


def resource_sentence(plan: Plan, allowed: str | None) -> str:
    """Return the field of a custom resource that gives the missing consents. `allowed`: the hash in spec.allow."""
    backfill = ", backfill: all or none" if PlanNeed.BACKFILL in plan.missing else ""
    stale = f"spec.allow names another plan, {allowed}; " if allowed not in (None, plan.hash) else ""
    return f"{stale}to apply it, write spec.allow: {{change: {plan.hash}{backfill}}}"
