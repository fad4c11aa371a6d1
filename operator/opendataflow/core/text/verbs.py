"""The verbs that people use for chunks and tasks: what each is called in Postgres, and what is said of its answers.

The command line and the operator say the same, so the words are here. Pure: who asks, and how, is not known here.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

from opendataflow.errors import Refused, UnknownThing
from opendataflow.model.records.claim import Answer, Selection

_SENTENCES = 5
"""How many ids are named one by one where a request is refused."""


@dataclass(frozen=True)
class Verb:
    """One verb. `tasks`, `chunks`: its functions in Postgres for tasks of a job and for chunks of a data set."""

    name: str
    help: str
    tasks: LiteralString | None = None
    chunks: LiteralString | None = None
    cascade: bool = False

    def function(self, *, of_chunks: bool, cascade: bool) -> LiteralString:
        """The function in Postgres for what is asked."""
        found = self.chunks if of_chunks else self.tasks
        assert found is not None
        return found + "_cascade" if cascade else found


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
        "Undo a hold or a skip: what was put aside is what it was, with what was asked meanwhile.",
        tasks="release",
        chunks="release_chunks",
    ),
    Verb("skip", "Say that a task will not be done; `dataflow release` undoes it.", tasks="skip"),
    Verb(
        "force",
        "Run a task next, whatever its inputs and outputs are; only never beside a run that writes the same chunk.",
        tasks="force",
    ),
    Verb("cancel", "End runs now; their tasks are FAILED and not tried again.", tasks="cancel"),
    Verb(
        "publish",
        "Say that chunks of a data set are there: they become READY, new ones are declared by it.",
        chunks="publish",
    ),
    Verb("accept", "Say that chunks that wait for it (PENDING) are good: they become READY.", chunks="accept"),
    Verb(
        "reject",
        "Say that chunks that wait for it (PENDING) are not good: they and the task that made them become FAILED.",
        chunks="reject",
    ),
)

VERB = {verb.name: verb for verb in VERBS}


def line(answer: Answer, owner: str, *, dry_run: bool = False) -> str:
    """Say what became of one id, or would have become of it."""
    word = "" if not dry_run else "would be " if touched(answer) else "stays "
    detail = f" ({answer.message})" if answer.message else ""
    return f"{answer.job or owner} {answer.data_id}: {word}{answer.state}{detail}"


def touched(answer: Answer) -> bool:
    """Whether something was changed."""
    return answer.result in ("done", "remembered")


def nothing(verb: str, owner: str, chosen: Selection) -> Refused:
    """What is said where nothing is there to choose: no chunk of data set a is FAILED from 3 to 7."""
    things = f"no chunk of data set {owner}" if chosen.of_chunks else f"no task of job {owner}"
    is_so = f"is {' or '.join(chosen.states)}" if chosen.states else "is there"
    first = f" from {chosen.first}" if chosen.first is not None else ""
    last = f" to {chosen.last}" if chosen.last is not None else ""
    return Refused(f"{things} {is_so}{first}{last}: there is nothing to {verb}")


def refuse_if_any(answers: Sequence[Answer], counts: Mapping[str, int], known: Sequence[str] = ()) -> None:
    """Raise UnknownThing or Refused with the sentences of what can't be done; then nothing was changed.

    `answers`: at least the first of each kind; `counts`: how many there are by result; `known`: ids that there are.
    """
    rest = "; nothing was changed" if sum(counts.values()) > 1 else ""
    unknown = [f"{a.message}{did_you_mean(a.data_id, known)}" for a in answers if a.result == "unknown"]
    if unknown:
        raise UnknownThing(_joined(unknown, counts["unknown"]) + rest)
    refused = [str(a.message) for a in answers if a.result == "refused"]
    if refused:
        raise Refused(_joined(refused, counts["refused"]) + rest)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """What may have been meant, to follow a sentence about an unknown name; nothing where nothing is known."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (known: {', '.join(known[:3])}{' …' if len(known) > 3 else ''})" if known else ""


def _joined(sentences: Sequence[str], number: int) -> str:
    more = number - _SENTENCES
    return "; ".join([*sentences[:_SENTENCES], *([f"and {more} more"] if more > 0 else [])])
