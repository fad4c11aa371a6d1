"""`dataflow chunks check`: checks that each row of a table is in one chunk, and that a target has the same rows."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, with_store
from opendataflow.cli.chunks.load import chunks
from opendataflow.cli.chunks.plan import found_dataset, table_of
from opendataflow.cli.complete import complete_dataset
from opendataflow.cli.output.printing import Output, echo, print_document, print_rows
from opendataflow.core.chunks.chunk_parts import Part, part_of_table
from opendataflow.core.chunks.reconciliation import Difference, Spread, differences
from opendataflow.core.text.explain import counted
from opendataflow.errors import InvalidInput
from opendataflow.names import ExitCode
from opendataflow.opening.passkey import Passkey
from opendataflow.opening.source import TARGET_VARIABLE, VARIABLE, open_source
from opendataflow.sources.checking import TableColumn, check_predicates, measure_spread
from opendataflow.sources.source import Aggregates
from opendataflow.store.connections.connection import Row
from opendataflow.store.loading import chunk_rows
from opendataflow.store.store import Store

Found = tuple[Row, Sequence[Row]]


@chunks.command("check")
def check_chunks(  # noqa: PLR0913  # each is an option
    dataset: Annotated[str, typer.Argument(help="The data set with the chunks.", autocompletion=complete_dataset)],
    target: Annotated[
        str | None,
        typer.Argument(help="A data set that must have the same rows.", autocompletion=complete_dataset),
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option("--sum", metavar="COLUMN", help="Compare the sum of this column too. Can be repeated."),
    ] = None,
    checksum: Annotated[
        list[str] | None,
        typer.Option("--checksum", metavar="COLUMN", help="Compare a checksum of these columns. Can be repeated."),
    ] = None,
    data_id_column: Annotated[
        str | None,
        typer.Option("--data-id-column", metavar="COLUMN", help="The target's column that contains the data id."),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option("--dsn", metavar="ADDRESS", help="The database, without a password. Default: the location."),
    ] = None,
    target_dsn: Annotated[
        str | None,
        typer.Option("--target-dsn", metavar="ADDRESS", help="The target's database. Default: its location."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey. Default: PASSKEY, DATAFLOW_KEY_FILE.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Check that each row of a table is in one chunk, and that a target has the same rows. Exit code 1 if not."""
    if target is None and (data_id_column or target_dsn):
        raise InvalidInput("--data-id-column and --target-dsn are about a target: name its data set too")
    asked = Aggregates(tuple(sums or ()), tuple(checksum or ()))
    row, listed = with_store(lambda store: _read_dataset(store, dataset))
    if not listed:
        raise InvalidInput(f"{dataset} has no chunks: `dataflow chunks plan {dataset}` proposes some")
    parts = {it["data_id"]: part_of_table(dataset, it["data_id"], it["bounds"], row["partitioning"]) for it in listed}
    column = str(next(iter(parts.values())).column)
    passkey = Passkey(key_file)
    with open_source(row, dsn, os.environ, passkey, VARIABLE) as source:
        check_predicates(source, parts)
        ours = measure_spread(source, TableColumn(row["schemaname"], table_of(row), column), parts, asked)
    report = _CheckReport(dataset, target, asked.names, ours)
    if target is not None:
        to, states = with_store(lambda store: _read_dataset(store, target))
        own = (to["partitioning"] or {}).get("column", column)
        place = TableColumn(to["schemaname"], table_of(to), data_id_column or own, data_id_column is not None)
        moved = {name: Part(own, part.bounds) for name, part in parts.items()}
        with open_source(to, target_dsn, os.environ, passkey, TARGET_VARIABLE) as source:
            report.compare(measure_spread(source, place, moved, asked), {it["data_id"]: it["status"] for it in states})
    report.show(output)
    return ExitCode.OK if report.good else ExitCode.FAILED


async def _read_dataset(store: Store, dataset: str) -> Found:
    return await found_dataset(store, dataset), await chunk_rows(store, dataset)


class _CheckReport:
    """The result of a check, as a table or as a document."""

    def __init__(self, dataset: str, target: str | None, names: Sequence[str], ours: Spread) -> None:
        self._sides: dict[str, Spread] = {dataset: ours}
        self._dataset, self._target, self._names = dataset, target, names
        self._different: Sequence[Difference] = ()
        self._states: Mapping[str, Any] = {}

    def compare(self, theirs: Spread, states: Mapping[str, Any]) -> None:
        """Compare with the target. `states`: data id -> state of the target's chunks."""
        assert self._target is not None
        self._sides[self._target] = theirs
        self._states = states
        self._different = list(differences(self._sides[self._dataset], theirs, self._names))

    @property
    def good(self) -> bool:
        """Return whether nothing differs and every row is in one chunk."""
        return not self._different and not any(side.strays for side in self._sides.values())

    def show(self, output: Output) -> None:
        """Print the report."""
        if output.is_document:
            print_document(self._document(), output)
            return
        found = [*self._differing(), *self._strays()]
        if found:
            print_rows(found, output, ("chunk", "status", "found") if self._target else ("chunk", "found"), "")
        echo("; ".join(self._summary()))

    def _differing(self) -> Iterator[dict[str, Any]]:
        for it in self._different:
            yield {"chunk": it.chunk, "status": self._states.get(it.chunk), "found": it.description}

    def _strays(self) -> Iterator[dict[str, Any]]:
        for name, side in self._sides.items():
            for it in side.strays:
                words = f"{counted(it.rows, 'row')} of {name}: {it.description}"
                yield {"chunk": ", ".join(it.chunks) or "no chunk", "status": None, "found": words}

    def _summary(self) -> Iterator[str]:
        for name, side in self._sides.items():
            none = sum(it.rows for it in side.strays if not it.chunks)
            several = sum(it.rows for it in side.strays if it.chunks)
            wrong = [f"{number} in {words}" for number, words in ((none, "no chunk"), (several, "several")) if number]
            yield f"{name} has {counted(side.total.rows, 'row')}, {', '.join(wrong) or 'each in one chunk'}"
        chunks_ = counted(len(self._sides[self._dataset].chunks), "chunk")
        if self._target is not None:
            same = f"{len(self._different)} of {chunks_} differ" if self._different else f"all {chunks_} are the same"
            yield f"{same} ({', '.join(['rows', *self._names])})"

    def _document(self) -> dict[str, Any]:
        different = {it.chunk: it.description for it in self._different}
        return {
            "good": self.good,
            "figures": ["rows", *self._names],
            "datasets": {
                name: {
                    "rows": side.total.rows,
                    "figures": side.total.figures,
                    "strays": [{"rows": it.rows, "what": it.description, "chunks": it.chunks} for it in side.strays],
                }
                for name, side in self._sides.items()
            },
            "chunks": [self._chunk(name, different.get(name)) for name in self._sides[self._dataset].chunks],
        }

    def _chunk(self, name: str, different: str | None) -> dict[str, Any]:
        sides: dict[str, Any] = {
            side: {"rows": found.chunks[name].rows, "figures": found.chunks[name].figures}
            for side, found in self._sides.items()
        }
        return {"data_id": name, "status": self._states.get(name), "different": different, "datasets": sides}
