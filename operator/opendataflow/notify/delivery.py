"""Runs deliveries with blocking libraries in a thread.

A server that never answers therefore delays neither the engine nor the exit of the process.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from opendataflow.errors import NotDelivered

SECONDS = 10.0
"""Maximum time for the delivery of one message."""


class DeliveryThread:
    """Runs one delivery at a time in a daemon thread.

    The loop's own threads are not used: they are few, and a process waits for them at its exit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._thread: threading.Thread | None = None

    async def run(self, delivery: Callable[[], None]) -> None:
        """Run a delivery in the thread and raise its error. Raise NotDelivered after the time-out."""
        if self._thread is not None and self._thread.is_alive():
            raise NotDelivered("the delivery before this one has not ended yet")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def set_outcome(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def deliver() -> None:
            caught: BaseException | None = None
            try:
                delivery()
            except Exception as error:
                caught = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(set_outcome, caught)

        self._thread = threading.Thread(target=deliver, name="notification", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(self.seconds):
                await done
        except TimeoutError:
            raise timeout_error(self.seconds) from None


def unreachable_error(error: Exception, reason: object, seconds: float) -> NotDelivered:
    """Return the error for a target that did not answer. `reason`: a short text for `error`.

    Libraries wrap a time-out in different ways. All of them become the same message.
    """
    causes = (error, error.__context__, getattr(error, "reason", None))
    late = any(isinstance(cause, TimeoutError) for cause in causes)
    return timeout_error(seconds) if late else NotDelivered(f"it can't be reached: {reason}")


def timeout_error(seconds: float) -> NotDelivered:
    """Return the error for a target that exceeded the time-out."""
    return NotDelivered(f"it has not answered within {seconds:g} s")
