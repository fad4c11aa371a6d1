"""`opendataflow`: the program of the operator's image. It reads the arguments and the environment, and hands on."""

import argparse
import asyncio
import logging
import os
import sys

from opendataflow.control.logs import set_up
from opendataflow.control.operator import operate
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.settings import read_operator_settings, read_settings

logger = logging.getLogger(__name__)


def main() -> None:
    """Run a command and exit; an error is one sentence."""
    parser = argparse.ArgumentParser(prog="opendataflow", description="Runs DataFlowJobs on Kubernetes.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    operator = commands.add_parser("operator", help="watch the resources, and run their jobs as pods")
    operator.set_defaults(run=_operator)
    operator.add_argument(
        "--log-format", choices=("text", "json"), default=os.environ.get("DATAFLOW_LOG_FORMAT", "json")
    )
    operator.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING"), default="INFO")
    given = parser.parse_args()
    set_up(given.log_level, given.log_format, os.environ)
    try:
        given.run()
    except* DataflowError as errors:
        _fail(errors)


def _operator() -> None:
    asyncio.run(operate(read_settings(), read_operator_settings()))


def _fail(errors: BaseExceptionGroup[DataflowError]) -> None:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    logger.error("%s", first)
    sys.exit(first.exit_code if isinstance(first, DataflowError) else ExitCode.FAILED)
