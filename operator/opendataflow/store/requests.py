"""Requests of custom resources, which are executed exactly once, however often they are repeated.

The request and the record of its answer are one transaction. A refusal is recorded too. This module does not know
custom resources: a request has an owner, and an id that is unique for this owner.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from opendataflow.core.text.verbs import Verb, line, nothing_selected, refuse_if_any
from opendataflow.errors import Refused, UnknownThing
from opendataflow.keys import sentence_seen_from
from opendataflow.model.records.claim import Answer, Selection
from opendataflow.model.resources.statuses import MOST_LINES
from opendataflow.names import Refusal
from opendataflow.store.connections.connection import Row, translated
from opendataflow.store.store import Store

ACTION_PREFIX = "action "
"""How the owner of a DataFlowAction's request begins. Its uid follows."""


@dataclass(frozen=True)
class Request:
    """One request.

    `owner`: for example `action UID`. Only its last request is recorded, by `id`. `target`: the key of a job or, with
    `of_chunks`, of a data set. `namespace`: of the target; the answer has ids as its people write them.
    """

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
class RecordedAnswer:
    """The recorded answer to a request.

    `refusal`: None if the request was executed. Otherwise `message` is the reason. `lines`: the results of the first
    ids.
    """

    done: int
    unchanged: int
    refused: int
    message: str
    finished_at: datetime
    refusal: Refusal | None = None
    lines: tuple[str, ...] = ()


async def answer_once(
    store: Store, request: Request, now: datetime, *, target_may_come: bool = False
) -> RecordedAnswer:
    """Execute a request, all of it or nothing, or return its recorded answer.

    `target_may_come`: if its job or data set does not exist, raise UnknownThing and record nothing.
    """

    async def attempt(connection: AsyncConnection[Row]) -> tuple[RecordedAnswer, bool]:
        before = await _row(
            connection, "SELECT opendataflow.recorded_answer(%s, %s) AS answer", request.owner, request.id
        )
        if before["answer"] is not None:
            return _from_row(before["answer"]), True
        if target_may_come:
            await _require_target(connection, request)
        answer = await _execute(store, connection, request, now)
        query: LiteralString = "SELECT opendataflow.record_answer(%s, %s, %s) AS first"
        first = await _row(connection, query, request.owner, request.id, Jsonb(_to_row(answer)))
        return answer, bool(first["first"])

    while True:
        answer, first = await store.transaction(attempt, lambda result: not result[1])
        if first:
            return answer


async def delete_stale_answers(store: Store, prefix: str, owners: Iterable[str], now: datetime) -> int:
    """Delete recorded answers of owners with this prefix that are not in `owners`. Return their number.

    Only answers older than one hour are deleted, because an owner may have been created after `owners` was read.
    """
    query = "SELECT opendataflow.delete_stale_answers(%s, %s, %s) AS gone"
    return int((await store.row(query, prefix, list(owners), now - timedelta(hours=1)))["gone"])


async def _execute(store: Store, connection: AsyncConnection[Row], request: Request, now: datetime) -> RecordedAnswer:
    """Execute a request and return its answer. A refusal rolls back all of its changes."""
    answers: list[Answer] = []
    counts: dict[str, int] = {}
    try:
        async with connection.transaction(), translated(store.where):
            await _require_target(connection, request)
            answers, counts = await _call_verb(connection, request)
            if not answers and isinstance(request.chosen, Selection):
                raise nothing_selected(request.verb.name, request.target, request.chosen)
            refuse_if_any(
                answers, counts, await _known_ids(connection, request.target) if counts.get("unknown") else ()
            )
    except (Refused, UnknownThing) as error:
        refused = counts.get("refused", 0) + counts.get("unknown", 0)
        message = sentence_seen_from(request.namespace, str(error), _keys(request, answers))
        return RecordedAnswer(0, 0, refused, message, now, refusal=_refusal_of(error))
    done, unchanged = counts.get("done", 0) + counts.get("remembered", 0), counts.get("unchanged", 0)
    message = f"{request.verb.name}: {done} done" + (f", {unchanged} unchanged" if unchanged else "")
    keys = _keys(request, answers)
    lines = (sentence_seen_from(request.namespace, line(answer, request.target), keys) for answer in answers)
    return RecordedAnswer(done, unchanged, 0, message, now, lines=tuple(lines))


def _keys(request: Request, answers: Sequence[Answer]) -> set[str]:
    """Return the keys that may be in the sentences of an answer."""
    return {request.target, *(answer.job for answer in answers if answer.job is not None)}


async def _require_target(connection: AsyncConnection[Row], request: Request) -> None:
    require: LiteralString = "SELECT opendataflow.require_dataset(%s)"
    await _row(connection, require if request.of_chunks else "SELECT opendataflow.require_job(%s)", request.target)


def _refusal_of(error: Refused | UnknownThing) -> Refusal:
    return Refusal.UNKNOWN if isinstance(error, UnknownThing) else Refusal.REFUSED


async def _call_verb(connection: AsyncConnection[Row], request: Request) -> tuple[list[Answer], dict[str, int]]:
    """Call the verb. Return its first answers, refusals first, and the number of answers by result.

    Postgres selects the ids and counts the answers, because there may be a million of them.
    """
    ids: LiteralString = "%s::text[]"
    values: tuple[object, ...] = (list(request.chosen),) if not isinstance(request.chosen, Selection) else ()
    if isinstance(request.chosen, Selection):
        ids = "ARRAY(SELECT data_id FROM opendataflow.select_tasks(%s, %s, %s, %s, %s))"
        if request.of_chunks:
            ids = "ARRAY(SELECT data_id FROM opendataflow.select_chunks(%s, %s, %s, %s, %s))"
        chosen = request.chosen
        values = (request.target, chosen.first, chosen.last, list(chosen.states) or None, chosen.stale)
    verb = request.verb.function(of_chunks=request.of_chunks, cascade=request.cascade)
    query: LiteralString = (
        "WITH answers AS MATERIALIZED (SELECT * FROM opendataflow."
        + verb
        + "(%s, "
        + ids
        + """, %s, %s) WITH ORDINALITY)
        SELECT (SELECT coalesce(jsonb_object_agg(c.result, c.n), '{}')
                FROM (SELECT t.result, count(*) AS n FROM answers t GROUP BY t.result) c) AS counts,
               (SELECT coalesce(json_agg(f ORDER BY f.ordinality), '[]')
                FROM (SELECT * FROM answers t ORDER BY t.result = 'unknown' DESC, t.result = 'refused' DESC,
                                                   t.ordinality LIMIT %s) f) AS first"""
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


def _to_row(answer: RecordedAnswer) -> Row:
    """Return the answer as the JSON of table `request`. Statuses read its `counts` and `message`."""
    return {
        "counts": {"done": answer.done, "unchanged": answer.unchanged, "refused": answer.refused},
        "message": answer.message,
        "finished_at": answer.finished_at.isoformat(),
        "refusal": answer.refusal,
        "lines": list(answer.lines),
    }


def _from_row(answer: Row) -> RecordedAnswer:
    return RecordedAnswer(
        **answer["counts"],
        message=answer["message"],
        finished_at=datetime.fromisoformat(answer["finished_at"]),
        refusal=Refusal(answer["refusal"]) if answer["refusal"] else None,
        lines=tuple(answer["lines"]),
    )


def owner_of_action(uid: str) -> str:
    """Return the owner of a DataFlowAction's request. `uid`: of the action."""
    return f"{ACTION_PREFIX}{uid}"


async def answered(store: Store, owners: Collection[str]) -> set[str]:
    """Return those of the given owners of requests whose answer is recorded."""
    rows = await store.rows("SELECT opendataflow.answered_requests(%s) AS owner", list(owners))
    return {row["owner"] for row in rows}
