"""The commands of the old framework, under their old names.

They read and write the views of schema `dataflow`, like the SQL of the old framework's users. A command that is no
longer supported is refused with its replacement.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from opendataflow.cli.administration.db import migrate_database
from opendataflow.cli.app import OutputOption, actor, app, with_store
from opendataflow.cli.output.printing import Output, Row, echo, print_document
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.model.records.claim import DeclaredJob
from opendataflow.stdio import visible
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


@app.command("sql")
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT. The old tables are job, dataset and datastatus.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the result of an SQL query. Changes are refused."""
    _show(query, output)


@app.command("dml")
def dml(
    statements: Annotated[list[str], typer.Argument(metavar="STATEMENT...", help="INSERT or UPDATE statements.")],
) -> None:
    """Change rows of job, dataset and datastatus. All statements are one transaction."""
    for count in with_store(lambda store: write_sql(store, statements, actor())):
        echo(f"{count} rows affected")


@app.command("runs")
def runs(output: OutputOption = Output.TABLE) -> None:
    """List the 20 rows of datastatus that changed last. See also `dataflow get runs`."""
    _show(_RUNS, output)


@app.command("jobs")
def jobs(output: OutputOption = Output.TABLE) -> None:
    """List the rows of job. See also `dataflow get jobs`."""
    _show(_JOBS, output)


@app.command("datasets")
def datasets(output: OutputOption = Output.TABLE) -> None:
    """List the rows of dataset. See also `dataflow get datasets`."""
    _show(_DATASETS, output)


@app.command("GetJobData", hidden=True)
@app.command("getjob")
def getjob(job: JobArgument) -> None:
    """Print a job's next data id and its data sets as JSON. Print an empty list if nothing is ready."""

    async def ask(store: Store) -> tuple[str | None, DeclaredJob]:
        declared = await store.declared_jobs([job])
        if job not in declared:
            known = [row["job"] for row in await store.list_jobs()]
            raise UnknownThing(f"there is no job {job}{did_you_mean(job, known)}")
        return await store.next_task(job), declared[job]

    data_id, declared = with_store(ask)
    found = [] if data_id is None else [{"dataid": data_id}, *_old_form(declared)]
    print_document(found, Output.JSON)


@app.command("endjob")
def endjob(job: JobArgument, data_id: DataIdArgument, status: StatusArgument) -> None:
    """Set the status of a job's outputs for a data id. This does not end a run: use `dataflow cancel`."""
    update = "UPDATE datastatus SET status = %s, modified = now() WHERE jobid = %s AND dataid = %s AND locktype = 'OUT'"
    (count,) = with_store(lambda store: write_sql(store, [update], actor(), (status, job, data_id)))
    if not count:
        raise UnknownThing(
            f"datastatus has no OUT row of job {job} for {data_id}: `dataflow runs` shows the newest ones"
        )
    echo(f"{count} rows updated to {status} for {job} and {data_id} 0 IN file-local locks released")


@app.command("SetDataStatus")
def set_data_status(
    status: StatusArgument,
    data_id: DataIdArgument,
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A data set.")],
    job: JobArgument,
    locktype: Annotated[str, typer.Argument(metavar="LOCKTYPE", help="OUT.")],
) -> None:
    """Set the status of a chunk. The chunk need not exist."""
    insert = "INSERT INTO datastatus (dataid, datasetid, jobid, locktype, status) VALUES (%s, %s, %s, %s, %s)"
    values = (data_id, dataset, job, locktype, status)
    (count,) = with_store(lambda store: write_sql(store, [insert], actor(), values))
    echo(f"{count} rows affected")


app.command("createtables", hidden=True, help="The same as `dataflow db migrate`.")(migrate_database)


def _refuse(name: str, instead: str) -> None:
    def refused() -> None:
        raise InvalidInput(f"{name} is not done any more: {instead}")

    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, hidden=True, help=f"No longer supported: {instead}", context_settings=settings)(refused)


for _name, _instead in _REPLACED.items():
    _refuse(_name, _instead)


def _show(query: str, output: Output) -> None:
    columns, found = with_store(lambda store: read_sql(store, query))
    if output.is_document:
        print_document(found, output)
        return
    for line in _old_table(columns, found):
        echo(line)
    if not found:
        echo("no rows returned by the query", err=True)


def _old_table(columns: Sequence[str], found: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table in the shape of the old framework, for scripts that cut it: `| tail -n +3`."""
    cells = [[_old_cell(row[name]) for name in columns] for row in found]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(columns)]
    for line in ([name.upper() for name in columns], ["-" * width for width in widths], *cells):
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _old_cell(value: object) -> str:
    """Return a value as the old framework printed it: blanks for NULL, and times with microseconds."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bool):
        return "true" if value else "false"
    return visible(str(value)).replace("\n", " ")


def _old_form(declared: DeclaredJob) -> list[dict[str, str]]:
    columns = ("hostname", "database", "schemaname", "tablename", "username", "encryptedpass", "itemtype")
    return [
        {f"{row['id']}_datasetid": row["id"], **{f"{row['id']}_{c}": row[c] for c in columns if row[c] is not None}}
        for row in declared.datasets
    ]
