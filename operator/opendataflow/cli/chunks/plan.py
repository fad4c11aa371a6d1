"""`dataflow chunks plan`: proposes chunks of a data set's table, prints them, and declares them on request."""

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from opendataflow.cli.app import OutputOption, ReasonOption, with_store
from opendataflow.cli.chunks.load import chunks, declare_chunks, report
from opendataflow.cli.complete import complete_dataset
from opendataflow.cli.output.printing import Output, echo, print_document, print_table
from opendataflow.cli.output.screen import Text
from opendataflow.core.chunks.chunk_additions import find_conflict
from opendataflow.core.chunks.chunk_plan import MOST_CHUNKS, By, PlannedChunk
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.opening.passkey import Passkey
from opendataflow.opening.source import open_source
from opendataflow.sources.planning import Plan, PlanRequest, make_plan
from opendataflow.store.connections.connection import Row
from opendataflow.store.loading import dataset_row
from opendataflow.store.store import Store

_BAR_WIDTH = 20
_COUNTED = {"exact": "counted", "sample": "estimated from a sample", "statistics": "estimated from statistics"}
_METHODS_OF: dict[str, tuple[By, ...]] = {
    "--chunks": ("range", "hash"),
    "--rows": ("range", "hash"),
    "--step": ("date",),
    "--time-zone": ("date",),
    "--rest": ("date", "list"),
    "--exact": ("range",),
}
"""Options that apply to some methods only."""


class Step(StrEnum):
    """The length of a chunk by date."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


class NullsIn(StrEnum):
    """The chunk for rows with NULL."""

    OWN = "own"
    FIRST = "first"
    LAST = "last"


@chunks.command("plan")
def plan_chunks(  # noqa: PLR0913  # each is an option
    dataset: Annotated[
        str, typer.Argument(help="The data set. Its location names the table.", autocompletion=complete_dataset)
    ],
    by: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--by",
            metavar="METHOD COLUMN",
            help="range, date, list or hash, and the column. Default: the data set's partitioning.",
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--chunks", min=1, max=MOST_CHUNKS, help="By range or hash: the number of chunks.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, help="By range or hash: the approximate number of rows in each chunk."),
    ] = None,
    step: Annotated[Step | None, typer.Option("--step", help="By date: the length of a chunk. Default: day.")] = None,
    zone: Annotated[
        str | None,
        typer.Option("--time-zone", help="By date: the time zone of days, such as Europe/Berlin. Default: UTC."),
    ] = None,
    nulls: Annotated[
        NullsIn, typer.Option("--nulls", help="The chunk for rows with NULL: its own, the first or the last one.")
    ] = NullsIn.OWN,
    rest: Annotated[bool, typer.Option("--rest", help="By date or list: add one chunk for all other values.")] = False,
    count: Annotated[
        bool, typer.Option("--count", help="Count the rows of each chunk, in one scan of the table.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="By range: sort all rows, instead of using statistics or a sample.")
    ] = False,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn", metavar="ADDRESS", help="The table's database, without a password. Default: the location."
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey. Default: PASSKEY, DATAFLOW_KEY_FILE.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write the list to this file, for `dataflow chunks load`."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Declare the chunks. Existing chunks stay unchanged.")] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="With --write: publish the chunks too. They become READY.")
    ] = False,
    reason: ReasonOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Propose chunks of a data set's table, with each row in exactly one chunk. Change nothing without --write."""
    if number is not None and rows is not None:
        raise InvalidInput("--chunks and --rows say the same in two ways: give one of them")
    if publish and not write:
        raise InvalidInput("--publish is for the chunks that --write declares: give both")
    found = with_store(lambda store: found_dataset(store, dataset))
    method, column = _method(found, by)
    given = {"--chunks": number, "--rows": rows, "--step": step, "--time-zone": zone, "--rest": rest, "--exact": exact}
    _check_options(method, [name for name, value in given.items() if value])
    request = PlanRequest(
        schema=found["schemaname"],
        table=table_of(found),
        column=column,
        by=method,
        chunks=number,
        rows=rows,
        step=(step or Step.DAY).value,
        zone=zone,
        nulls=nulls.value,
        rest=rest,
        exact=exact,
        count=count,
    )
    with open_source(found, dsn, os.environ, Passkey(key_file)) as source:
        proposed = make_plan(source, request)
    _show(dataset, proposed, output)
    if file is not None or write:
        _check_all_rows_covered(proposed)
    if file is not None:
        _save(file, proposed.chunks)
    if write:
        _write(dataset, proposed, reason, publish=publish)


async def found_dataset(store: Store, dataset: str) -> Row:
    """Return the row of a data set. Raise UnknownThing if it does not exist."""
    found = await dataset_row(store, dataset)
    if found is None:
        known = [row["dataset"] for row in await store.list_datasets()]
        raise UnknownThing(f"there is no data set {dataset}{did_you_mean(dataset, known)}")
    return found


def _method(dataset: Row, by: tuple[str, str] | None) -> tuple[By, str]:
    if by is None:
        partitioning = dataset["partitioning"]
        if not partitioning:
            raise InvalidInput(
                f"data set {dataset['id']} has no partitioning: say how it is to be divided, such as --by range id"
            )
        by = (partitioning["type"], partitioning["column"])
    if by[0] not in get_args(By):
        raise InvalidInput(f"--by {by[0]}: it is range, date, list or hash, and then the column")
    return cast("By", by[0]), by[1]


def _check_options(method: By, given: Sequence[str]) -> None:
    wrong = next((name for name in given if method not in _METHODS_OF[name]), None)
    if wrong is not None:
        raise InvalidInput(f"{wrong} means nothing by {method}: it is for {' and '.join(_METHODS_OF[wrong])}")


def table_of(dataset: Row) -> str:
    """Return the table of a data set. Raise InvalidInput if it has none."""
    if not dataset["tablename"]:
        raise InvalidInput(f"data set {dataset['id']} has no table: write location.tablename")
    return str(dataset["tablename"])


def _check_all_rows_covered(proposed: Plan) -> None:
    if proposed.outside:
        raise Refused(
            f"{counted(proposed.outside, 'row')} of {proposed.table} would be in no chunk: give --rest, which makes "
            "one for them; nothing was changed"
        )


def _write(dataset: str, proposed: Plan, reason: str | None, *, publish: bool) -> None:
    made = [(chunk.id, chunk.bounds) for chunk in proposed.chunks]
    done = declare_chunks(
        dataset,
        made,
        reason,
        publish=publish,
        why_not=partial(find_conflict, dataset, proposed.chunks),
        allow_overlap=True,  # find_conflict refuses more
    )
    echo(report(dataset, len(made), done), err=True)


def _save(file: Path, made: Sequence[PlannedChunk]) -> None:
    lines = "".join(f"{json.dumps({'id': c.id, 'bounds': dict(c.bounds)}, ensure_ascii=False)}\n" for c in made)
    try:
        file.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{file}: can't be written: {error.strerror}") from error


def _show(dataset: str, proposed: Plan, output: Output) -> None:
    for note in proposed.notes:
        echo(note, err=True)
    if output.is_document:
        print_document(_plain(dataset, proposed), output)
        return
    ends = [name for name in ("from", "to") if any(name in it.bounds for it in proposed.chunks)]
    most = max(proposed.rows.values())
    rows = [_cells(proposed, chunk, ends, most) for chunk in proposed.chunks]
    # The predicates contain the bounds, and the bar shows the rows.
    print_table(list(rows[0]), rows, wide=output is Output.WIDE, right=("rows", "share"), low_value=("", *ends))
    echo(_summary(proposed))


def _cells(proposed: Plan, chunk: PlannedChunk, ends: Sequence[str], most: int) -> dict[str, Text]:
    """Return the cells of a chunk. `ends`: its bounds that are shown. `most`: the rows of the largest chunk."""
    rows = proposed.rows[chunk.id]
    cells = {
        "chunk": chunk.id,
        **{name: str(chunk.bounds.get(name, "-")) for name in ends},
        "rows": str(rows),
        "share": f"{rows / proposed.all_rows:.1%}",
        "": "#" * round(_BAR_WIDTH * rows / most) if most else "",
        "predicate": chunk.predicate,
    }
    return {name: Text(cell).on_one_line() for name, cell in cells.items()}


def _summary(proposed: Plan) -> str:
    if proposed.nulls is not None:
        nulls = f"NULLs have the chunk null ({proposed.nulls})"
    else:
        holder = next((chunk.id for chunk in proposed.chunks if chunk.bounds.get("nulls")), None)
        nulls = f"NULLs are in {holder}" if holder else "no NULLs can be there"
    later = "values that come later have a chunk" if proposed.total else "values that come later may have none"
    outside = f"{counted(proposed.outside, 'row')} outside of all chunks" if proposed.outside else "no row outside"
    return (
        f"{counted(len(proposed.chunks), 'chunk')} of {proposed.table} by {proposed.by} of {proposed.column}, "
        f"{counted(proposed.all_rows, 'row')} ({_COUNTED[proposed.counted]}), skew {proposed.skew:.2f}; "
        f"{nulls}; {outside}; {later}"
    )


def _plain(dataset: str, proposed: Plan) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "table": proposed.table,
        "column": proposed.column,
        "by": proposed.by,
        "rows": proposed.all_rows,
        "counted": proposed.counted,
        "skew": round(proposed.skew, 3),
        "outside": proposed.outside,
        "covers_later_values": proposed.total,
        "chunks": [{"data_id": c.id, "bounds": dict(c.bounds), "rows": proposed.rows[c.id]} for c in proposed.chunks],
    }
