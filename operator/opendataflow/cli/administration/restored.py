"""`dataflow db restored`: prepares a restored or copied database for its operator, and lists what it has forgotten."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.administration.db import db
from opendataflow.cli.app import actor, with_store
from opendataflow.cli.cluster.choice import Cluster, require_postgres, with_cluster
from opendataflow.cli.output.printing import echo
from opendataflow.core.text.explain import counted
from opendataflow.errors import ClusterRefused, ClusterUnreachable, InvalidInput

if TYPE_CHECKING:
    from opendataflow.store.store import Store

_COPY = "the database is a copy: its pod belongs to the original"


@db.command("restored")
def restored(
    move: Annotated[
        bool, typer.Option("--move", help="The operators of the earlier cluster or namespace are gone for good.")
    ] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="The original is still in use. Suspend all jobs, and end all runs as lost.")
    ] = False,
) -> None:
    """Prepare a restored database before its operator starts. List finished DataFlowActions that it has forgotten.

    Runs of the restored state whose pods are gone are then tried again with newer fencing tokens.
    """
    if move and copy:
        raise InvalidInput("--move and --copy: write one of them")
    require_postgres()
    if copy:
        jobs, runs = with_store(_become_copy)
        echo(f"this database is a copy now: {counted(jobs, 'job')} suspended, {counted(runs, 'run')} ended as lost")
        echo("next: start an operator for other namespaces, and resume jobs by: dataflow resume JOB")
        return
    finished = _finished_actions()
    forgotten = with_store(lambda store: _prepare(store, finished, move=move))
    for line in _report(forgotten, asked=len(finished)):
        echo(line)
    if move:
        echo("the next operator that leads becomes the home of this database")
    echo("next: start the operator")


async def _become_copy(store: "Store") -> tuple[int, int]:
    """Make the database a copy. Return the numbers of suspended jobs and of lost runs."""
    from opendataflow.engine.takeover import commit_lost
    from opendataflow.store.leader import become_copy, require_no_engine

    await require_no_engine(store)
    jobs = await become_copy(store, actor())
    runs = [run for run, _ in await store.running_runs(str(uuid.uuid4()), own=False)]
    for run in runs:
        await commit_lost(store, run, _COPY, actor())
    return jobs, len(runs)


async def _prepare(store: "Store", finished: list[dict[str, Any]], *, move: bool) -> list[dict[str, Any]]:
    """Return the finished actions that Postgres does not know. `move`: forget the home of the database."""
    from opendataflow.store.leader import forget_home, record_restore, require_no_engine
    from opendataflow.store.requests import answered, owner_of_action

    await require_no_engine(store)
    await record_restore(store)
    if move:
        await forget_home(store)
    known = await answered(store, [owner_of_action(each["metadata"]["uid"]) for each in finished])
    return [each for each in finished if owner_of_action(each["metadata"]["uid"]) not in known]


def _finished_actions() -> list[dict[str, Any]]:
    """Return the DataFlowActions of all namespaces that were done. Without a cluster, report that and return none."""
    try:
        return with_cluster(_list_finished)
    except (InvalidInput, ClusterRefused, ClusterUnreachable) as error:
        echo(f"DataFlowActions were not compared: {error}", err=True)
        return []


async def _list_finished(cluster: Cluster) -> list[dict[str, Any]]:
    from opendataflow.launch.cluster.api import custom

    pages = cluster.api.pages(custom("dataflowactions"), None)
    return [each async for page, _ in pages for each in page if (each.get("status") or {}).get("phase") == "Done"]


def _report(forgotten: list[dict[str, Any]], *, asked: int) -> Iterator[str]:
    if not forgotten:
        yield f"this database has the answers of all finished DataFlowActions ({asked})"
        return
    yield f"this database does not know {counted(len(forgotten), 'finished DataFlowAction')}; to repeat one:"
    for each in sorted(forgotten, key=lambda action: str(action["status"].get("finishedAt"))):
        namespace, name, spec = each["metadata"]["namespace"], each["metadata"]["name"], each["spec"]
        target = f"job {spec['job']}" if "job" in spec else f"data set {spec.get('dataset')}"
        yield f"{each['status'].get('finishedAt')}  {namespace}/{name}  {spec['action']} {target}"
        yield f"    kubectl -n {namespace} get dataflowaction {name} -o yaml | kubectl replace --force -f -"
