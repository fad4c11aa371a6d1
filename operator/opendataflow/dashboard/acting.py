"""Actions of a person: a dry run that changes nothing, then the same verb as on the command line, with a reason.

Only a form of this dashboard can change something: it has a token that no other page knows, and the browser reports
where it came from.
"""

import hmac
import re
from collections.abc import Sequence

from aiohttp import web

from opendataflow.core.text.verbs import VERB
from opendataflow.dashboard.actions import Action, action_page, changes, is_refused
from opendataflow.dashboard.models import CHUNK_VERBS, TASK_VERBS
from opendataflow.dashboard.pages import CHOSEN, DATABASE, TOKEN, choice_of, number_of, part_of, show, state_of, text_of
from opendataflow.dashboard.templating import link
from opendataflow.errors import InvalidInput, Refused
from opendataflow.model.records.claim import Answer
from opendataflow.names import CONTROLS, ChunkStatus
from opendataflow.store import dashboard
from opendataflow.store.store import Store

ACTIONS = web.RouteTableDef()
ACTOR: web.AppKey[str] = web.AppKey("actor", str)
_MOST = 100_000
_LONGEST_REASON = 500
_FIELDS = ("owner", "verb", "dataset", "id", *CHOSEN, "status")
"""The parameters of an action. Its form sends them again."""


@ACTIONS.get("/act")
async def preview(request: web.Request) -> web.Response:
    """Show what an action would do."""
    action = await _action(request)
    return show(request, action_page(action, await _call(request, action, dry_run=True)))


@ACTIONS.post("/act")
async def act(request: web.Request) -> web.Response:
    """Do what the form has shown. If it would do something else by now, show that instead."""
    form = await _form(request)
    action, reason = await _action(request), _reason(form)
    answers = await _call(request, action, dry_run=True)
    shown = action_page(action, answers, reason=reason)
    if form.get("changes") != str(changes(answers)):
        note = "The chunks have changed since the form was shown: this is what it would do now."
        return show(request, action_page(action, answers, note=note, reason=reason), status=409)
    if shown.must_type and form.get("typed") != action.owner:
        note = f"More than 100 chunks would change: type {action.owner} to confirm it."
        return show(request, action_page(action, answers, note=note, reason=reason), status=400)
    refused = {answer.data_id for answer in answers if is_refused(answer)}
    rest = Action(
        action.verb, action.owner, tuple(it for it in action.ids if it not in refused), action.of_chunks, action.fields
    )
    done = await _call(request, rest, dry_run=False, reason=reason)
    if any(map(is_refused, done)):
        note = "Nothing was changed: some chunks refuse it now."
        return show(request, action_page(action, done, note=note, reason=reason), status=409)
    return show(request, action_page(rest, done, done=True, reason=reason))


@ACTIONS.post("/limits")
async def limits(request: web.Request) -> web.Response:
    """Suspend or resume a job, or change how many runs it may have at a time."""
    form = await _form(request)
    store, job, reason, actor = _store(request), text_of(request, "id"), _reason(form), request.app[ACTOR]
    match form.get("change"):
        case "suspend" | "resume" as change:
            await store.suspend(job, actor, reason, suspended=change == "suspend")
        case "scale":
            await store.scale(job, number_of(str(form.get("parallelism", "")), "parallelism"), actor, reason)
        case _:
            raise InvalidInput("`change` is one of suspend, resume, scale")
    raise web.HTTPSeeOther(link("job", id=job))


def _store(request: web.Request) -> Store:
    store = request.app[DATABASE]
    if not request.app[TOKEN] or not isinstance(store, Store):
        raise Refused("this dashboard was started with --read-only")
    return store


async def _form(request: web.Request) -> dict[str, str]:
    """Return the fields of a form of this dashboard. Raise HTTPForbidden for any other one."""
    form = {name: str(value) for name, value in (await request.post()).items()}
    ours = request.app[TOKEN]
    if not ours or not hmac.compare_digest(form.get("token", "").encode(), ours.encode()):
        raise web.HTTPForbidden(reason="The form is not of this dashboard, or of an earlier one; open the page again")
    return form


def _reason(form: dict[str, str]) -> str:
    reason = form.get("reason", "").strip()
    if not reason or len(reason) > _LONGEST_REASON or re.search(f"[{CONTROLS}]", reason):
        raise InvalidInput(f"a reason is wanted: one line of at most {_LONGEST_REASON} characters, for the history")
    return reason


async def _action(request: web.Request) -> Action:
    """Return the action that the address names, with the ids that it means now."""
    verb, owner, of_chunks = text_of(request, "verb"), text_of(request, "owner"), bool(text_of(request, "dataset"))
    possible = CHUNK_VERBS if of_chunks else TASK_VERBS
    if verb not in possible:
        raise InvalidInput(f"`verb` is one of {', '.join(possible)}")
    fields = {name: text_of(request, name) for name in _FIELDS if text_of(request, name)}
    if one := text_of(request, "id"):
        return Action(verb, owner, (one,), of_chunks, fields)
    return Action(verb, owner, await _ids(request, owner, of_chunks=of_chunks), of_chunks, fields)


async def _ids(request: web.Request, owner: str, *, of_chunks: bool) -> tuple[str, ...]:
    database = request.app[DATABASE]
    if of_chunks:
        status = text_of(request, "status")
        if status and status not in list(ChunkStatus):
            raise InvalidInput(f"`status` is one of {', '.join(ChunkStatus)}")
        part = text_of(request, "part") or None
        rows = await dashboard.chunks(database, owner, status or None, part, 0, _MOST + 1)
    else:
        state, stale = state_of(choice_of(request))
        rows = await dashboard.tasks(database, owner, state, stale, part_of(request), 0, _MOST + 1)
    if len(rows) > _MOST:
        raise InvalidInput(f"more than {_MOST} chunks are chosen: choose fewer, or use the command line")
    if not rows:
        raise Refused(f"no chunk of {owner} is chosen: there is nothing to do")
    return tuple(row["data_id"] for row in rows)


async def _call(request: web.Request, action: Action, *, dry_run: bool, reason: str | None = None) -> Sequence[Answer]:
    function = VERB[action.verb].function(of_chunks=action.of_chunks, cascade=False)
    store, actor = _store(request), request.app[ACTOR]
    return await store.call_verb(function, action.owner, action.ids, actor, reason, dry_run=dry_run)
