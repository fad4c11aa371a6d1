"""A long sentence is asserted in one tier only, the fastest that sees it. Other tiers assert place and key words."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TIERS = ["unit", "sql", "helm", "kube", "e2e"]
WORDS, LETTERS = 6, 30
"""Two texts share a sentence if they share so many words in a row, with so many letters."""
PROGRAM = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|ALTER|CREATE|DROP|SET|WITH|from|import) ")
"""SQL and Python are given to the program, not asserted."""
VALUE = "{}"


def _texts(file: Path) -> Iterator[str]:
    """Yield the texts of a module, without docstrings. A value inside of a text becomes `{}`."""
    nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
    inner = {node.value for node in nodes if isinstance(node, ast.Expr)}
    inner |= {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
            yield node.value


def _phrases(text: str) -> Iterator[str]:
    """Yield from each word on as few words as are a sentence."""
    for line in text.splitlines():
        words = line.split()
        for first in range(len(words)):
            longer = (" ".join(words[first:last]) for last in range(first + WORDS, len(words) + 1))
            phrase = next((one for one in longer if len(one) >= LETTERS), VALUE)
            if VALUE not in phrase:
                yield phrase


def _shared(tiers: Mapping[str, Iterable[tuple[str, str]]]) -> dict[str, list[str]]:
    """Return the phrases of two or more tiers, with their modules. `tiers`: pairs of a module and a text."""
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for tier, texts in tiers.items():
        for module, text in texts:
            for phrase in () if PROGRAM.match(text) else _phrases(text):
                places[phrase].add((tier, module))
    return {
        phrase: sorted(module for _, module in found)
        for phrase, found in places.items()
        if len({tier for tier, _ in found}) > 1
    }


def test_a_sentence_is_asserted_in_one_tier_only() -> None:
    files = {tier: [*(TESTS / tier).rglob("*.py")] for tier in TIERS}
    assert all(len(found) > 5 for found in files.values())
    tiers = {
        tier: [(str(file.relative_to(TESTS)), text) for file in found for text in _texts(file)]
        for tier, found in files.items()
    }
    shared = [f"“{phrase}”: {', '.join(places)}" for phrase, places in _shared(tiers).items()]
    assert not shared, "\n".join(["keep these in the fastest tier, and assert key words in the others:", *shared])


LONG = "no run of the job starts until this location is there"


@pytest.mark.parametrize(
    "text", [LONG, f"error: {LONG}\n", f"{LONG}: {VALUE}", "no run of the job starts until tomorrow"]
)
def test_a_sentence_in_two_tiers_is_found(text: str) -> None:
    assert _shared({"unit": [("a", LONG)], "e2e": [("b", text)]})["no run of the job starts until"] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    ["no run of the job", "until this location is there", f"no run of the {VALUE} starts until", "SELECT " + LONG],
)
def test_key_words_and_programs_are_no_sentences(text: str) -> None:
    assert _shared({"unit": [("a", LONG)], "e2e": [("b", text)]}) == {}
    assert _shared({"unit": [("a", LONG), ("b", LONG)]}) == {}
