"""Every regular expression of the package takes linear time, whatever text it reads.

Each pattern reads texts that pump its own repetitions. A pattern that is not linear needs seconds for a text of 128 kB,
and a linear one needs milliseconds. So processor time decides, with a factor of more than a hundred between the two.
"""

import ast
import importlib
import pkgutil
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

import opendataflow

SIZES = ((1_000, 0.0002), (8_000, 0.004), (32_000, 0.05), (64_000, 0.5), (128_000, 0.0))
"""The size of a text, and the seconds that make a pattern a suspect, so that it reads the next size, too."""
MOST_SECONDS = 2.0
SEEDS = 40
FUNCTIONS = {"match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
RULES = {"matching": "fullmatch", "without": "search", "keys_matching": "fullmatch", "keys_without": "fullmatch"}
"""The functions of model/fields/rules.py, and what they do with their pattern."""
OPTIONAL = {"dulwich", "paramiko", "pandas", "pyarrow", "pyspark", "py4j"}
"""Not installed with every image; see pyproject.toml."""


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(opendataflow.__path__, "opendataflow."):
        if found.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise


def _value(node: ast.expr, module: ModuleType) -> object:
    """The value of an expression of a module; None if it needs more than the names of the module."""
    try:
        return eval(compile(ast.Expression(node), module.__name__, "eval"), dict(vars(module)))
    except (NameError, AttributeError):
        return None


def _written(node: ast.expr, module: ModuleType) -> str | bytes | None:
    value = None if isinstance(node, ast.Call) else _value(node, module)
    return value if isinstance(value, str | bytes) else None


@dataclass(frozen=True)
class Use:
    """A pattern and the function that reads texts with it."""

    pattern: re.Pattern[Any]
    function: str

    def seconds(self, text: str) -> float:
        """The processor time for one text."""
        read: Any = text if isinstance(self.pattern.pattern, str) else text.encode("latin-1", "replace")
        begin = time.process_time()
        if self.function == "sub":
            self.pattern.sub(read[:0], read)
        elif self.function in ("split", "findall"):
            getattr(self.pattern, self.function)(read)
        elif self.function == "finditer":
            for _ in self.pattern.finditer(read):
                pass
        else:
            getattr(self.pattern, self.function)(read)
        return time.process_time() - begin


def _uses(module: ModuleType) -> Iterator[tuple[int, Use]]:
    assert module.__file__ is not None
    for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if isinstance(called, ast.Attribute) and name in FUNCTIONS:
            if isinstance(called.value, ast.Name) and called.value.id == "re":
                written = _written(node.args[0], module)
                if written is not None:
                    yield node.lineno, Use(re.compile(written), name)
            elif isinstance(pattern := _value(called.value, module), re.Pattern):
                yield node.lineno, Use(pattern, name)
        elif name in RULES and isinstance(written := _written(node.args[0], module), str):
            yield node.lineno, Use(re.compile(written), RULES[name])


def uses() -> dict[str, Use]:
    """All uses of patterns in the package, by their place."""
    return {f"{module.__name__}:{line}": use for module in modules() for line, use in _uses(module)}


class Writer:
    """Writes a text that a pattern matches. One of its repetitions, chosen by `seed`, is pumped to a size."""

    def __init__(self, pattern: re.Pattern[Any], seed: int) -> None:
        text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        self._tree = parser.parse(text, pattern.flags & ~re.UNICODE)
        self._letters = set(re.sub(r"[\\\[\]+?^$|]|[a-zA-Z](?=[a-zA-Z])", "", text))
        self._random, self._seed = random.Random(seed), seed
        self._repeats = self._pumped = self._size = 0
        self._pumping = False
        self.text(0)
        self._pumped = seed % self._repeats if self._repeats else -1

    @property
    def pumps(self) -> bool:
        return self._repeats > 0

    def text(self, size: int, *, cut: bool = False) -> str:
        """`cut`: end behind the pumped repetition, so that nothing can match the rest."""
        self._cut = cut
        self._random.seed(self._seed)
        self._repeats, self._size, self._ended = 0, size, False
        return self._of(self._tree)

    def _of(self, tree: Any) -> str:
        return "".join(self._one(code, value) for code, value in tree)

    def _one(self, code: Any, value: Any) -> str:
        if self._ended:
            return ""
        if code in (codes.LITERAL, codes.NOT_LITERAL):
            return chr(value) if code is codes.LITERAL else next(one for one in "a1 :" if ord(one) != value)
        if code is codes.ANY:
            return self._preferred([*map(chr, range(32, 127))])
        if code is codes.IN:
            return self._member(value)
        if code is codes.BRANCH:
            return self._of(self._random.choice(value[1]))
        if code is codes.SUBPATTERN:
            return self._of(value[-1])
        if code is codes.ATOMIC_GROUP:
            return self._of(value)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, tree = int(value[0]), value[1], value[2]
            own = self._repeats if most is codes.MAXREPEAT else None
            self._repeats += own is not None
            self._pumping = pumped = own is not None and own == self._pumped
            one = self._of(tree)
            self._pumping = False
            self._ended = pumped and self._cut
            return one * max(least, self._size // max(len(one), 1) if pumped else min(1, int(most)))
        return ""

    def _member(self, members: Any) -> str:
        return self._preferred(_members(_class(members))) or "é"

    def _preferred(self, allowed: Sequence[str]) -> str:
        """One of the allowed letters, mostly one that is a letter of the pattern, too."""
        own = [one for one in allowed if one in self._letters]
        if self._pumping and own:  # each letter in turn
            return own[self._seed // self._repeats % len(own)]
        letters = own if own and self._random.random() < 0.7 else allowed
        return self._random.choice(letters) if letters else ""


@cache
def _members(pattern: str) -> Sequence[str]:
    return [one for one in map(chr, range(1, 128)) if re.fullmatch(pattern, one)]


def _class(members: Any) -> str:
    """The text of a character class."""
    names = {
        codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_SPACE: r"\s",
        codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
    }  # fmt: skip
    inner = ""
    for code, value in members:
        if code is codes.NEGATE:
            inner += "^"
        elif code is codes.LITERAL:
            inner += re.escape(chr(value))
        elif code is codes.RANGE:
            inner += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            inner += names[value]
    return f"[{inner}]"


def pumped(pattern: re.Pattern[Any], seed: int) -> Iterator[Callable[[int], str]]:
    """Makers of texts of a size: a pumped repetition with an end that does not match, and repeated parts of a match."""
    writer = Writer(pattern, seed)
    if writer.pumps:
        yield lambda size: writer.text(size) + "\0\n!"
        yield lambda size: writer.text(size, cut=True) + "\0"
    whole = writer.text(1) or "a"
    for part in (whole, whole[: len(whole) // 2 + 1], whole[-1], whole[: len(whole) // 2 + 1] + " "):
        yield lambda size, part=part: part * (size // len(part) + 1)  # type: ignore[misc]


def slowest(use: Use) -> str | None:
    """The first text that takes too long, in short; None if there is none. Only suspects read long texts."""
    for seed in range(SEEDS):
        for text in pumped(use.pattern, seed):
            for size, suspect in SIZES:
                spent = use.seconds(text(size))
                if spent > MOST_SECONDS:
                    return f"{use.pattern.pattern!r}: {spent:.1f} s for {size} characters: {text(size)[:60]!r}"
                if spent < suspect:
                    break
    return None


@pytest.mark.parametrize(
    ("pattern", "function"),
    [
        (r"at \S+\(.*\)|\.\.\. \d+ (more|common frames omitted)", "fullmatch"),
        (r"//[^/?#@ ]*:[^/?# ]+@", "search"),
    ],
)
def test_a_pattern_that_is_not_linear_is_found(pattern: str, function: str) -> None:
    assert slowest(Use(re.compile(pattern), function)) is not None


def test_every_pattern_is_linear() -> None:
    found = uses()
    assert len(found) > 100
    assert [f"{place}: {slow}" for place, use in found.items() if (slow := slowest(use)) is not None] == []
