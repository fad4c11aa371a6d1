"""`opendataflow`: the program of the operator's image. It parses the arguments and the environment, and runs a command.

Each command imports its modules when it runs. `migrate` runs before each start of an operator, and would spend four
fifths of its time on imports that only the operator needs.
"""

import argparse
import asyncio
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from opendataflow import __version__
from opendataflow.control.monitoring.logs import redact_secrets, set_up_logging
from opendataflow.errors import DataflowError
from opendataflow.model.fields.field_types import duration_seconds
from opendataflow.names import ExitCode
from opendataflow.settings import read_operator_settings, read_settings

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes shows the content of this file in the status of the pod."""

logger = logging.getLogger(__name__)


def main() -> None:
    """Run a command. Log an error as one sentence and exit with its code."""
    given = _parser().parse_args()
    set_up_logging(given.log_level, given.log_format, os.environ)
    try:
        given.run(given)
    except* DataflowError as errors:
        _fail(errors)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="opendataflow", description="Runs DataFlowJobs on Kubernetes.")
    parser.add_argument("--version", action="version", version=f"opendataflow {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    operator = commands.add_parser("operator", help="watch the resources, and run their jobs as pods")
    operator.set_defaults(run=_operator)
    _logs(operator, "json")
    migrate = commands.add_parser(
        "migrate",
        help="bring the database to this program's schema",
        description="Waits until Postgres answers, and brings the database to the schema of this program.",
    )
    migrate.set_defaults(run=_migrate)
    migrate.add_argument(
        "--wait", type=_duration, default="5m", metavar="TIME", help="how long Postgres is waited for, like 90s (5m)"
    )
    _logs(migrate, "text")
    cleanup = commands.add_parser(
        "cleanup",
        help="free run pods when the operator is gone for good",
        description="Takes the finalizer off run pods, so that they and their namespaces can be deleted. Pods go on.",
    )
    cleanup.set_defaults(run=_cleanup)
    where = cleanup.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "-n", "--namespace", action="append", default=[], help="free the run pods of this namespace; repeatable"
    )
    where.add_argument("-A", "--all-namespaces", action="store_true", help="free those of the whole cluster")
    how = cleanup.add_mutually_exclusive_group()
    how.add_argument(
        "--uninstall",
        metavar="NAMESPACE/DEPLOYMENT",
        help="stop the operator of this Deployment first; where Postgres is gone, free the pods of every database",
    )
    cleanup.add_argument(
        "--wait",
        type=_duration,
        default="20s",
        metavar="TIME",
        help="with --uninstall: how long Postgres is waited for before it counts as gone (20s)",
    )
    how.add_argument(
        "--force", action="store_true", help="free the pods of every database, and do not ask whether an operator leads"
    )
    _logs(cleanup, "text")
    return parser


def _logs(command: argparse.ArgumentParser, form: str) -> None:
    default = os.environ.get("DATAFLOW_LOG_FORMAT", form)
    command.add_argument("--log-format", choices=("text", "json"), default=default)
    command.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING"), default="INFO")


def _duration(text: str) -> float:
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _operator(_: argparse.Namespace) -> None:
    from opendataflow.control.operator import operate

    asyncio.run(operate(read_settings(), read_operator_settings()))


def _migrate(given: argparse.Namespace) -> None:
    from opendataflow.control.migration import migrate_database

    asyncio.run(migrate_database(read_settings(), given.wait))


def _cleanup(given: argparse.Namespace) -> None:
    from opendataflow.control.cleanup import clean_up, uninstall

    if given.uninstall:
        asyncio.run(uninstall(read_settings(), given.namespace, given.uninstall, given.wait))
    else:
        asyncio.run(clean_up(read_settings(), given.namespace, force=given.force))


def _fail(errors: BaseExceptionGroup[DataflowError]) -> None:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    logger.error("%s", first)
    with suppress(OSError):  # for `kubectl describe pod`; the file exists in containers only
        if TERMINATION_LOG.exists():
            TERMINATION_LOG.write_text(redact_secrets(str(first), os.environ))
    sys.exit(first.exit_code if isinstance(first, DataflowError) else ExitCode.FAILED)
