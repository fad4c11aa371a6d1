"""What people ask of chunks and works: resubmit, hold, release, skip, force, publish, accept, reject; and `lost`, by
hand.

Every one is all or nothing: where one id is unknown or refused, nothing is changed.
"""

from collections.abc import Sequence
from typing import Annotated, LiteralString

import typer

from opendataflow.cli.app import actor, app, with_store
from opendataflow.cli.show import did_you_mean
from opendataflow.core.completion import completion
from opendataflow.engine.engine import policy_of
from opendataflow.errors import Refused, UnknownThing
from opendataflow.model.claim import Answer
from opendataflow.model.run import Ended
from opendataflow.store.store import Store

Owner = Annotated[str, typer.Argument(help="A job, or with --dataset a data set.")]
Job = Annotated[str, typer.Argument(help="A job.")]
DataSet = Annotated[str, typer.Argument(help="A data set.")]
DataIds = Annotated[list[str], typer.Argument(help="One data id or more.")]
OfDataset = Annotated[bool, typer.Option("--dataset", help="The first argument is a data set, not a job.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; goes into the history.")]


@app.command("resubmit")
def resubmit(
    owner: Owner,
    data_ids: DataIds,
    dataset: OfDataset = False,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Ask also for all that was made of it, downwards.")
    ] = False,
    reason: Reason = None,
) -> None:
    """Ask for work again: its outputs become RESUBMIT and it runs as soon as its inputs are ready."""
    if cascade:
        _ask("resubmit_chunks_cascade" if dataset else "resubmit_cascade", owner, data_ids, reason)
    else:
        _ask("resubmit_chunks" if dataset else "resubmit", owner, data_ids, reason)


@app.command("hold")
def hold(owner: Owner, data_ids: DataIds, dataset: OfDataset = False, reason: Reason = None) -> None:
    """Keep work from running; with --dataset, keep chunks from being read and written."""
    _ask("hold_chunks" if dataset else "hold", owner, data_ids, reason)


@app.command("release")
def release(owner: Owner, data_ids: DataIds, dataset: OfDataset = False, reason: Reason = None) -> None:
    """Undo a hold or a skip: what was put aside is what it was, with what was asked meanwhile."""
    _ask("release_chunks" if dataset else "release", owner, data_ids, reason)


@app.command("skip")
def skip(job: Job, data_ids: DataIds, reason: Reason = None) -> None:
    """Say that work will not be done; `dataflow release` undoes it."""
    _ask("skip", job, data_ids, reason)


@app.command("force")
def force(job: Job, data_ids: DataIds, reason: Reason = None) -> None:
    """Run work next, whatever its inputs and outputs are; only never beside a run that writes the same chunk."""
    _ask("force", job, data_ids, reason)


@app.command("publish")
def publish(dataset: DataSet, data_ids: DataIds, reason: Reason = None) -> None:
    """Say that chunks of a data set are there: they become READY, new ones are declared by it."""
    _ask("publish", dataset, data_ids, reason)


@app.command("accept")
def accept(dataset: DataSet, data_ids: DataIds, reason: Reason = None) -> None:
    """Say that chunks that wait for it (PENDING) are good: they become READY."""
    _ask("accept", dataset, data_ids, reason)


@app.command("reject")
def reject(dataset: DataSet, data_ids: DataIds, reason: Reason = None) -> None:
    """Say that chunks that wait for it (PENDING) are not good: they and the work that made them become FAILED."""
    _ask("reject", dataset, data_ids, reason)


@app.command("lost")
def lost(
    run: Annotated[int, typer.Argument(help="The run, as `dataflow get runs` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask whether it is certain.")] = False,
) -> None:
    """Say that a run is certainly dead, where the program can't prove it: its host is gone. It is tried again."""
    if not yes:
        typer.confirm(
            f"Is it certain that nothing of run {run} is alive? A second one would write beside it",
            abort=True,
            err=True,
        )

    async def ask(store: Store) -> str:
        found = await store.run(run)
        if found is None:
            raise UnknownThing(f"there is no run {run}: see `dataflow get runs`")
        declared = (await store.declared_jobs([found.job]))[found.job]
        ended = Ended(run, lost=f"said by {actor()}")
        completed, _ = await store.complete([completion(found, ended, policy_of(declared))], actor())
        if completed[0].already:
            raise Refused(f"run {run} has ended already: it is {completed[0].run_state}")
        return f"run {run} is lost; {found.data_id} of job {found.job} is {completed[0].work_state}"

    typer.echo(with_store(ask))


def _ask(verb: LiteralString, owner: str, data_ids: Sequence[str], reason: str | None) -> None:
    async def ask(store: Store) -> tuple[list[Answer], list[str]]:
        try:
            answers = await store.ask(verb, owner, data_ids, actor(), reason)
        except UnknownThing as error:
            raise await _unknown_owner(store, owner, str(error)) from error
        unknown = any(answer.result == "unknown" for answer in answers)
        return answers, await store.known_ids(owner) if unknown else []

    answers, known = with_store(ask)
    _refuse_if_any(answers, known)
    for answer in answers:
        detail = f" ({answer.message})" if answer.message else ""
        typer.echo(f"{answer.job or owner} {answer.data_id}: {answer.state}{detail}")


async def _unknown_owner(store: Store, owner: str, said: str) -> UnknownThing:
    jobs = [row["job"] for row in await store.list_jobs()]
    datasets = [row["dataset"] for row in await store.list_datasets()]
    if owner in datasets:
        return UnknownThing(f"{said}: it is a data set, which needs --dataset")
    if owner in jobs:
        return UnknownThing(f"{said}: it is a job")
    return UnknownThing(f"{said}{did_you_mean(owner, jobs if ' no job ' in said else datasets)}")


def _refuse_if_any(answers: Sequence[Answer], known: Sequence[str]) -> None:
    """Raise the sentences of what can't be done; nothing was changed then."""
    unknown = [f"{a.message}{did_you_mean(a.data_id, known)}" for a in answers if a.result == "unknown"]
    refused = [str(a.message) for a in answers if a.result == "refused"]
    rest = "; nothing was changed" if len(answers) > 1 else ""
    if unknown:
        raise UnknownThing("; ".join(unknown) + rest)
    if refused:
        raise Refused("; ".join(refused) + rest)
