"""How long a user waits for what: tests measure it, and the end of the run shows it in one table.

No test fails because of a time: they say nothing about a machine that does other things as well.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import pytest


@dataclass
class Times:
    """What was measured, by its name, in the order in which it was."""

    measured: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """Note a time; several of one name are shown in one line."""
        self.measured.setdefault(name, []).append(seconds)

    @contextmanager
    def measured_as(self, name: str) -> Iterator[None]:
        """Note how long a block takes."""
        begun = time.monotonic()
        yield
        self.add(name, time.monotonic() - begun)

    def between(self, name: str, begin: str, end: str) -> None:
        """Note the time between two of Kubernetes' timestamps."""
        self.add(name, (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())


TIMES = pytest.StashKey[Times]()
"""Those of the session, in its configuration."""


def show(measured: Mapping[str, Sequence[float]]) -> list[str]:
    """The lines of the table: the name, and each time in seconds, the shortest one first."""
    width = max(map(len, measured), default=0)
    return [f"{name:{width}}  {', '.join(f'{one:.1f}' for one in sorted(found))} s" for name, found in measured.items()]
