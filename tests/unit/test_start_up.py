"""What a command imports. Every call pays for it, and scripts call `dataflow` for each chunk.

Seconds depend on the machine, so these tests look at modules. Figures are in docs/decisions.md.
"""

import os
import subprocess
import sys

import pytest
from typer.main import get_command

from opendataflow.cli.commands import all_commands
from opendataflow.cli.contents import COMMANDS, PANELS

SLOW = {"pydantic", "yaml", "jinja2", "aiohttp", "cryptography", "kopf", "pyspark", "pandas", "rich", "psycopg_pool"}
"""Packages that take long to import."""

CALLS = (
    *("status", "get jobs", "why delays 2013-09", "describe job delays", "inspect delays 2013-09", "logs --run 7"),
    *("resubmit delays 2013-09", "scale delays 4", "lost 7 --yes", "history clean --dry-run", "db status"),
    *("sql SELECT", "runs", "endjob delays 1 READY", "run -- true", "get jobs --no-such-option"),
)
"""Calls that find no database. They end after they have parsed their arguments and tried to connect."""
MOST_MODULES = 440
"""Of one call, those of Python included."""


def _imported(program: str) -> set[str]:
    listing = "; import sys; sys.stdout.flush(); print('\\0', *sys.modules, sep='\\n')"
    environ = {**os.environ, "DATAFLOW_DSN": "postgresql://me@127.0.0.1:1/nothing"}
    done = subprocess.run(
        [sys.executable, "-c", program + listing], capture_output=True, text=True, check=True, env=environ
    )
    return set(done.stdout.partition("\0")[2].split())


def _modules_of(call: str) -> set[str]:
    return _imported(f"from opendataflow.cli.commands import run; run({call.split()})")


def test_the_table_of_commands_names_every_command_that_is_registered() -> None:
    assert set(get_command(all_commands()).commands) == set(COMMANDS)  # type: ignore[attr-defined]  # a group


def test_the_help_lists_every_command_that_is_not_hidden() -> None:
    commands = get_command(all_commands()).commands  # type: ignore[attr-defined]  # a group
    visible = {name for name, command in commands.items() if not command.hidden}
    assert visible == {name for name, entry in COMMANDS.items() if entry.panel in PANELS and entry.summary}


@pytest.mark.parametrize("call", ["--version", "version", "--help", "-h", "help", ""])
def test_the_help_and_the_version_import_no_command_and_no_client(call: str) -> None:
    program = f"import sys; sys.argv = {['dataflow', *call.split()]}; from contextlib import suppress"
    imported = _imported(f"{program}\nfrom opendataflow.cli.main import main\nwith suppress(SystemExit): main()\n0")
    assert imported & {"typer", "psycopg", "asyncio", "dataclasses", *SLOW} == set()
    assert len(imported) < 80


@pytest.mark.parametrize("call", CALLS)
def test_a_command_imports_nothing_slow(call: str) -> None:
    imported = _modules_of(call)
    assert imported & SLOW == set()
    assert len(imported) <= MOST_MODULES


def test_a_command_imports_no_module_of_another_command() -> None:
    modules = {f"opendataflow.cli.{module}" for entry in COMMANDS.values() for module in entry.modules}
    assert _modules_of("scale delays 4") & modules == {"opendataflow.cli.jobs.scale"}
