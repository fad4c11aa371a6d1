"""`dataflow inspect`: answers five questions about the chunk of a task, and looks at its locations on request."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.output.printing import Output, print_document, print_indented
from opendataflow.cli.output.screen import Text, console
from opendataflow.cli.reports.describe import DataIdArgument, JobArgument, without_internals
from opendataflow.cli.reports.status import task_status
from opendataflow.core.status.evidence import Facts
from opendataflow.core.status.inspection import InspectionAnswer, inspection_answers
from opendataflow.core.text.explain import declaring_sentence, explain
from opendataflow.errors import UnknownThing
from opendataflow.model.records.look import Look
from opendataflow.names import TODAY, Answer, ChunkStatus, ExitCode, TaskState
from opendataflow.store.loading import dataset_row
from opendataflow.store.store import Store

if TYPE_CHECKING:
    from opendataflow.opening.looking import Expected

_OPEN = (TaskState.WAITING, TaskState.QUEUED, TaskState.RETRYING, TaskState.HELD, TaskState.SKIPPED)


@app.command("five", hidden=True)  # the name in the old framework
@app.command("inspect")
def inspect(
    job: JobArgument,
    data_id: DataIdArgument,
    check: Annotated[
        bool, typer.Option("--check", help="Look at the locations of inputs and outputs now, from this machine.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="With --check: the folder of the job's file, for relative paths.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="With --check: the most seconds for all locations.")
    ] = 10,
    output: OutputOption = Output.TABLE,
) -> int:
    """Answer five questions about a chunk with yes, no or unknown: ready? correct? where expected? validated? safe?

    Exit code 1 if --check does not find a location.
    """
    found, blocked = with_store(lambda store: _inspection(store, job, data_id))
    looks: list[Look] = []
    if check:
        from opendataflow.opening.looking import Looking  # with the clients of users' databases

        who = f"`dataflow inspect --check` at {gethostname()}"
        locations = with_store(lambda store: _locations(store, found))
        looks = Looking(who, os.environ, folder and folder.absolute(), timeout).look_at(locations)
    answers = inspection_answers(found, blocked, looks)
    if output.is_document:
        plain = [asdict(answer) for answer in answers]
        seen = {"looks": [look.document() for look in looks]} if check else {}
        print_document(
            {"job": job, "data_id": data_id, "answers": plain, **seen, "facts": without_internals(found)}, output
        )
    else:
        declaring = f"; {declaring_sentence(found['declaring'])} of its job" if found["declaring"] else ""
        _print_answers(f"{data_id} of job {job}: {found['state']}{declaring}", answers)
    return ExitCode.FAILED if any(look.found is Answer.NO for look in looks) else ExitCode.OK


async def _inspection(store: Store, job: str, data_id: str) -> tuple[Facts, Sequence[str]]:
    """Return the evidence about a task, and why the task is open."""
    why = await task_status(store, job, data_id)
    found = await store.inspection(job, data_id)
    if found is None:  # deleted since the query above
        raise UnknownThing(f"job {job} has no task for {data_id}")
    return found, explain(why) if why["state"] in _OPEN else ()


async def _locations(store: Store, found: Facts) -> list["Expected"]:
    """Return the locations of all data sets. Where a chunk is READY, its data should be there."""
    from opendataflow.opening.looking import Expected

    locations = []
    for it in found["datasets"]:
        row = None if it["dataset"] == TODAY else await dataset_row(store, it["dataset"])
        if row is not None:
            locations.append(Expected(row, is_written=it["status"] == ChunkStatus.READY))
    return locations


def _print_answers(title: str, answers: Sequence[InspectionAnswer]) -> None:
    to = console()
    to.print(Text(title, "bold"))
    for answer in answers:
        to.print(f"{answer.question} {answer.text}.")
        for one in answer.evidence:
            print_indented(to, one.sentence)
