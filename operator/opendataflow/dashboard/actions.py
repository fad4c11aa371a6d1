"""View model of an action: what a verb would do to the chosen chunks, or has done. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from opendataflow.core.text.explain import shell_command
from opendataflow.core.text.verbs import VERB, was_changed
from opendataflow.dashboard.models import Page
from opendataflow.model.records.claim import Answer

TYPED_ABOVE = 100
"""If more chunks would change, a person types the name of the job."""
_EXAMPLES = 3
_IN_COMMAND = 20
"""How many ids the command has at most."""
_REFUSALS = 5


@dataclass(frozen=True)
class Action:
    """What a person asks for. `fields`: the parameters that have chosen the ids."""

    verb: str
    owner: str
    ids: tuple[str, ...]
    of_chunks: bool
    fields: Mapping[str, str]


@dataclass(frozen=True)
class Outcome:
    """What becomes of some chunks. `owner`: their job or data set."""

    count: int
    owner: str
    state: str
    is_change: bool
    examples: str
    note: str


@dataclass(frozen=True)
class ActionPage(Page):
    """The dry run of an action with the form that confirms it, or its result if `done`."""

    template: ClassVar[str] = "action.html"
    verb: str
    help: str
    owner: str
    of_chunks: bool
    chosen: int
    outcomes: tuple[Outcome, ...]
    changes: int
    refused: int
    refusals: tuple[str, ...]
    fields: Mapping[str, str]
    command: str | None
    must_type: bool
    done: bool
    note: str
    reason: str


def is_refused(answer: Answer) -> bool:
    """Return whether a request would fail because of this chunk."""
    return answer.result in ("refused", "unknown")


def changes(answers: Sequence[Answer]) -> int:
    """Return how many tasks and chunks would change, or have changed."""
    return sum(map(was_changed, answers))


def action_page(
    action: Action, answers: Sequence[Answer], *, done: bool = False, note: str = "", reason: str = ""
) -> ActionPage:
    """Return the page. `note`: why the form is shown once more."""
    refusals = [str(answer.message) for answer in answers if is_refused(answer)]
    number = changes(answers)
    return ActionPage(
        f"{action.verb.capitalize()} chunks of {action.owner}",
        "jobs",
        "",
        verb=action.verb,
        help=VERB[action.verb].help,
        owner=action.owner,
        of_chunks=action.of_chunks,
        chosen=len(action.ids),
        outcomes=tuple(_outcomes(action, [answer for answer in answers if not is_refused(answer)])),
        changes=number,
        refused=len(refusals),
        refusals=tuple(refusals[:_REFUSALS]),
        fields=action.fields,
        command=_command(action) if len(action.ids) <= _IN_COMMAND else None,
        must_type=number > TYPED_ABOVE,
        done=done,
        note=note,
        reason=reason,
    )


def _outcomes(action: Action, answers: Sequence[Answer]) -> Iterator[Outcome]:
    groups: dict[tuple[str, str, bool], list[Answer]] = {}
    for answer in answers:
        key = (answer.job or action.owner, str(answer.state), was_changed(answer))
        groups.setdefault(key, []).append(answer)
    for (owner, state, is_change), found in sorted(groups.items(), key=lambda group: (not group[0][2], -len(group[1]))):
        examples = ", ".join(answer.data_id for answer in found[:_EXAMPLES])
        more = " …" if len(found) > _EXAMPLES else ""
        notes = Counter(answer.message for answer in found if answer.message)
        note = notes.most_common(1)[0][0] if len(notes) == 1 else ""
        yield Outcome(len(found), owner, state, is_change, examples + more, str(note or ""))


def _command(action: Action) -> str:
    verb = VERB[action.verb]
    return shell_command(action.verb, action.owner, *action.ids, dataset=action.of_chunks and verb.tasks is not None)
