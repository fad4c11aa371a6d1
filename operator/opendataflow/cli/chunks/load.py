"""`dataflow chunks load`: declares many chunks of a data set at once, from a list."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from opendataflow.cli.app import AllowOverlapOption, OutputOption, ReasonOption, actor, app, with_store
from opendataflow.cli.complete import complete_dataset
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.chunks.chunk_list import header_warning, parse_chunk_list
from opendataflow.core.text.explain import counted
from opendataflow.core.text.plan import overlap_sentence
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.store.connections.connection import Row
from opendataflow.store.loading import Existing, load_chunks
from opendataflow.store.store import Store

chunks = typer.Typer(help="Plan, load and check the chunks of a data set.", no_args_is_help=True)
app.add_typer(chunks, name="chunks")

Chunks = Sequence[tuple[str, Mapping[str, Any] | None]]


@chunks.command("load")
def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The list of chunks. `-` reads standard input.")],
    dataset: Annotated[
        str, typer.Option("--dataset", help="The data set of the chunks.", autocompletion=complete_dataset)
    ],
    publish: Annotated[bool, typer.Option("--publish", help="Publish the chunks too: they become READY.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would change, and change nothing.")] = False,
    allow_overlap: AllowOverlapOption = False,
    reason: ReasonOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare the chunks of a list: ids, and bounds if the list has them. All of them, or none if one is wrong.

    Bounds that overlap would process rows again. They are refused until an option allows them.
    """
    listed = parse_chunk_list(read_list(file), "standard input" if file == "-" else file)
    if (warning := header_warning(listed)) is not None:
        echo(f"{file}, {warning}", err=True)
    made = [(one.id, one.bounds) for one in listed]
    done = declare_chunks(dataset, made, reason, publish=publish, dry_run=dry_run, allow_overlap=allow_overlap)
    if output.is_document:
        counts = {name: done[name] for name in ("new", "known", "published")}
        print_document({"dataset": dataset, "chunks": len(made), **counts, "dry_run": dry_run}, output)
    else:
        echo(report(dataset, len(made), done, dry_run=dry_run))


def declare_chunks(
    dataset: str,
    made: Chunks,
    reason: str | None,
    *,
    publish: bool,
    dry_run: bool = False,
    why_not: Callable[[Existing], str | None] | None = None,
    allow_overlap: bool = False,
) -> Row:
    """Declare chunks, all or none. Return the numbers of new, known and published chunks.

    `why_not`, `allow_overlap`: see `load_chunks`.
    """

    async def ask(store: Store) -> Row:
        try:
            return await load_chunks(
                store,
                dataset,
                made,
                actor(),
                reason,
                publish=publish,
                dry_run=dry_run,
                why_not=why_not,
                allow_overlap=allow_overlap,
            )
        except UnknownThing as error:
            known = [row["dataset"] for row in await store.list_datasets()]
            raise UnknownThing(f"{error}{did_you_mean(dataset, known)}") from error

    done = with_store(ask)
    if done["refused"]:
        more = len(done["refused"]) - 1
        rest = f" (and {more} more like it)" if more else ""
        raise Refused(f"{done['refused'][0]}{rest}; nothing was changed")
    overlaps = done["overlaps"]
    if overlaps is not None and overlaps.overlapping:
        raise Refused(f"nothing was changed: {overlap_sentence(overlaps)}; to load them, add --allow-overlap")
    return done


def report(dataset: str, number: int, done: Row, *, dry_run: bool = False) -> str:
    """Return the sentence that reports declared chunks."""
    known = f", {done['known']} known" if done["known"] else ""
    ready = f"; {done['published']} published" if done["published"] else ""
    changed = "; nothing was changed" if dry_run else ""
    return f"data set {dataset}: {counted(number, 'chunk')}, {done['new']} new{known}{ready}{changed}"


def read_list(file: str) -> str:
    """Return the text of a list of chunks. Raise InvalidInput if it can't be read."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{file}, line {line}: the file is not UTF-8 text") from error
    except OSError as error:
        raise InvalidInput(f"{file}: can't be read: {error.strerror}") from error
