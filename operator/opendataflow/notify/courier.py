"""Blocking libraries in a thread of their own: a server that never answers holds up neither the engine nor its end."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from opendataflow.errors import NotDelivered

SECONDS = 10.0
"""How long the delivery of one message may take."""


class Courier:
    """One delivery at a time; not by the loop's own threads: they are few, and a process waits for them at its end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._thread: threading.Thread | None = None

    async def do(self, delivery: Callable[[], None]) -> None:
        """Do it in a thread; NotDelivered where it takes too long, else whatever it raises."""
        if self._thread is not None and self._thread.is_alive():
            raise NotDelivered("the delivery before this one has not ended yet")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def carry() -> None:
            caught: BaseException | None = None
            try:
                delivery()
            except Exception as error:
                caught = error
            with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
                loop.call_soon_threadsafe(settle, caught)

        self._thread = threading.Thread(target=carry, name="notification", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(self.seconds):
                await done
        except TimeoutError:
            raise too_slow(self.seconds) from None


def unreached(error: Exception, said: object, seconds: float) -> NotDelivered:
    """What is said of a target that an error has kept from answering, `said` for short. However a library wraps it, a
    time-out is one and the same thing."""
    causes = (error, error.__context__, getattr(error, "reason", None))
    late = any(isinstance(cause, TimeoutError) for cause in causes)
    return too_slow(seconds) if late else NotDelivered(f"it can't be reached: {said}")


def too_slow(seconds: float) -> NotDelivered:
    """What is said of a target that takes too long."""
    return NotDelivered(f"it has not answered within {seconds:g} s")
