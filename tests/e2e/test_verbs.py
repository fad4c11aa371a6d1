"""Every verb on the command line, for every state of a task and every status of a chunk.

The tables are those of the store's own tests: here is what a person reads, and that a dry run changes nothing.
"""

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql import test_chunk_status as of_chunks
from tests.sql import test_task_state as of_tasks
from tests.sql.conftest import Connection
from tests.sql.tables import cases

TASK_VERBS = ("resubmit", "hold", "release", "skip", "force", "cancel")
CHUNK_VERBS = ("publish", "resubmit", "hold", "release", "accept", "reject")
WORD = {"done": "would be", "remembered": "would be", "unchanged": "stays"}


def states(table: str) -> list[str]:
    """The first column."""
    return [line.split()[0] for line in table.strip().splitlines()[1:]]


def check(inside: Inside, program: Program, command: list[str], after: str, result: str) -> None:
    """Ask in a dry run, and compare the answer with the table."""
    answer = inside.ask(program, *command, "--dry-run")
    owner, now = command[1], after.split(":")[0]
    if result == "refused":
        assert answer.code == ExitCode.FAILED, (command, answer)
        assert answer.out == ""
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
        return
    assert answer.code == ExitCode.OK, (command, answer)
    first, last = answer.out.splitlines()
    assert first.split(" (")[0] == f"{owner} x: {WORD[result]} {now}"
    assert last == f"{int(result != 'unchanged')} would be touched; nothing was changed"


@pytest.mark.parametrize("before", states(of_tasks.TABLE))
def test_every_verb_says_what_it_would_do_to_a_task_in_any_state(
    before: str, db: Connection, dataflow: Program, inside: Inside
) -> None:
    of_tasks.brought_to(db, before)
    asked = [case for case in cases(of_tasks.TABLE, *TASK_VERBS) if case[0] == before]
    assert {verb for _, verb, _, _ in asked} == set(TASK_VERBS)
    for _, verb, after, result in asked:
        check(inside, dataflow, [verb, "j", "x"], after, result)
        assert of_tasks.state(db) == before


@pytest.mark.parametrize("before", states(of_chunks.TABLE))
def test_every_verb_says_what_it_would_do_to_a_chunk_with_any_status(
    before: str, db: Connection, dataflow: Program, inside: Inside
) -> None:
    of_chunks.brought_to(db, before)
    status = of_chunks.status(db)
    asked = [case for case in cases(of_chunks.TABLE) if case[0] == before and case[1] in CHUNK_VERBS]
    assert {verb for _, verb, _, _ in asked} == set(CHUNK_VERBS)
    for _, verb, after, result in asked:
        if verb == "resubmit":  # answered for the task that makes it: the table of tasks has it
            continue
        command = [verb, "b", "x"] if verb in of_chunks.OF_CHUNKS_ALONE else [verb, "b", "x", "--dataset"]
        check(inside, dataflow, command, after, result)
        assert of_chunks.status(db) == status
