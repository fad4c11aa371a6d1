"""`dataflow apply`: declare data sets and jobs, after a plan of what that changes."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import AllowOverlapOption, OutputOption, actor, app, with_store
from opendataflow.cli.jobs.job_files import Declared, apply_files, plan_files, read_files
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.text.plan import changes_more_than_it_adds, options_sentence, plan_lines, refused_sentence
from opendataflow.engine.declaring import batches
from opendataflow.errors import PlanRefused
from opendataflow.model.records.plan import Consent, Plan
from opendataflow.names import Backfill, ExitCode
from opendataflow.store.store import Store

FilesOption = Annotated[list[Path], typer.Option("--file", "-f", help="A job file. Can be repeated.")]
AllowOption = Annotated[
    str | None,
    typer.Option("--allow", metavar="PLAN", help="Allow this plan to retire and overlap finished chunks."),
]
AllowRetireOption = Annotated[
    bool, typer.Option("--allow-retire", help="Allow to retire finished chunks and tasks whose id is withdrawn.")
]
BackfillOption = Annotated[
    Backfill | None,
    typer.Option("--backfill", help="Finished tasks of jobs with new outputs: process all again, or none."),
]


@app.command("apply")
def apply(  # one for each option
    files: FilesOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and change nothing.")] = False,
    allow: AllowOption = None,
    allow_retire: AllowRetireOption = False,
    allow_overlap: AllowOverlapOption = False,
    backfill: BackfillOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Declare the data sets and jobs of job files: all of them, or none if one is wrong.

    A change that affects finished tasks is refused until an option allows it.
    """
    declared = read_files(files)
    consent = Consent(allow, allow_retire, allow_overlap, backfill)
    if dry_run:
        plan = with_store(lambda store: plan_files(store, declared, consent))
        _print_plan(plan, output, applied=False)
        return _report_missing(plan, allow)

    async def ask(store: Store) -> Plan:
        try:
            applied = await apply_files(store, declared, actor(), consent)
        except PlanRefused as error:
            _print_plan(Plan.of_json(error.plan), output, applied=False)
            raise
        if applied.declaring:
            await _declare_chunks(store)
        return applied.plan

    plan = with_store(ask)
    if output.is_document or changes_more_than_it_adds(plan):
        _print_plan(plan, output, applied=True)
    if not output.is_document:
        _print_applied(declared)
    return ExitCode.OK


async def _declare_chunks(store: Store) -> None:
    """Write the chunks that follow a declaration of many."""
    echo("declared; its chunks follow in batches. If this command is interrupted, any engine continues.", err=True)
    async for _ in batches(store, lambda text: echo(text, err=True)):
        pass


def _print_plan(plan: Plan, output: Output, *, applied: bool) -> None:
    if not output.is_document:
        for line in plan_lines(plan):
            echo(line)
    else:
        print_document({"plan": asdict(plan), "applied": applied}, output)


def _report_missing(plan: Plan, allowed: str | None) -> int:
    """Print why the plan would be refused. Return the exit code."""
    if not plan.missing:
        return ExitCode.OK
    echo(f"would be refused: {refused_sentence(plan)}; {options_sentence(plan, allowed)}", err=True)
    return ExitCode.FAILED


def _print_applied(declared: Declared) -> None:
    for dataset in declared.datasets:
        echo(f"data set {dataset.id} applied")
    for job in declared.jobs:
        echo(f"job {job.id} applied")
