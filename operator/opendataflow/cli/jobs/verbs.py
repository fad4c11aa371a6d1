"""One command for each verb that changes chunks or tasks, and the command `lost`.

Every command changes all given ids or none: if one id is unknown or refused, nothing is changed.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, ReasonOption, actor, app, with_store
from opendataflow.cli.cluster.choice import through_cluster
from opendataflow.cli.complete import complete_data_id, complete_dataset, complete_job, complete_owner
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.text.verbs import VERBS, Verb, did_you_mean, line, nothing_selected, refuse_if_any, was_changed
from opendataflow.engine.takeover import commit_lost
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.claim import Answer, ClaimedRun, Selection
from opendataflow.names import COUNTED_CHUNKS, COUNTED_TASKS, INCOMPLETE, ChunkStatus, RunState
from opendataflow.settings import read_settings
from opendataflow.store.leader import identity
from opendataflow.store.store import Store

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "data_ids": (
        Annotated[
            list[str] | None,
            typer.Argument(
                help="Data ids. Or select them by options.", show_default=False, autocompletion=complete_data_id
            ),
        ],
        None,
    ),
    "first": (Annotated[str | None, typer.Option("--from", help="Start at this data id, in natural order.")], None),
    "last": (Annotated[str | None, typer.Option("--to", help="End at this data id, inclusive.")], None),
    "status": (Annotated[list[str] | None, typer.Option("--status", help="Only this state. Can be repeated.")], None),
    "failed": (Annotated[bool, typer.Option("--failed", help="The same as --status FAILED.")], False),
    "dry_run": (
        Annotated[bool, typer.Option("--dry-run", help="Report what would change, and change nothing.")],
        False,
    ),
    "reason": (ReasonOption, None),
    "output": (OutputOption, Output.TABLE),
}
_STALE = Annotated[
    bool, typer.Option("--stale", help="Only what was made from an older version of an input or of its job.")
]
_DATASET = Annotated[bool, typer.Option("--dataset", help="The first argument is a data set, not a job.")]
_INCOMPLETE = Annotated[bool, typer.Option("--incomplete", help="Only DONE tasks with an output that was never made.")]
_CASCADE = Annotated[bool, typer.Option("--cascade", help="Also all downstream chunks that were built from it.")]


def _parameters(verb: Verb) -> dict[str, tuple[Any, Any]]:
    """Return name -> (annotation, default) of a verb's command. The first parameter has no default."""
    if verb.tasks and verb.chunks:
        owner = typer.Argument(help="A job, or with --dataset a data set.", autocompletion=complete_owner)
    elif verb.tasks:
        owner = typer.Argument(help="A job.", metavar="JOB", autocompletion=complete_job)
    else:
        owner = typer.Argument(help="A data set.", metavar="DATASET", autocompletion=complete_dataset)
    found: dict[str, tuple[Any, Any]] = {"owner": (Annotated[str, owner], inspect.Parameter.empty), **_OPTIONS}
    if verb.tasks and verb.chunks:
        found["dataset"] = (_DATASET, False)
    if verb.name in ("resubmit", "skip"):
        found["incomplete"] = (_INCOMPLETE, False)
    if verb.cascade:
        found["stale"] = (_STALE, False)
        found["cascade"] = (_CASCADE, False)
    return found


def _command(verb: Verb) -> Callable[..., None]:
    """Return the command of a verb, with a signature for Typer. All verbs take nearly the same options."""

    def command(**given: Any) -> None:
        _ask(verb, given)

    command.__doc__ = verb.help
    keyword = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # functions may have one (PEP 362)
        [inspect.Parameter(n, keyword, annotation=a, default=d) for n, (a, d) in _parameters(verb).items()]
    )
    return command


for _verb in VERBS:
    app.command(_verb.name)(_command(_verb))


@app.command("lost")
def lost(
    run: Annotated[int, typer.Argument(help="The run, as `dataflow get runs` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare a run dead that the program can't prove dead, because its host is gone. Its task is tried again."""
    with_store(lambda store: _active_run(store, run))  # before the question
    if not yes:
        _confirm(f"Is it certain that nothing of run {run} is alive? A second one would write beside it")

    async def ask(store: Store) -> dict[str, Any]:
        found = await _active_run(store, run)
        settings = read_settings()
        launcher = ProcessLauncher(settings.runs_home(await identity(store)), former_home=settings.all_runs)
        beside = launcher.of_home(found.runs_home)
        if beside is not None and (await beside.prove_owner_dead(found.lease, found.host)).alive:
            raise Refused(f"the engine of run {run} is alive on this machine: stop it, and the run ends with it")
        now, _ = await commit_lost(store, found, f"reported by {actor()}", actor())
        if now.already:
            raise Refused(f"run {run} has ended already: it is {now.run_state}")
        return {"run": run, "job": found.job, "data_id": found.data_id, "state": now.task_state}

    done = with_store(ask)
    if output.is_document:
        print_document(done, output)
    else:
        echo(f"run {run} is lost; {done['data_id']} of job {done['job']} is {done['state']}")


async def _active_run(store: Store, run: int) -> ClaimedRun:
    """Return an active run. Raise UnknownThing or Refused for another one."""
    found, log = await store.run(run), await store.run_log(None, None, run)
    if found is None or log is None:
        raise UnknownThing(f"there is no run {run}: see `dataflow get runs`")
    if log["state"] != RunState.RUNNING:
        raise Refused(f"run {run} has ended already: it is {log['state']}")
    return found


def _confirm(question: str) -> None:
    """Ask for a confirmation. Raise InvalidInput if nobody can answer."""
    if not sys.stdin.isatty():
        raise InvalidInput("this needs a confirmation, and there is no terminal to ask at: add --yes if it is certain")
    typer.confirm(question, abort=True, err=True)


def _ask(verb: Verb, given: Mapping[str, Any]) -> None:
    owner, dry_run = given["owner"], given["dry_run"]
    of_chunks = verb.tasks is None or bool(given.get("dataset"))
    chosen = _selection(given, of_chunks=of_chunks)
    cascade = bool(given.get("cascade"))
    if through_cluster():
        _require_simple(given)
        from opendataflow.cli.cluster import actions  # with models of resources, which take long to load

        actions.ask(verb, owner, chosen, actor(), given["reason"], of_chunks=of_chunks, cascade=cascade)
        return
    function = verb.function(of_chunks=of_chunks, cascade=cascade)

    async def ask(store: Store) -> tuple[list[Answer], list[str]]:
        try:
            answers = await store.call_verb(function, owner, chosen, actor(), given["reason"], dry_run=dry_run)
        except UnknownThing as error:
            raise await _unknown_owner(store, verb, owner, str(error)) from error
        unknown = any(answer.result == "unknown" for answer in answers)
        return answers, await store.known_ids(owner) if unknown else []

    answers, known = with_store(ask)
    if not answers and isinstance(chosen, Selection):
        raise nothing_selected(verb.name, owner, chosen)
    refuse_if_any(answers, Counter(answer.result for answer in answers), known)
    if given["output"].is_document:
        print_document([_document(answer, owner, of_chunks=of_chunks) for answer in answers], given["output"])
        return
    for answer in answers:
        echo(line(answer, owner, dry_run=dry_run))
    if dry_run:
        echo(f"{sum(map(was_changed, answers))} would be touched; nothing was changed")


def _require_simple(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput for options that a DataFlowAction does not have."""
    if given["dry_run"]:
        raise InvalidInput(
            "only Postgres can answer a dry run: set DATAFLOW_DSN to the address of the operator's database, and "
            "leave --kube, --context, --namespace and DATAFLOW_KUBE out"
        )
    if given["output"].is_document:
        raise InvalidInput("-o json and yaml need Postgres: a DataFlowAction has its answers in its status")
    if given.get("incomplete"):
        raise InvalidInput("--incomplete needs Postgres: name the data ids instead")


def _document(answer: Answer, owner: str, *, of_chunks: bool) -> dict[str, Any]:
    """Return an answer for a program. With --dry-run, `changed` and `state` are what would be."""
    is_chunk = of_chunks and answer.job is None
    return {
        "dataset": owner if is_chunk else None,
        "job": None if is_chunk else answer.job or owner,
        "data_id": answer.data_id,
        "changed": was_changed(answer),
        "state": answer.state,
        "message": answer.message,
    }


def _selection(given: Mapping[str, Any], *, of_chunks: bool) -> list[str] | Selection:
    """Return the given ids or the selection. Raise InvalidInput if both or neither are given."""
    ids = list(given["data_ids"] or [])
    states = [*(given["status"] or ()), *(["FAILED"] if given["failed"] else [])]
    stale, incomplete = bool(given.get("stale")), bool(given.get("incomplete"))
    chosen = bool(states) or given["first"] is not None or given["last"] is not None or stale or incomplete
    ways = f"by --from and --to, by --status{', by --stale' if 'stale' in given else ''} or by --failed"
    if ids and chosen:
        raise InvalidInput(f"data ids are given and also chosen {ways}: do one of the two")
    if not ids and not chosen:
        raise InvalidInput(f"no data ids: name one or more, or choose them {ways}")
    if ids:
        return ids
    possible = [str(state) for state in (COUNTED_CHUNKS if of_chunks else COUNTED_TASKS)]
    for state in states:
        if state == ChunkStatus.READY and not of_chunks:
            raise InvalidInput("READY is a status of chunks: for the tasks of a job, write QUEUED")
        if state not in possible:
            raise InvalidInput(f"{'chunks' if of_chunks else 'tasks'} are never {state}, but {', '.join(possible)}")
    if incomplete and of_chunks:
        raise InvalidInput("--incomplete selects tasks of a job: leave --dataset out")
    marks = (*states, *([INCOMPLETE] if incomplete else []))
    return Selection(given["first"], given["last"], marks, of_chunks=of_chunks, stale=stale)


async def _unknown_owner(store: Store, verb: Verb, owner: str, sentence: str) -> UnknownThing:
    """Return the error for an unknown owner, with a hint. `sentence`: the error of the store."""
    jobs = [row["job"] for row in await store.list_jobs()]
    datasets = [row["dataset"] for row in await store.list_datasets()]
    if owner in datasets:
        return UnknownThing(f"{sentence}: it is a data set{', which needs --dataset' if verb.chunks else ''}")
    if owner in jobs:
        return UnknownThing(f"{sentence}: it is a job")
    return UnknownThing(f"{sentence}{did_you_mean(owner, jobs if ' no job ' in sentence else datasets)}")
