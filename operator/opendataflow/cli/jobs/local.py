"""`dataflow local`: runs the engine, with runs as processes of this machine."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import AllowOverlapOption, actor, app
from opendataflow.cli.jobs.apply import (
    AllowOption,
    AllowRetireOption,
    BackfillOption,
    FilesOption,
)
from opendataflow.cli.jobs.job_files import Declared, apply_files, read_files
from opendataflow.cli.output.live import Display, live_console
from opendataflow.cli.output.printing import echo
from opendataflow.cli.output.screen import console
from opendataflow.cli.reports.status import job_status, print_status
from opendataflow.core.databases.attempts import make_owner
from opendataflow.core.runs.command import check_runs_locally
from opendataflow.core.text.explain import limit_sentence, stale_sentence
from opendataflow.core.text.progress import Status, problem_lines
from opendataflow.engine.alerts import Alerts
from opendataflow.engine.claim_authority import LocalClaimAuthority
from opendataflow.engine.database_retries import DatabaseRetries
from opendataflow.engine.engine import Engine
from opendataflow.engine.orders import FileOrders
from opendataflow.engine.passwords import Passwords
from opendataflow.errors import InvalidInput
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.claim import Progress
from opendataflow.model.records.plan import Consent
from opendataflow.model.records.run import RunOrder
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.model.resources.jobfile import absolute_path
from opendataflow.names import ExitCode, TaskState
from opendataflow.notify.targets import Target, configured_targets
from opendataflow.opening.database import open_store
from opendataflow.opening.passkey import Passkey
from opendataflow.runjob.programs import check_program
from opendataflow.settings import Settings, read_settings
from opendataflow.store.leader import identity
from opendataflow.store.store import Store

_OPEN = frozenset(TaskState) - {TaskState.DONE, TaskState.SKIPPED, TaskState.RETIRED}


@app.command("local")
def local(  # noqa: PLR0913  # one for each option
    files: FilesOption,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            min=1,
            help="Maximum number of runs at a time, for all jobs together. Default: the sum of what the jobs allow, of "
            "which runs of Spark and pipelines are at most as many as cores.",
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Exit when no task can run. Exit code 3 if a task failed, waits or is held, 6 if tasks are stale.",
        ),
    ] = False,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey. Default: PASSKEY, DATAFLOW_KEY_FILE.")
    ] = None,
    allow: AllowOption = None,
    allow_retire: AllowRetireOption = False,
    allow_overlap: AllowOverlapOption = False,
    backfill: BackfillOption = None,
) -> int:
    """Apply job files and run their jobs on this machine.

    Ctrl-C starts no new runs and waits for the others. A second Ctrl-C ends them.
    """
    declared = read_files(files)
    if not declared.jobs:
        raise InvalidInput(f"{files[0]}: there is no DataFlowJob in it: nothing to run")
    for job in declared.jobs:
        check_runs_locally(job)
        _check_script(job, declared.folders[job.id])
        _check_project(job, declared.folders[job.id])
    settings = read_settings()
    targets = configured_targets(settings.notifications)
    slots = parallelism or default_slots(declared.jobs, os.cpu_count() or 1)
    consent = Consent(allow, allow_retire, allow_overlap, backfill)
    return asyncio.run(_run(settings, targets, declared, consent, Passkey(key_file), slots, until_caught_up))


def default_slots(jobs: Sequence[DataFlowJob], cores: int) -> int:
    """Return how many runs of jobs may be active: a script mostly waits for other machines, and Spark uses a core."""
    scripts = sum(job.spec.parallelism for job in jobs if job.spec.runtime.script is not None)
    return max(scripts + min(_allowed(jobs) - scripts, cores), 1)


def _allowed(jobs: Sequence[DataFlowJob]) -> int:
    """Return how many runs the jobs allow together."""
    return sum(job.spec.parallelism for job in jobs)


def _check_script(job: DataFlowJob, folder: Path) -> None:
    """Raise InvalidInput before any chunk is claimed if the system can't start a job's script."""
    script = job.spec.runtime.script
    if script is None:
        return
    start = absolute_path(script.working_directory, folder)
    if not start.is_dir():
        raise InvalidInput(f"job {job.id}: spec.runtime.script.workingDirectory: there is no folder {start}")
    try:
        check_program(script.command[0], job.spec.env.get("PATH", os.environ.get("PATH")), start)
    except InvalidInput as error:
        raise InvalidInput(f"job {job.id}: {error}") from None


def _check_project(job: DataFlowJob, folder: Path) -> None:
    """Raise the error of a job's local project before any chunk is claimed: with it, every chunk would fail."""
    runtime = job.spec.runtime.pipeline
    if runtime is None or runtime.project.path is None:
        return
    from opendataflow.spark.pipeline.execute.loading import check_modules
    from opendataflow.spark.pipeline.job import place_destination
    from opendataflow.spark.pipeline.project.project_folder import open_project

    resolved = open_project(absolute_path(runtime.project.path, folder)).resolve(runtime.pipeline)
    place_destination(resolved, str(folder))
    check_modules(resolved)


async def _run(
    settings: Settings,
    targets: Sequence[Target],
    declared: Declared,
    consent: Consent,
    passkey: Passkey,
    parallelism: int,
    until_caught_up: bool,
) -> int:
    passwords = Passwords(passkey)
    async with open_store(settings, size=6, passkey=passkey) as store:
        await apply_files(store, declared, actor(), consent)
        jobs = [job.id for job in declared.jobs]
        await _check_passwords(store, jobs, passwords)
        screen = console()
        display = Display(live_console(), jobs)
        if parallelism < (allowed := _allowed(declared.jobs)):
            display.note(f"{limit_sentence(parallelism, allowed)}: --parallelism changes that")
        database = await identity(store)
        launcher = ProcessLauncher(
            settings.runs_home(database), former_home=settings.all_runs, redactor=passwords.redactor
        )
        engine = Engine(
            store,
            launcher,
            LocalClaimAuthority(store, launcher, display.note, parallelism, jobs),
            {
                job.id: FileOrders(
                    job, declared.folders[job.id], sys.executable, settings.clones_home, passwords, make_owner(database)
                )
                for job in declared.jobs
            },
            display,
            parallelism=parallelism,
            until_caught_up=until_caught_up,
        )
        interrupted = _stop_on_signals(engine, display)
        alerts = Alerts(store, targets, display.note)
        background = [asyncio.create_task(alerts.run())]
        if screen.is_terminal:
            background.append(asyncio.create_task(display.follow(store, lambda: _problems(store, jobs))))
        try:
            progress = await engine.run()
            display.show(progress)
        finally:
            for future in background:
                future.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        await alerts.finish()
        screen.print()
        statuses = await DatabaseRetries().until_answered(
            lambda: _statuses(store, jobs), lambda error: display.note(f"{error} All runs have ended.")
        )
        for status in statuses:
            print_status(screen, status)
        code = exit_code(progress)
        if code is ExitCode.STALE:
            _print_stale(progress)
        return ExitCode.INTERRUPTED if interrupted else code


def _print_stale(progress: Sequence[Progress]) -> None:
    for one in progress:
        if one.stale:
            echo(f"all is done, but stale: {stale_sentence(one.job, one.stale)}", err=True)


async def _check_passwords(store: Store, jobs: Sequence[str], passwords: Passwords) -> None:
    """Open all passwords before the first claim, so that a wrong passkey does not consume an attempt."""
    datasets = [row for job in (await store.declared_jobs(jobs)).values() for row in job.datasets]
    passwords.variables(datasets)  # in this thread: it may prompt for the passkey, and no run has started yet
    for variable in dict.fromkeys(passwords.missing(datasets)):
        echo(f"{variable} is not set: no passkey is given", err=True)


async def _problems(store: Store, jobs: Sequence[str]) -> list[str]:
    """Return what keeps jobs from their end, for the live display."""
    return [
        f"{job}: {line}" if len(jobs) > 1 else line
        for job in jobs
        for line in problem_lines(await job_status(store, job))
    ]


async def _statuses(store: Store, jobs: Sequence[str]) -> list[Status]:
    return [await job_status(store, job) for job in jobs]


def exit_code(progress: Sequence[Progress]) -> ExitCode:
    """Return the exit code for the progress of jobs that no run of theirs can change any more."""
    if any(job.of(*_OPEN) or job.incomplete or job.declaring for job in progress):
        return ExitCode.UNFINISHED
    return ExitCode.STALE if any(job.stale for job in progress) else ExitCode.OK


def _stop_on_signals(engine: Engine[RunOrder], display: Display) -> list[int]:
    """Drain at the first SIGINT or SIGTERM and end the runs at the second.

    Return a list to which every received signal is appended.
    """
    received: list[int] = []
    loop = asyncio.get_running_loop()
    killing: set[asyncio.Task[None]] = set()

    def stop(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            display.note("stopping: runs go on to their end, nothing new starts; once more ends them now")
            engine.drain()
        elif not killing:
            display.note("ending the runs; their tasks are tried again")
            killing.add(loop.create_task(engine.kill()))
            for known in (signal.SIGINT, signal.SIGTERM):  # the third signal ends this process at once
                loop.remove_signal_handler(known)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return received
