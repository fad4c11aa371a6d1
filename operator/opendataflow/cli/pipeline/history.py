"""`dataflow pipeline history`: shows runs of pipelines, step by step.

It reads runs of jobs from the state database. Runs by hand (`dataflow pipeline run`) are not recorded.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, with_store
from opendataflow.cli.complete import complete_dataset
from opendataflow.cli.output.printing import Output, Row, coloured, echo, print_rows
from opendataflow.cli.output.screen import Text, console
from opendataflow.cli.pipeline.commands import complete_pipeline, pipeline
from opendataflow.cli.pipeline.show import show_expectations, show_steps
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.text.explain import counted, duration
from opendataflow.core.text.moments import shown
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.model.records.claim import PipelineRuns
from opendataflow.names import RunState, StepStatus
from opendataflow.store.store import Store

_COLUMNS = ("run", "pipeline", "data_id", "state", "claimed_at", "seconds", "rows", "reason")


@pipeline.command("history")
def history(
    slug: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Only this pipeline.", autocompletion=complete_pipeline)
    ] = None,
    data_id: Annotated[str | None, typer.Option("--data-id", help="Only this chunk. Shows each step.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="Only this run. Shows each step.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="Only runs that wrote this data set.", autocompletion=complete_dataset),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that have not succeeded.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of runs.")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show runs of pipelines by jobs, newest first. For one run or chunk, show each step, its output and its error."""
    chosen = PipelineRuns(slug, dataset, data_id, failed, run)

    async def ask(store: Store) -> Sequence[Row]:
        found = await store.pipeline_runs(chosen, limit)
        known = [] if found or slug is None else await store.pipelines()
        if not found and slug is not None and slug not in known:
            raise UnknownThing(f"no job runs a pipeline {slug}{did_you_mean(slug, known)}")
        if not found and run is not None:
            raise UnknownThing(f"there is no run {run} of a pipeline: see `dataflow pipeline history`")
        return found

    found = with_store(ask)
    if not output.is_document and found and (data_id is not None or run is not None):
        for number, one in enumerate(found):
            if number:
                echo("")
            _show(one)
        return
    short = [_short(one) for one in found] if not output.is_document else found
    print_rows(short, output, _COLUMNS, "no runs of pipelines; runs by hand are not kept")
    failed_run = next((one["run"] for one in short if not output.is_document and one["reason"]), None)
    if failed_run is not None:
        echo(f"what failed, and what was printed: dataflow pipeline history --run {failed_run}", err=True)


def _short(run: Row) -> dict[str, Any]:
    """Return a run as one row of the table."""
    steps = run["steps"]
    failed = [step["name"] for step in steps if step["status"] == StepStatus.FAILED]
    return {
        **run,
        "rows": (run["metrics"] or {}).get("rows"),
        "reason": ": ".join([*failed, *([run["failure_class"]] if run["failure_class"] else [])]),
    }


def _show(run: Row) -> None:
    """Print a run with its steps."""
    out, metrics = console(), run["metrics"] or {}
    head = Text(f"run {run['run']} of {run['job']} {run['data_id']}, attempt {run['attempt']}: ", "bold")
    took = f", {shown(run['claimed_at'])}, {duration(run['seconds'])}"
    commit = f", commit {metrics['commit'][:12]}" if "commit" in metrics else ""
    out.print(head.append(coloured(run["state"])).append(f"{took}{commit}"))
    if run["steps"]:
        show_steps(list(_steps(run["steps"])))
    elif run["state"] == RunState.RUNNING:
        out.print("its steps are reported when it has ended; its log shows them as they begin and end")
    show_expectations([ExpectationResult(**it) for it in metrics.get("expectations", ())])
    if run["message"] and run["state"] != RunState.SUCCEEDED:
        out.print(Text(run["message"], "red"))
    out.print(f"its log: dataflow logs --run {run['run']}")


def _steps(reported: Sequence[Row]) -> Iterator[Step]:
    """Yield the steps. For missing ordinals, yield one placeholder that counts the missing steps."""
    before = 0
    for step in reported:
        if (missing := step["ordinal"] - before - 1) > 0:
            yield Step(f"({counted(missing, 'step')}: see the log)", StepStatus.DONE)
        before = step["ordinal"]
        status, stdout = StepStatus(step["status"]), step["stdout"] or ""
        yield Step(step["name"], status, step["rows"], step["seconds"], stdout, step["error"])
