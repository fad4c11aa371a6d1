"""Words that the glossary has replaced do not come back: in code, SQL, docs, the chart, the examples and the tests."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

GROUPS = {
    "operator": ["operator/**/*.py"],
    "sql": ["sql/**/*.sql", "sql/**/*.md"],
    "docs": ["docs/**/*.md", "docs/*.py", "README.md", "CHANGELOG.md"],
    "helm": ["helm/**/*.yaml", "helm/**/*.tpl", "helm/**/*.txt", "helm/**/*.md", "crds/*.yaml"],
    "examples": [
        "examples/**/*.md",
        "examples/**/*.yaml",
        "examples/**/*.yml",
        "examples/**/*.py",
        "examples/**/*.sql",
    ],
    "tests": ["tests/**/*.py"],
}
SKIPPED = ["examples/django-project/", "tests/unit/test_vocabulary.py"]
"""Code of others, and the list of words itself."""

RULES = [
    # Tasks. `work` as a verb and as uncountable noun is ordinary English.
    (r"\b(a|each|every|another) work\b|\bwork's\b|\b(the|of|for|by|many|some|these|those|open|two) works\b", "task"),
    (r"\bwork_(of|count|state|key|id)s?\b|\bworks_(?!from\b)|\bWork(State|Key|Id)\b", "task"),
    (r"\bopendataflow_works\b", "opendataflow_tasks"),
    (r"\bdataflow get works?\b", "dataflow get tasks"),
    (r"\bREADY tasks?\b|\btasks? (is|are|was|were|becomes?|became) READY\b", "QUEUED: READY is a state of chunks"),
    (r"'RETRY'|\"RETRY\"|\b(state|status) RETRY\b", "RETRYING"),
    (r"\bdataflow five\b", "dataflow inspect"),
    # Verbs.
    (r"(?<!\.)\btells?\b(?!( \w+){0,4} apart\b)|\btelling\b|\btold\b(?! apart\b)", "report, print, describe, show"),
    (r"\bmend(s|ed|ing)?\b", "fix, repair"),
    (r"\bburn(s|t|ed|ing)?\b", "consume"),
    (r"\bblam(e|es|ed|ing)\b", "attribute"),
    (r"\blet(s|ting)? ((the |a |an |its |their |all )?\w+ )?go\b(?! on\b)", "release"),
    (r"\btake[sn]? (it |them )?apart\b|\btook (it |them )?apart\b", "parse, split"),
    (r"\bkept back\b|\bkeep(s|ing)? (it|them|a task|the task|tasks) back\b", "block; the reason is a blocker"),
    (r"\b(comes?|came) to be\b", "be created"),
    (r"\bthat there (is|are)(?=[.,:;)]|$)", "name the thing"),
    # States.
    (r"\b(is|are|was|were|be|been|being) away\b", "unreachable, unavailable"),
    (r"\bwell again\b|\b(is|are|was|were) well\b(?![- ](known|formed|defined))", "healthy, recovered"),
    (r"\b(is|are|was|were|be|stands?) nowhere\b", "missing, not stored"),
    # Names of modules, classes and functions.
    (r"\bdoors?\b", "client"),
    (r"\btenures?\b", "claim authority"),
    (r"\bhappenings\b", "status events"),
    (r"\bwatchm[ae]n\b", "engine observer"),
    (r"\bmisfits?\b", "CSV error"),
    (r"\bwhole passes\b", "scan coverage"),
    (r"\bsurroundings\b", "run files"),
    (r"\bstrangers\b", "unknown runs"),
    (r"\bhungry\b", "may have queued tasks"),
]
"""Regular expressions and what to use instead. An identifier counts as its words: `_is_told`, `BeTold`."""
OF_TESTS = [(r"\bsaid\b", "output, log, message, sentence")]
"""More of them, for tests only."""


class Allowed(NamedTuple):
    """A text in which a word may stand."""

    path: str
    text: str
    reason: str


ALLOWED = [
    Allowed("CHANGELOG.md", "`opendataflow_works` is", "the changelog names what was renamed"),
    Allowed("CHANGELOG.md", "`dataflow five` is", "the changelog names what was renamed"),
    Allowed("docs/reference/command-line.md", "`dataflow five`", "a command of the old framework that still exists"),
]


def _files(patterns: list[str]) -> list[Path]:
    files = {file for pattern in patterns for file in ROOT.glob(pattern)}
    return sorted(file for file in files if not _path(file).startswith(tuple(SKIPPED)))


def _path(file: Path) -> str:
    return str(file.relative_to(ROOT))


def _words(line: str) -> str:
    """Return the line with its identifiers split into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", line.replace("_", " "))


def _findings(file: Path) -> Iterator[str]:
    path = _path(file)
    rules = COMPILED + COMPILED_OF_TESTS if path.startswith("tests/") else COMPILED
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        rest = line
        for allowed in ALLOWED:
            if path == allowed.path:
                rest = rest.replace(allowed.text, "")
        for text in dict.fromkeys([rest, _words(rest)]):
            found = [(match, instead) for rule, instead in rules if (match := rule.search(text))]
            if found:
                yield from (f"{path}:{number}: “{match[0]}”: use {instead}" for match, instead in found)
                break


def _compile(rules: list[tuple[str, str]]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rule, re.IGNORECASE if rule == rule.lower() else 0), instead) for rule, instead in rules]


COMPILED, COMPILED_OF_TESTS = _compile(RULES), _compile(OF_TESTS)


@pytest.mark.parametrize("group", GROUPS)
def test_replaced_words_do_not_come_back(group: str) -> None:
    files = _files(GROUPS[group])
    assert files
    findings = [finding for file in files for finding in _findings(file)]
    assert not findings, "\n".join([f"{len(findings)} words that the glossary has replaced:", *findings])


def test_every_allowed_text_is_still_there() -> None:
    assert [one for one in ALLOWED if one.text not in (ROOT / one.path).read_text("utf-8")] == []
    assert all(one.reason for one in ALLOWED)


@pytest.mark.parametrize(
    "text",
    ["the state of a work", "_is_told", "BeTold", "it tells the user", "let the pod go", "the tasks that there are."],
)
def test_replaced_words_are_found(text: str) -> None:
    assert any(rule.search(text) or rule.search(_words(text)) for rule, _ in COMPILED)


@pytest.mark.parametrize(
    "text",
    ["it works", "with no work per row", "works_from", "two jobs that nothing can tell apart", "file.tell()"],
)
def test_ordinary_english_is_not_found(text: str) -> None:
    assert not any(rule.search(text) or rule.search(_words(text)) for rule, _ in COMPILED)
