"""What people ask of chunks and works, one command for each verb; and `lost`, by hand.

Every one is all or nothing: where one id is unknown or refused, nothing is changed.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, LiteralString

import typer

from opendataflow.cli.app import Panel, actor, app, with_store
from opendataflow.cli.complete import complete_data_id, complete_dataset, complete_job, complete_owner
from opendataflow.cli.show import did_you_mean
from opendataflow.engine.takeover import lose
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.claim import Answer, Selection
from opendataflow.names import ChunkStatus, WorkState
from opendataflow.settings import read_settings
from opendataflow.store.store import Store

_SENTENCES = 5
"""How many ids are named one by one where a request is refused."""


@dataclass(frozen=True)
class Verb:
    """A command. `works`, `chunks`: its functions in Postgres for works of a job and for chunks of a data set."""

    name: str
    help: str
    works: LiteralString | None = None
    chunks: LiteralString | None = None
    cascade: bool = False

    def function(self, given: Mapping[str, Any]) -> LiteralString:
        """The function for what was given on the command line."""
        found = self.chunks if self.of_chunks(given) else self.works
        assert found is not None
        return found + "_cascade" if given.get("cascade") else found

    def of_chunks(self, given: Mapping[str, Any]) -> bool:
        """Whether it is asked for chunks of a data set."""
        return self.works is None or bool(given.get("dataset"))


VERBS = (
    Verb(
        "resubmit",
        "Ask for work again: its outputs become RESUBMIT and it runs as soon as its inputs are ready.",
        works="resubmit",
        chunks="resubmit_chunks",
        cascade=True,
    ),
    Verb(
        "hold",
        "Keep work from running; with --dataset, keep chunks from being read and written.",
        works="hold",
        chunks="hold_chunks",
    ),
    Verb(
        "release",
        "Undo a hold or a skip: what was put aside is what it was, with what was asked meanwhile.",
        works="release",
        chunks="release_chunks",
    ),
    Verb("skip", "Say that work will not be done; `dataflow release` undoes it.", works="skip"),
    Verb(
        "force",
        "Run work next, whatever its inputs and outputs are; only never beside a run that writes the same chunk.",
        works="force",
    ),
    Verb("cancel", "End runs now; their work is FAILED and not tried again.", works="cancel"),
    Verb(
        "publish",
        "Say that chunks of a data set are there: they become READY, new ones are declared by it.",
        chunks="publish",
    ),
    Verb("accept", "Say that chunks that wait for it (PENDING) are good: they become READY.", chunks="accept"),
    Verb(
        "reject",
        "Say that chunks that wait for it (PENDING) are not good: they and the work that made them become FAILED.",
        chunks="reject",
    ),
)

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "data_ids": (
        Annotated[
            list[str] | None,
            typer.Argument(
                help="Data ids; or choose them by the options.", show_default=False, autocompletion=complete_data_id
            ),
        ],
        None,
    ),
    "first": (Annotated[str | None, typer.Option("--from", help="From this data id on, in natural order.")], None),
    "last": (Annotated[str | None, typer.Option("--to", help="Up to this data id, which is included.")], None),
    "status": (Annotated[list[str] | None, typer.Option("--status", help="In this state; may be repeated.")], None),
    "failed": (Annotated[bool, typer.Option("--failed", help="The same as --status FAILED.")], False),
    "dry_run": (Annotated[bool, typer.Option("--dry-run", help="Only say what would be touched.")], False),
    "reason": (Annotated[str | None, typer.Option("--reason", help="Why; goes into the history.")], None),
}
_DATASET = Annotated[bool, typer.Option("--dataset", help="The first argument is a data set, not a job.")]
_CASCADE = Annotated[bool, typer.Option("--cascade", help="Also all that was made of it, downwards.")]


def _parameters(verb: Verb) -> dict[str, tuple[Any, Any]]:
    """Name -> (annotation, default) of a verb's command; the first one has no default."""
    if verb.works and verb.chunks:
        owner = typer.Argument(help="A job, or with --dataset a data set.", autocompletion=complete_owner)
    elif verb.works:
        owner = typer.Argument(help="A job.", metavar="JOB", autocompletion=complete_job)
    else:
        owner = typer.Argument(help="A data set.", metavar="DATASET", autocompletion=complete_dataset)
    found: dict[str, tuple[Any, Any]] = {"owner": (Annotated[str, owner], inspect.Parameter.empty), **_OPTIONS}
    if verb.works and verb.chunks:
        found["dataset"] = (_DATASET, False)
    if verb.cascade:
        found["cascade"] = (_CASCADE, False)
    return found


def _command(verb: Verb) -> Callable[..., None]:
    """The command of a verb, with a signature that Typer reads: all verbs take the same options."""

    def command(**given: Any) -> None:
        _ask(verb, given)

    command.__doc__ = verb.help
    keyword = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # functions may have one (PEP 362)
        [inspect.Parameter(n, keyword, annotation=a, default=d) for n, (a, d) in _parameters(verb).items()]
    )
    return command


for _verb in VERBS:
    app.command(_verb.name, rich_help_panel=Panel.ASK)(_command(_verb))


@app.command("lost", rich_help_panel=Panel.ASK)
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
        launcher = ProcessLauncher(read_settings().runs_home)
        if found.runs_home == launcher.runs_home and (await launcher.owner_gone(found.lease, found.host)).alive:
            raise Refused(f"the engine of run {run} is alive on this machine: stop it, and the run ends with it")
        now, _ = await lose(store, found, f"said by {actor()}", actor())
        if now.already:
            raise Refused(f"run {run} has ended already: it is {now.run_state}")
        return f"run {run} is lost; {found.data_id} of job {found.job} is {now.work_state}"

    typer.echo(with_store(ask))


def _ask(verb: Verb, given: Mapping[str, Any]) -> None:
    owner, dry_run = given["owner"], given["dry_run"]
    chosen = _selection(given, of_chunks=verb.of_chunks(given))

    async def ask(store: Store) -> tuple[list[Answer], list[str]]:
        try:
            answers = await store.ask(verb.function(given), owner, chosen, actor(), given["reason"], dry_run=dry_run)
        except UnknownThing as error:
            raise await _unknown_owner(store, verb, owner, str(error)) from error
        unknown = any(answer.result == "unknown" for answer in answers)
        return answers, await store.known_ids(owner) if unknown else []

    answers, known = with_store(ask)
    if not answers and isinstance(chosen, Selection):
        raise Refused(f"{_nothing(owner, chosen)}: there is nothing to {verb.name}")
    _refuse_if_any(answers, known)
    for answer in answers:
        detail = f" ({answer.message})" if answer.message else ""
        typer.echo(f"{answer.job or owner} {answer.data_id}: {_word(answer, dry_run)}{answer.state}{detail}")
    if dry_run:
        typer.echo(f"{sum(map(_touched, answers))} would be touched; nothing was changed")


def _touched(answer: Answer) -> bool:
    return answer.result in ("done", "remembered")


def _word(answer: Answer, dry_run: bool) -> str:
    if not dry_run:
        return ""
    return "would be " if _touched(answer) else "stays "


def _selection(given: Mapping[str, Any], *, of_chunks: bool) -> list[str] | Selection:
    """What the command is about; InvalidInput where that is nothing, or two things at once."""
    ids = list(given["data_ids"] or [])
    states = [*(given["status"] or ()), *(["FAILED"] if given["failed"] else [])]
    chosen = bool(states) or given["first"] is not None or given["last"] is not None
    ways = "by --from and --to, by --status or by --failed"
    if ids and chosen:
        raise InvalidInput(f"data ids are given and also chosen {ways}: do one of the two")
    if not ids and not chosen:
        raise InvalidInput(f"no data ids: name one or more, or choose them {ways}")
    if ids:
        return ids
    possible = [str(state) for state in (ChunkStatus if of_chunks else WorkState)]
    for state in states:
        if state not in possible:
            raise InvalidInput(f"{'chunks are' if of_chunks else 'work is'} never {state}, but {', '.join(possible)}")
    return Selection(given["first"], given["last"], tuple(states), of_chunks=of_chunks)


def _nothing(owner: str, chosen: Selection) -> str:
    """Say that nothing is there to choose: no chunk of data set a is FAILED from 3 to 7."""
    things = f"no chunk of data set {owner}" if chosen.of_chunks else f"no work of job {owner}"
    is_so = f"is {' or '.join(chosen.states)}" if chosen.states else "is there"
    first = f" from {chosen.first}" if chosen.first is not None else ""
    return f"{things} {is_so}{first}" + (f" to {chosen.last}" if chosen.last is not None else "")


async def _unknown_owner(store: Store, verb: Verb, owner: str, said: str) -> UnknownThing:
    jobs = [row["job"] for row in await store.list_jobs()]
    datasets = [row["dataset"] for row in await store.list_datasets()]
    if owner in datasets:
        return UnknownThing(f"{said}: it is a data set{', which needs --dataset' if verb.chunks else ''}")
    if owner in jobs:
        return UnknownThing(f"{said}: it is a job")
    return UnknownThing(f"{said}{did_you_mean(owner, jobs if ' no job ' in said else datasets)}")


def _refuse_if_any(answers: Sequence[Answer], known: Sequence[str]) -> None:
    """Raise the sentences of what can't be done; nothing was changed then."""
    unknown = [f"{a.message}{did_you_mean(a.data_id, known)}" for a in answers if a.result == "unknown"]
    refused = [str(a.message) for a in answers if a.result == "refused"]
    rest = "; nothing was changed" if len(answers) > 1 else ""
    if unknown:
        raise UnknownThing(_joined(unknown) + rest)
    if refused:
        raise Refused(_joined(refused) + rest)


def _joined(sentences: Sequence[str]) -> str:
    more = len(sentences) - _SENTENCES
    return "; ".join([*sentences[:_SENTENCES], *([f"and {more} more"] if more > 0 else [])])
