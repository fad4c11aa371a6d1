"""Ctrl-C while a program is still importing its modules. This module imports nothing of the project."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Let Ctrl-C exit without a message while the block runs: nothing has started, so nothing needs cleaning up.

    By default Python prints a traceback of the interrupted import. A SIGINT that nohup ignores stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
