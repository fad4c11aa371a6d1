"""`dataflow chunks load` and `plan`: many chunks of a data set at once, from a list or out of its table."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from opendataflow.cli.app import Panel, actor, app, with_store
from opendataflow.cli.complete import complete_dataset
from opendataflow.cli.jobs.scale import ReasonOption
from opendataflow.core.chunks.chunk_list import parse_chunk_list
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.store.connections.connection import Row
from opendataflow.store.loading import Existing, load_chunks
from opendataflow.store.store import Store

chunks = typer.Typer(help="Chunks of a data set: plan them, load a list of them.", no_args_is_help=True)
app.add_typer(chunks, name="chunks", rich_help_panel=Panel.ASK)

Chunks = Sequence[tuple[str, Mapping[str, Any] | None]]


@chunks.command("load")
def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The list; - is standard input.")],
    dataset: Annotated[
        str, typer.Option("--dataset", help="The data set whose chunks they are.", autocompletion=complete_dataset)
    ],
    publish: Annotated[bool, typer.Option("--publish", help="Say too that they are there: they become READY.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be changed.")] = False,
    reason: ReasonOption = None,
) -> None:
    """Declare the chunks of a list: ids, with bounds where it has some. All of them, or none where one is wrong."""
    listed = parse_chunk_list(read_list(file), "standard input" if file == "-" else file)
    made = [(one.id, one.bounds) for one in listed]
    typer.echo(loaded(dataset, made, reason, publish=publish, dry_run=dry_run))


def loaded(
    dataset: str,
    made: Chunks,
    reason: str | None,
    *,
    publish: bool,
    dry_run: bool = False,
    why_not: Callable[[Existing], str | None] | None = None,
) -> str:
    """Declare chunks, all or none, and return the sentence that says so. `why_not`: as `load_chunks` asks it."""

    async def ask(store: Store) -> Row:
        try:
            return await load_chunks(
                store, dataset, made, actor(), reason, publish=publish, dry_run=dry_run, why_not=why_not
            )
        except UnknownThing as error:
            known = [row["dataset"] for row in await store.list_datasets()]
            raise UnknownThing(f"{error}{did_you_mean(dataset, known)}") from error

    done = with_store(ask)
    if done["refused"]:
        more = len(done["refused"]) - 1
        rest = f" (and {more} more like it)" if more else ""
        raise Refused(f"{done['refused'][0]}{rest}; nothing was changed")
    return _told(dataset, len(made), done, dry_run=dry_run)


def _told(dataset: str, number: int, done: Row, *, dry_run: bool) -> str:
    known = f", {done['known']} known" if done["known"] else ""
    ready = f"; {done['published']} published" if done["published"] else ""
    changed = "; nothing was changed" if dry_run else ""
    return f"data set {dataset}: {counted(number, 'chunk')}, {done['new']} new{known}{ready}{changed}"


def read_list(file: str) -> str:
    """Return the text of a list of chunks. InvalidInput where it can't be read."""
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidInput(f"{file}, line {line}: the file is not UTF-8 text") from error
    except OSError as error:
        raise InvalidInput(f"{file}: can't be read: {error.strerror}") from error
