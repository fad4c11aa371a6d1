"""Every `dataflow …` command that a message, an alert, a page or a chart file names is one that the program has.

A command may be named without its arguments. Where one argument is written, all that are needed are written.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from opendataflow.cli.commands import all_commands
from opendataflow.cli.contents import EXAMPLES

ROOT = Path(__file__).parents[2]
ANYTHING = "1"
"""Stands for what an f-string or a template inserts; it is also a number, for arguments that are numbers."""

END = ".,:)'\""
"""What may follow the last word of a command."""

COMMANDS: Any = get_command(all_commands())
BEFORE = ("`", ": ", "$ ", "$(", "(", "  ", "see ", "by ", "or ", "kubectl ")
"""What a command follows in a text, if it is not at the start of a line."""

NAMED = re.compile(
    rf"(?:^|{'|'.join(f'(?<={re.escape(text)})' for text in BEFORE)})dataflow ((?:--?)?[a-z][^`\n;|#]*)", re.MULTILINE
)
ARGUMENT = re.compile(r"--?[A-Za-z][\w-]*|[A-Z][A-Z0-9_]*(?:\.\.\.)?|\d[\w.-]*|'[^']*'|\S+\.(?:yaml|yml|csv|sql|sh)")
"""What a text writes as an argument. Any other word ends the command: the sentence goes on."""


def _commands(text: str) -> Iterator[str]:
    plain = re.sub(r"\{\{.*?\}\}", ANYTHING, text)
    yield from (match[1].strip() for match in NAMED.finditer(plain))


def fault(named: str) -> str | None:
    """Return what is wrong with a named command, without the word `dataflow`; None if nothing is."""
    command, names, words = COMMANDS, ["dataflow"], re.sub(r"\[[^]]*\]", "", named).split()
    while (subcommands := _subcommands(command)) and words:
        below = subcommands.get(words[0].rstrip(END))
        if below is None:
            if command is COMMANDS and words[0].startswith(("-", "help", "version")):
                return None
            is_name = command is COMMANDS or ARGUMENT.fullmatch(words[0].rstrip(END))
            return f"there is no command {' '.join([*names, words[0]])}" if is_name else None
        command, names, ended = below, [*names, words[0]], words[0][-1] in END
        words = [] if ended else words[1:]
    if _subcommands(command):
        return None
    given = _arguments(words)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = [word.rstrip(END) for word in words if re.match("--?[a-z]", word)]
    unknown = [option for option in options if option not in known]
    positional = sum(1 for _ in _positional(command, given))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    needed, most = sum(p.required for p in arguments), None if any(p.nargs == -1 for p in arguments) else len(arguments)
    if unknown:
        return f"{' '.join(names)} has no option {unknown[0]}"
    if (positional and positional < needed) or (most is not None and positional > most):
        return f"{' '.join(names)} takes {needed} to {most or 'any number of'} arguments, not {positional}: {named}"
    return None


def _subcommands(command: Any) -> dict[str, Any]:
    """Return the commands below a group; empty for a command that does something itself."""
    return dict(getattr(command, "commands", {}))


def _arguments(words: list[str]) -> list[str]:
    """Return the words up to the first one that belongs to the sentence around the command."""
    given = []
    for word in words:
        bare = word.rstrip(END)
        if not ARGUMENT.fullmatch(bare):
            break
        given.append(bare)
        if bare != word:
            break
    return given


def _positional(command: Any, given: list[str]) -> Iterator[str]:
    options = {name: p for p in command.params if p.param_type_name == "option" for name in p.opts}
    values = False
    for word in given:
        if values:
            values = False
        elif word in options:
            values = not options[word].is_flag
        elif not word.startswith("-"):
            yield word


def _texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file. In Python, ANYTHING stands for what an f-string inserts."""
    if file.suffix != ".py":
        yield file.read_text("utf-8")
        return
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else ANYTHING for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "shell_command":
            yield from _built(node)


def _built(call: ast.Call) -> Iterator[str]:
    """Yield the command that a call of shell_command() builds, if its verb is written there."""
    verb, *arguments = call.args
    if isinstance(verb, ast.Constant):
        options = [f"--{keyword.arg}" for keyword in call.keywords]
        values = [] if any(isinstance(one, ast.Starred) for one in arguments) else [ANYTHING] * len(arguments)
        yield f"`dataflow {' '.join([str(verb.value), *values, *options])}`"


FILES = {
    "the program": ["operator/**/*.py"],
    "SQL": ["sql/**/*.sql"],
    "the chart": ["helm/**/*.yaml", "helm/**/*.tpl", "helm/**/*.txt", "crds/*.yaml"],
    "the documentation": ["README.md", "docs/**/*.md", "examples/**/*.md", "examples/**/*.yaml"],
}


@pytest.mark.parametrize("group", FILES)
def test_every_named_command_exists_with_its_options_and_arguments(group: str) -> None:
    files = sorted({file for pattern in FILES[group] for file in ROOT.glob(pattern)})
    named = [(file, command) for file in files for text in _texts(file) for command in _commands(text)]
    assert named
    faults = [f"{file.relative_to(ROOT)}: {what}" for file, command in named if (what := fault(command))]
    assert faults == []


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("describe JOB", "there is no command dataflow describe JOB"),
        ("describe 1", "there is no command dataflow describe 1"),
        ("work 1", "there is no command dataflow work"),
        ("resubmit JOB --stail", "dataflow resubmit has no option --stail"),
        ("inspect JOB", "dataflow inspect takes 2 to 2 arguments, not 1: inspect JOB"),
        ("why 1 2 3", "dataflow why takes 2 to 2 arguments, not 3: why 1 2 3"),
        ("describe job JOB", None),
        ("describe shows it", None),
        ("get runs, newest first", None),
        ("logs --run 7", None),
        ("resubmit JOB DATAID --cascade", None),
    ],
)
def test_a_command_that_does_not_exist_is_found(named: str, sentence: str | None) -> None:
    assert fault(named) == sentence


def test_commands_are_found_in_sentences_and_templates() -> None:
    text = "What they say: dataflow describe {{ $labels.job }}\nfor all: `dataflow get jobs` or see dataflow status"
    assert list(_commands(text)) == ["describe 1", "get jobs", "status"]


def _leaves(command: Any, name: str = "") -> Iterator[str]:
    for word, below in _subcommands(command).items():
        if not below.hidden:
            yield from _leaves(below, f"{name} {word}".strip())
    if not _subcommands(command):
        yield name


def test_every_command_that_the_help_lists_has_examples() -> None:
    assert set(_leaves(COMMANDS)) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_two_examples_of_a_command_are_different_calls_that_it_accepts(name: str) -> None:
    assert len(set(EXAMPLES[name])) == 2
    for example in EXAMPLES[name]:
        words = shlex.split(re.sub(r" [<>].*", "", example))
        call = words[words.index("dataflow") + 1 :]
        command = COMMANDS
        while call and call[0] in _subcommands(command):
            command = _subcommands(command)[call.pop(0)]
        command.make_context(name, call)
