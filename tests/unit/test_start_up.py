"""What a command imports before it starts. Every call pays for it, and scripts call `dataflow` for each chunk."""

import subprocess
import sys

import pytest
from typer.main import get_command

from opendataflow.cli.commands import MODULES, all_commands

SLOW = ("pydantic", "yaml", "jinja2", "aiohttp", "cryptography", "kopf", "pyspark", "pandas")
"""Packages that take long to import."""
WITHOUT_MODELS = ("status", "get", "resubmit", "scale", "db", "history", "run", "sql", "notify")
"""Commands that read and change states, and need no model of a resource."""


def _imported(command: str) -> set[str]:
    program = f"import sys; from opendataflow.cli.commands import application_of; application_of(['{command}'])"
    listing = "; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program + listing], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_table_of_commands_names_every_command_that_is_registered() -> None:
    assert set(get_command(all_commands()).commands) == set(MODULES)  # type: ignore[attr-defined]  # a group


@pytest.mark.parametrize("command", WITHOUT_MODELS)
def test_a_command_that_reads_or_changes_states_imports_nothing_slow(command: str) -> None:
    assert _imported(command) & set(SLOW) == set()


def test_a_command_imports_no_module_of_another_command() -> None:
    modules = {f"opendataflow.cli.{module}" for modules in MODULES.values() for module in modules}
    assert _imported("scale") & modules == {"opendataflow.cli.jobs.scale"}
