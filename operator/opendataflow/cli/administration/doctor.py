"""`dataflow doctor`: checks the requirements of the program, and lists everything that waits for a person.

It changes nothing and starts no server. Each finding is one line, with the command that fixes it.
"""

import asyncio
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from opendataflow.cli.app import OutputOption, app
from opendataflow.cli.output.printing import Output, print_document
from opendataflow.cli.output.screen import Text, console
from opendataflow.core.text.explain import (
    counted,
    duration,
    orphan_sentence,
    shell_command,
    unmanaged_namespace_sentence,
)
from opendataflow.errors import DataflowError
from opendataflow.launch.process.host import this_host
from opendataflow.names import ExitCode
from opendataflow.opening.database import embedded_folders, existing_dsn
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import Settings, has_named_database, read_settings
from opendataflow.store.connections.connection import connect, place
from opendataflow.store.connections.peek import embedded_exists, health
from opendataflow.store.migrations.schema import OLDEST_SERVER, SchemaState, new_database, read_state

_OLDEST_JAVA = 17
"""The oldest Java that Spark 4 supports."""
_LOW_SPACE, _VERY_LOW_SPACE = 2**30, 100 * 2**20
"""Bytes of free disk space. Below the first number: a warning. Below the second: a problem."""
_CLOCK_SECONDS = 5.0
"""Maximum difference of two clocks. Above it, times in logs and in the database are hard to compare."""


class Level(StrEnum):
    """How serious a finding is."""

    OK = "OK"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line. `remedy`: a command or an instruction that fixes it. None if nothing has to be done."""

    level: Level
    text: str
    remedy: str | None = None


@app.command("doctor")
def doctor(output: OutputOption = Output.TABLE) -> int:
    """Check the requirements of the program, and list what waits for a person. Exit code 1 if there is a problem."""
    settings = read_settings()
    findings = [*_machine(), *_disk(settings), *asyncio.run(_database(settings)), *asyncio.run(_cluster(settings))]
    if output.is_document:
        print_document([asdict(finding) for finding in findings], output)
    else:
        _print(findings)
    return ExitCode.FAILED if any(f.level is Level.PROBLEM for f in findings) else ExitCode.OK


def _print(findings: list[Finding]) -> None:
    to = console()
    styles = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}
    for finding in findings:
        to.print(Text(f"{finding.level:<8} ", style=styles[finding.level]).append(finding.text))
        if finding.remedy:
            to.print(f"         -> {finding.remedy}")


# The machine -------------------------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    yield Finding(Level.OK, f"Python {platform.python_version()}")
    try:
        yield Finding(Level.OK, f"local runs can be started and proven dead on {this_host().name}")
    except DataflowError as error:
        yield Finding(Level.PROBLEM, str(error))
    yield _java()


def _java() -> Finding:
    """Return whether this machine has the Java that Spark jobs need."""
    if find_spec("pyspark") is None:
        return Finding(Level.OK, "no Spark here, which only Spark jobs need")
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    remedy = f"install Java {_OLDEST_JAVA} or newer, or set JAVA_HOME to it"
    if java is None:
        return Finding(Level.WARNING, "no Java, which Spark jobs need", remedy)
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(Level.WARNING, f"{java} does not start: {error}", remedy)
    found = re.search(r'version "(?:1\.)?([0-9]+)', printed)
    if found is None:
        return Finding(Level.WARNING, f"{java} does not report its version", remedy)
    if int(found[1]) < _OLDEST_JAVA:
        return Finding(Level.WARNING, f"Java {found[1]}: Spark jobs need {_OLDEST_JAVA} or newer", remedy)
    return Finding(Level.OK, f"Java {found[1]} for Spark jobs")


def _disk(settings: Settings) -> Iterator[Finding]:
    for what, folder in (("local state", settings.home), ("logs of runs", settings.all_runs)):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            yield Finding(
                Level.PROBLEM, f"{folder}, for {what}, can't be written", "set DATAFLOW_HOME to another folder"
            )
            continue
        yield _space(what, folder, shutil.disk_usage(existing).free)


def _space(what: str, folder: Path, free: int) -> Finding:
    text = f"{free / 2**30:.1f} GiB free for {what} in {folder}"
    remedy = "make room, for example: dataflow history clean --older-than 90d"
    if free < _VERY_LOW_SPACE:
        return Finding(Level.PROBLEM, text, remedy)
    return Finding(Level.WARNING, text, remedy) if free < _LOW_SPACE else Finding(Level.OK, text)


async def _cluster(settings: Settings) -> list[Finding]:
    """Check the API server of KUBECONFIG, or of the pod in which this program runs."""
    if not (settings.kubeconfig or "KUBERNETES_SERVICE_HOST" in os.environ):
        return []
    from opendataflow.launch.cluster.access import find_access  # only where there is a cluster
    from opendataflow.launch.cluster.api import Api

    try:
        access = find_access()
        async with Api(access) as api:
            version = str((await api.get_version()).get("gitVersion", "of an unknown version"))
    except DataflowError as error:
        return [
            Finding(Level.PROBLEM, str(error), "an operator needs it, and Postgres: check the network between them")
        ]
    return [Finding(Level.OK, f"Kubernetes {version} at {access.server} answers")]


# The database ------------------------------------------------------------------------------------------------


async def _database(settings: Settings) -> list[Finding]:
    try:
        dsn = existing_dsn(settings, Passkey())
        if dsn is None:
            exists = embedded_exists(settings)
            text = f"the embedded Postgres in {settings.postgres_home} is not {'running' if exists else 'made yet'}"
            unchecked = "; what is in it was not checked: dataflow db status" if exists else ""
            return [Finding(Level.OK, f"{text}: it starts when needed{unchecked}")]
        return await _check_database(dsn, [] if has_named_database(settings) else embedded_folders(settings))
    except DataflowError as error:
        remedy = "start it, or set DATAFLOW_DSN to where it is (docs/how-to/postgres.md)"
        return [Finding(Level.PROBLEM, str(error), remedy)]


async def _check_database(dsn: str, folders: Sequence[Path]) -> list[Finding]:
    async with await connect(dsn) as connection:
        version = connection.info.server_version
        text = f"Postgres {version // 10000}.{version % 10000} at {place(dsn)} answers"
        findings = [Finding(Level.OK, text)]
        if version < OLDEST_SERVER:
            return [
                Finding(Level.PROBLEM, f"{text}, but 15 is the oldest that works", "move the database to a newer one")
            ]
        findings.append(_schema(state := await read_state(connection), folders))
        if state.current and state.moved_to is None:
            before = time.time()
            found = await health(connection)
            findings.append(_clock(datetime.fromisoformat(found["now"]), before, time.time()))
            findings += _engines(found)
    return findings


def _schema(state: SchemaState, folders: Sequence[Path]) -> Finding:
    if state.moved_to is not None:
        text = f"the database was moved to {state.moved_to} on {state.moved_on}"
        return Finding(Level.PROBLEM, text, f"export DATAFLOW_DSN={shlex.quote(state.moved_to)}")
    if state.unreleased:
        return Finding(Level.PROBLEM, "the schema is of an unreleased version of this program", new_database(folders))
    if state.too_new:
        return Finding(Level.PROBLEM, "the schema is too new for this program", "install the newer program")
    if not state.current:
        what = "is of an older program" if state.applied else "is not there yet"
        return Finding(Level.PROBLEM, f"the schema {what}", "dataflow db migrate")
    return Finding(Level.OK, "the schema is the one of this program")


def _clock(server: datetime, before: float, after: float) -> Finding:
    """Compare the clocks. `server`: its time, read between `before` and `after` on this machine's clock."""
    middle = datetime.fromtimestamp((before + after) / 2, UTC)
    difference = max(0.0, abs((server - middle).total_seconds()) - (after - before) / 2)
    if difference > _CLOCK_SECONDS:
        text = f"the clocks of this machine and of the database differ by {duration(difference)}"
        return Finding(Level.WARNING, text, "let both be set by NTP; nothing is decided by this machine's clock")
    return Finding(Level.OK, "this machine's clock and the database's agree")


def _engines(found: dict[str, Any]) -> Iterator[Finding]:
    engines = found["engines"]
    runs = sum(engine["runs"] for engine in engines)
    where = ", ".join(dict.fromkeys(engine["host"] for engine in engines))
    if engines:
        yield Finding(Level.OK, f"{counted(len(engines), 'engine')} at work ({where}), {counted(runs, 'run')}")
    elif found["queued"]:
        text = f"{counted(int(found['queued']), 'chunk')} could run, but no engine is running"
        yield Finding(Level.WARNING, text, "dataflow local -f FILE")
    else:
        yield Finding(Level.OK, "no engine is running, and nothing could run")
    if found["operator"] is not None:
        yield _operator(found["operator"])
    for run in found["orphans"]:
        yield _orphan(run)
    for orphan in found["orphaned_pods"]:
        text, remedy = orphan_sentence(orphan).split(": ", 1)
        yield Finding(Level.WARNING, text, remedy)
    for elsewhere in found["unmanaged_namespaces"]:
        text, remedy = unmanaged_namespace_sentence(elsewhere).split(": ", 1)
        yield Finding(Level.WARNING, text, remedy)
    for chunk in found["held"]:
        why = f" ({chunk['reason']})" if chunk["reason"] else ""
        text = f"chunk {chunk['data_id']} of {chunk['dataset']} is held since {chunk['since'][:10]}{why}"
        yield Finding(Level.WARNING, text, shell_command("release", chunk["dataset"], chunk["data_id"], dataset=True))
    for chunk in found["pending"]:
        text = f"chunk {chunk['data_id']} of {chunk['dataset']} waits for somebody to accept or reject it"
        yield Finding(Level.WARNING, text, shell_command("accept", chunk["dataset"], chunk["data_id"]))
    for job in found["suspended"]:
        yield Finding(Level.WARNING, f"job {job} is suspended", shell_command("resume", job))


def _operator(found: dict[str, Any]) -> Finding:
    """Report the operator that leads, or why none does. It needs two servers: this database and the Kubernetes API."""
    host = found["host"]
    if found["leads"]:
        return Finding(Level.OK, f"operator {host} leads")
    if found["ended"] is not None:
        why = f": {found['reason']}" if found["reason"] else ""
        text = f"no operator leads: {host} gave up the leadership {duration(found['ended'])} ago{why}"
    else:
        ago = "" if found["silent"] is None else f"; its leadership ran out {duration(found['silent'])} ago"
        text = f"no operator leads: {host} has ended, or does not reach this database{ago}"
    return Finding(
        Level.WARNING, text, "look why none is ready: kubectl get pods -A -l app.kubernetes.io/name=opendataflow"
    )


def _orphan(run: dict[str, Any]) -> Finding:
    text = (
        f"run {run['run']} of {run['job']} {run['data_id']} at {run['host']} belongs to an engine whose lease has "
        "expired"
    )
    if run["host"] == os.uname().nodename:
        remedy = f"start an engine here with the same home (its runs are in {run['runs_home']}): it takes the run over"
    else:
        remedy = f"start an engine there; if that machine is gone: {shell_command('lost', str(run['run']))}"
    return Finding(Level.WARNING, text, remedy)
