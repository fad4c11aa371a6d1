"""How programs begin whose user may press Ctrl-C before they have begun. It imports nothing of the project."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_at_once() -> Iterator[None]:
    """Let Ctrl-C end the program without a word, as long as it imports: nothing is there to be told or tidied up.

    Python's own way is an exception out of some import, with its traceback. What nohup has taken away stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
