"""The commands of the framework that came before, under the names that its users know.

They work on the views of schema dataflow, as their SQL does. What can't be done any more is refused with the command
that does what was meant.
"""

import json
import sys
from typing import Annotated

import typer

from opendataflow.cli.administration.db import migrate_database
from opendataflow.cli.app import OutputOption, Panel, actor, app, with_store
from opendataflow.cli.output.printing import Output, rows
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.model.records.claim import DeclaredJob
from opendataflow.store.legacy.legacy_users import read_sql, write_sql
from opendataflow.store.store import Store

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job.")]
DataIdArgument = Annotated[str, typer.Argument(metavar="DATAID", help="A data id.")]
StatusArgument = Annotated[
    str, typer.Argument(metavar="STATUS", help="READY, RESUBMIT, HOLD, PENDING or FAILED.", show_default=False)
]

_RUNS = """SELECT dataid, datasetid, jobid, locktype, modified, status FROM dataflow.datastatus
           WHERE locktype = 'OUT' ORDER BY modified DESC LIMIT 20"""
_JOBS = "SELECT datasetid, itemtype, itemvalue, jobid, modified FROM dataflow.job ORDER BY jobid, itemtype, datasetid"
_DATASETS = """SELECT database, datasetid,
                      left(encryptedpass, 10) || CASE WHEN length(encryptedpass) > 10 THEN '...' ELSE '' END
                          AS encryptedpass,
                      hostname, schemaname, tablename, username
               FROM dataflow.dataset ORDER BY datasetid"""

_REPLACED = {
    "ddl": "tables are made and changed by `dataflow db migrate` only; rows are changed by `dataflow dml`",
    "startjob": "a run belongs to the process that does it, so that its end is always known: start the job with RunJob "
    "or `dataflow run --job JOB -- COMMAND`",
    "deleterun": "what has happened is kept: `dataflow resubmit JOB DATAID` has it done again, and `dataflow lost RUN` "
    "ends a run whose machine is gone",
    "forcejob": "`dataflow force JOB DATAID` lets the job run next whatever its inputs are, and RunJob runs it then",
}


@app.command("sql", rich_help_panel=Panel.OLD)
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; job, dataset and datastatus are the old tables.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what an SQL query finds. It only reads."""
    _show(query, output)


@app.command("dml", rich_help_panel=Panel.OLD)
def dml(
    statements: Annotated[list[str], typer.Argument(metavar="STATEMENT...", help="INSERTs or UPDATEs.")],
) -> None:
    """Change rows of job, dataset and datastatus: all statements in one transaction, or nothing."""
    for count in with_store(lambda store: write_sql(store, statements, actor())):
        typer.echo(f"{count} rows affected")


@app.command("runs", rich_help_panel=Panel.OLD)
def runs(output: OutputOption = Output.TABLE) -> None:
    """List the 20 rows of datastatus that changed last. More: `dataflow get runs`."""
    _show(_RUNS, output)


@app.command("jobs", rich_help_panel=Panel.OLD)
def jobs(output: OutputOption = Output.TABLE) -> None:
    """List the rows of job. More: `dataflow get jobs`."""
    _show(_JOBS, output)


@app.command("datasets", rich_help_panel=Panel.OLD)
def datasets(output: OutputOption = Output.TABLE) -> None:
    """List the rows of dataset. More: `dataflow get datasets`."""
    _show(_DATASETS, output)


@app.command("GetJobData", hidden=True)
@app.command("getjob", rich_help_panel=Panel.OLD)
def getjob(job: JobArgument) -> None:
    """Show what a job would run with next, as JSON: its data id and data sets; an empty list where nothing is ready."""

    async def ask(store: Store) -> tuple[str | None, DeclaredJob]:
        declared = await store.declared_jobs([job])
        if job not in declared:
            known = [row["job"] for row in await store.list_jobs()]
            raise UnknownThing(f"there is no job {job}{did_you_mean(job, known)}")
        return await store.next_task(job), declared[job]

    data_id, declared = with_store(ask)
    found = [] if data_id is None else [{"dataid": data_id}, *_described(declared)]
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


@app.command("endjob", rich_help_panel=Panel.OLD)
def endjob(job: JobArgument, data_id: DataIdArgument, status: StatusArgument) -> None:
    """Set the status of what a job has made for a data id. A run ends by itself, or by `dataflow cancel`."""
    update = "UPDATE datastatus SET status = %s, modified = now() WHERE jobid = %s AND dataid = %s AND locktype = 'OUT'"
    (count,) = with_store(lambda store: write_sql(store, [update], actor(), (status, job, data_id)))
    if not count:
        raise UnknownThing(
            f"datastatus has no OUT row of job {job} for {data_id}: `dataflow runs` shows the newest ones"
        )
    typer.echo(f"{count} rows updated to {status} for {job} and {data_id} 0 IN file-local locks released")


@app.command("SetDataStatus", rich_help_panel=Panel.OLD)
def set_data_status(
    status: StatusArgument,
    data_id: DataIdArgument,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A data set.")],
    job: JobArgument,
    locktype: Annotated[str, typer.Argument(metavar="LOCKTYPE", help="OUT.")],
) -> None:
    """Set the status of a chunk, whether it has a row or not."""
    insert = "INSERT INTO datastatus (dataid, datasetid, jobid, locktype, status) VALUES (%s, %s, %s, %s, %s)"
    values = (data_id, dataset, job, locktype, status)
    (count,) = with_store(lambda store: write_sql(store, [insert], actor(), values))
    typer.echo(f"{count} rows affected")


app.command("createtables", hidden=True, help="The same as `dataflow db migrate`.")(migrate_database)


def _refuse(name: str, instead: str) -> None:
    def refused() -> None:
        raise InvalidInput(f"{name} is not done any more: {instead}")

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, hidden=True, help=f"Not done any more: {instead}", context_settings=settings)(refused)


for _name, _instead in _REPLACED.items():
    _refuse(_name, _instead)


def _show(query: str, output: Output) -> None:
    columns, found = with_store(lambda store: read_sql(store, query))
    rows(found, output, columns, "no rows returned by the query")


def _described(declared: DeclaredJob) -> list[dict[str, str]]:
    columns = ("hostname", "database", "schemaname", "tablename", "username", "encryptedpass", "itemtype")
    return [
        {f"{row['id']}_datasetid": row["id"], **{f"{row['id']}_{c}": row[c] for c in columns if row[c] is not None}}
        for row in declared.datasets
    ]
