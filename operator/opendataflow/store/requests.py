"""Requests that are done exactly once, however often they are made: those of custom resources.

What is asked and the memory that it was done are one transaction. A refusal is an answer too, and is remembered. It
does not know resources: a request has an owner, and an id among that owner's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from opendataflow.core.text.verbs import Verb, line, nothing, refuse_if_any
from opendataflow.errors import NotShared, Refused, UnknownThing
from opendataflow.model.records.claim import Answer, Selection
from opendataflow.model.resources.statuses import MOST_LINES
from opendataflow.names import Refusal
from opendataflow.store.connections.connection import Row, translated
from opendataflow.store.store import Store


@dataclass(frozen=True)
class Request:
    """What is asked. `owner`: whose request, as in `action UID`; its last one is remembered by `id`. `target`: a job
    or, `of_chunks`, a data set. `namespace`: must own the target, or have it shared, where a resource owns it."""

    owner: str
    id: str
    verb: Verb
    target: str
    chosen: Sequence[str] | Selection
    actor: str
    namespace: str
    of_chunks: bool = False
    cascade: bool = False
    reason: str | None = None


@dataclass(frozen=True)
class Remembered:
    """What became of a request. `refusal`: None where it was done; else `message` is the sentence. `lines`: what became
    of the first ids."""

    done: int
    unchanged: int
    refused: int
    message: str
    finished_at: datetime
    refusal: Refusal | None = None
    lines: tuple[str, ...] = ()


async def answer_once(store: Store, request: Request, now: datetime, *, target_may_come: bool = False) -> Remembered:
    """Do a request, all of it or nothing, or return what it was answered before.

    `target_may_come`: raise UnknownThing, and remember nothing, where its job or data set is not there.
    """

    async def attempt(connection: AsyncConnection[Row]) -> tuple[Remembered, bool]:
        before = await _row(
            connection, "SELECT opendataflow.recorded_answer(%s, %s) AS answer", request.owner, request.id
        )
        if before["answer"] is not None:
            return _from_row(before["answer"]), True
        if target_may_come:
            require: LiteralString = "SELECT opendataflow.require_dataset(%s)"
            await _row(
                connection, require if request.of_chunks else "SELECT opendataflow.require_job(%s)", request.target
            )
        answer = await _execute(store, connection, request, now)
        query: LiteralString = "SELECT opendataflow.record_answer(%s, %s, %s) AS first"
        first = await _row(connection, query, request.owner, request.id, Jsonb(_to_row(answer)))
        return answer, bool(first["first"])

    while True:
        answer, first = await store.transaction(attempt, lambda result: not result[1])
        if first:
            return answer


async def delete_stale_answers(store: Store, prefix: str, owners: Iterable[str], now: datetime) -> int:
    """Forget the answers to owners with a prefix that are there no more; return how many.

    Only those of an hour ago and before: an owner may have come after `owners` was made.
    """
    query = "SELECT opendataflow.delete_stale_answers(%s, %s, %s) AS gone"
    return int((await store.row(query, prefix, list(owners), now - timedelta(hours=1)))["gone"])


async def _execute(store: Store, connection: AsyncConnection[Row], request: Request, now: datetime) -> Remembered:
    """Do it, or find out why not; where not, nothing of it stays."""
    counts: dict[str, int] = {}
    try:
        async with connection.transaction(), translated(store.where):
            query = "SELECT opendataflow.require_namespace_access(%s, %s, %s)"
            await _row(connection, query, request.target, request.of_chunks, request.namespace)
            answers, counts = await _call_verb(connection, request)
            if not answers and isinstance(request.chosen, Selection):
                raise nothing(request.verb.name, request.target, request.chosen)
            refuse_if_any(
                answers, counts, await _known_ids(connection, request.target) if counts.get("unknown") else ()
            )
    except (Refused, UnknownThing) as error:
        refused = counts.get("refused", 0) + counts.get("unknown", 0)
        return Remembered(0, 0, refused, str(error), now, refusal=_refusal_of(error))
    done, unchanged = counts.get("done", 0) + counts.get("remembered", 0), counts.get("unchanged", 0)
    message = f"{request.verb.name}: {done} done" + (f", {unchanged} unchanged" if unchanged else "")
    return Remembered(done, unchanged, 0, message, now, lines=tuple(line(answer, request.target) for answer in answers))


def _refusal_of(error: Refused | UnknownThing) -> Refusal:
    if isinstance(error, UnknownThing):
        return Refusal.UNKNOWN
    return Refusal.NOT_SHARED if isinstance(error, NotShared) else Refusal.REFUSED


async def _call_verb(connection: AsyncConnection[Row], request: Request) -> tuple[list[Answer], dict[str, int]]:
    """Call the verb; return its first answers, those that refuse before all others, and how many there are by result.

    Ids are chosen and answers counted in Postgres: a million of them never come here.
    """
    ids: LiteralString = "%s::text[]"
    values: tuple[object, ...] = (list(request.chosen),) if not isinstance(request.chosen, Selection) else ()
    if isinstance(request.chosen, Selection):
        ids = "ARRAY(SELECT data_id FROM opendataflow.select_tasks(%s, %s, %s, %s))"
        if request.of_chunks:
            ids = "ARRAY(SELECT data_id FROM opendataflow.select_chunks(%s, %s, %s, %s))"
        chosen = request.chosen
        values = (request.target, chosen.first, chosen.last, list(chosen.states) or None)
    verb = request.verb.function(of_chunks=request.of_chunks, cascade=request.cascade)
    query: LiteralString = (
        "WITH told AS MATERIALIZED (SELECT * FROM opendataflow."
        + verb
        + "(%s, "
        + ids
        + """, %s, %s) WITH ORDINALITY)
        SELECT (SELECT coalesce(jsonb_object_agg(c.result, c.n), '{}')
                FROM (SELECT t.result, count(*) AS n FROM told t GROUP BY t.result) c) AS counts,
               (SELECT coalesce(json_agg(f ORDER BY f.ordinality), '[]')
                FROM (SELECT * FROM told t ORDER BY t.result = 'unknown' DESC, t.result = 'refused' DESC, t.ordinality
                      LIMIT %s) f) AS first"""
    )
    row = await _row(connection, query, request.target, *values, request.actor, request.reason, MOST_LINES)
    return [Answer(*list(answer.values())[:-1]) for answer in row["first"]], row["counts"]


async def _known_ids(connection: AsyncConnection[Row], target: str) -> list[str]:
    query = "SELECT known_ids AS id FROM opendataflow.known_ids(%s, 5000)"
    return [row["id"] for row in await (await connection.execute(query, (target,))).fetchall()]


async def _row(connection: AsyncConnection[Row], query: LiteralString, *values: object) -> Row:
    row = await (await connection.execute(query, values)).fetchone()
    assert row is not None
    return row


def _to_row(answer: Remembered) -> Row:
    """The answer as table `request` has it; statuses tell of its `counts` and `message`."""
    return {
        "counts": {"done": answer.done, "unchanged": answer.unchanged, "refused": answer.refused},
        "message": answer.message,
        "finished_at": answer.finished_at.isoformat(),
        "refusal": answer.refusal,
        "lines": list(answer.lines),
    }


def _from_row(answer: Row) -> Remembered:
    return Remembered(
        **answer["counts"],
        message=answer["message"],
        finished_at=datetime.fromisoformat(answer["finished_at"]),
        refusal=Refusal(answer["refusal"]) if answer["refusal"] else None,
        lines=tuple(answer["lines"]),
    )
