"""Verbs for chunks and tasks: their functions in Postgres, their help texts, and the sentences about their answers.

The command line and the operator share these texts. Pure. This module does not know who sent a request, or how.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

from opendataflow.errors import Refused, UnknownThing
from opendataflow.keys import bare
from opendataflow.model.records.claim import Answer, Selection

_SENTENCES = 5
"""How many ids a refusal lists one by one."""
_NAMESPACES = 3
"""How many namespaces that have an id a suggestion names."""


@dataclass(frozen=True)
class Verb:
    """One verb. `tasks`, `chunks`: its functions in Postgres for tasks of a job and for chunks of a data set.

    `cascade`: whether both also exist with the suffix `_cascade`, for everything downstream.
    """

    name: str
    help: str
    tasks: LiteralString | None = None
    chunks: LiteralString | None = None
    cascade: bool = False

    def function(self, *, of_chunks: bool, cascade: bool) -> LiteralString:
        """Return the name of the function in Postgres for a request."""
        function = self.chunks if of_chunks else self.tasks
        assert function is not None
        return function + "_cascade" if cascade else function


VERBS = (
    Verb(
        "resubmit",
        "Ask for a task again: its outputs become RESUBMIT and it runs as soon as its inputs are ready.",
        tasks="resubmit",
        chunks="resubmit_chunks",
        cascade=True,
    ),
    Verb(
        "hold",
        "Keep tasks from running; with --dataset, keep chunks from being read and written.",
        tasks="hold",
        chunks="hold_chunks",
    ),
    Verb(
        "release",
        "Undo a hold or a skip: restore the old state, and apply requests that were made meanwhile.",
        tasks="release",
        chunks="release_chunks",
    ),
    Verb("skip", "Exclude a task from processing; `dataflow release` undoes it.", tasks="skip"),
    Verb(
        "force",
        "Run a task next, whatever the states of its inputs and outputs are. Never while a run writes the same chunk.",
        tasks="force",
    ),
    Verb("cancel", "End runs now. Their tasks become FAILED and are not retried.", tasks="cancel"),
    Verb(
        "publish",
        "Report that chunks of a data set exist: they become READY. Unknown data ids become new chunks.",
        chunks="publish",
    ),
    Verb("accept", "Accept chunks that are PENDING: they become READY.", chunks="accept"),
    Verb(
        "reject",
        "Reject chunks that are PENDING: they and the tasks that made them become FAILED.",
        chunks="reject",
    ),
)

VERB = {verb.name: verb for verb in VERBS}


def line(answer: Answer, owner: str, *, dry_run: bool = False) -> str:
    """Return one line: the new state of one id, or with `dry_run` the state that it would have."""
    word = "" if not dry_run else "would be " if was_changed(answer) else "stays "
    detail = f" ({answer.message})" if answer.message else ""
    return f"{answer.job or owner} {answer.data_id}: {word}{answer.state}{detail}"


def was_changed(answer: Answer) -> bool:
    """Return whether the request changed the task or chunk."""
    return answer.result in ("done", "remembered")


def nothing_selected(verb: str, owner: str, chosen: Selection) -> Refused:
    """Return the error for an empty selection, such as "no chunk of data set a is FAILED from 3 to 7: …"."""
    things = f"no chunk of data set {owner}" if chosen.of_chunks else f"no task of job {owner}"
    states = [" or ".join(chosen.states)] if chosen.states else []
    condition = f"is {' and '.join([*states, *(['stale'] if chosen.stale else [])]) or 'there'}"
    first = f" from {chosen.first}" if chosen.first is not None else ""
    last = f" to {chosen.last}" if chosen.last is not None else ""
    return Refused(f"{things} {condition}{first}{last}: there is nothing to {verb}")


def refuse_if_any(answers: Sequence[Answer], counts: Mapping[str, int], known: Sequence[str] = ()) -> None:
    """Raise UnknownThing or Refused if any id is unknown or refused. In this case nothing was changed.

    `answers`: at least the first of each result; `counts`: the number of answers by result; `known`: ids that exist.
    """
    rest = "; nothing was changed" if sum(counts.values()) > 1 else ""
    unknown = [f"{a.message}{did_you_mean(a.data_id, known)}" for a in answers if a.result == "unknown"]
    if unknown:
        raise UnknownThing(_joined(unknown, counts["unknown"]) + rest)
    refused = [str(a.message) for a in answers if a.result == "refused"]
    if refused:
        raise Refused(_joined(refused, counts["refused"]) + rest)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a suggestion that follows a sentence about an unknown name; an empty text if no name is known."""
    in_namespaces = [key for key in known if bare(key) == name and key != name]
    close = in_namespaces[:_NAMESPACES] or difflib.get_close_matches(name, known, n=1)
    if close:
        return f" (did you mean {' or '.join(close)}?)"
    return f" (known: {', '.join(known[:3])}{' …' if len(known) > 3 else ''})" if known else ""


def _joined(sentences: Sequence[str], number: int) -> str:
    more = number - _SENTENCES
    return "; ".join([*sentences[:_SENTENCES], *([f"and {more} more"] if more > 0 else [])])
