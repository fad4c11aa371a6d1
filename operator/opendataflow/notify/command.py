"""A user's program as a target: started without a shell, and killed with its process group after the time-out."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from opendataflow.core.text.alert import payload, text
from opendataflow.errors import NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.names import SECRET_VARIABLES
from opendataflow.notify.delivery import SECONDS, timeout_error

_MAX_STDERR_BYTES = 2000
"""Maximum number of bytes of stderr that are read to find the last line."""


class CommandTarget:
    """Runs a program with the message as JSON on its standard input, and in variables DATAFLOW_ALERT_*."""

    def __init__(self, argv: tuple[str, ...], environ: Mapping[str, str], seconds: float = SECONDS) -> None:
        self._argv = argv
        self._environ = {name: value for name, value in environ.items() if name not in SECRET_VARIABLES}
        self._seconds = seconds
        self.name = f"command {Path(argv[0]).name}"
        self.address = "\0".join(argv)

    async def deliver(self, alert: Alert) -> None:
        """Run the program. Raise NotDelivered if its exit code is not 0 or it exceeds the time-out."""
        # Files instead of pipes: background processes of the program keep pipes open, and must not be waited for.
        with TemporaryFile() as message, TemporaryFile() as stderr:
            message.write(json.dumps(payload(alert), ensure_ascii=False).encode())
            message.seek(0)
            code = await self._run(alert, message, stderr)
            if code != 0:
                stderr.seek(max(stderr.seek(0, os.SEEK_END) - _MAX_STDERR_BYTES, 0))
                last = stderr.read().decode("utf-8", "replace").strip().splitlines()[-1:]
                raise NotDelivered(f"its exit code is {code}" + (f": {last[0]}" if last else ""))

    async def _run(self, alert: Alert, message: IO[bytes], stderr: IO[bytes]) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=message,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env={**self._environ, **_variables(alert)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotDelivered(f"it can't be started: {error}") from error
        try:
            async with asyncio.timeout(self._seconds):
                return await process.wait()
        except TimeoutError:
            raise timeout_error(self._seconds) from None
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process group if the program has not exited."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _variables(alert: Alert) -> dict[str, str]:
    message = payload(alert)
    return {
        "DATAFLOW_ALERT_TEXT": text(alert),
        "DATAFLOW_ALERT_JOB": alert.job,
        "DATAFLOW_ALERT_KIND": alert.kind.value,
        "DATAFLOW_ALERT_EVENT": str(message["event"]),
    }
