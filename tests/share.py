"""What is too long for every run: each run does one share of it, and `make soak` does all of it.

The share is a number: DATAFLOW_TEST_SHARE, or else the number of the day. The header of a run names the share, so that
the same one can be run again. DATAFLOW_TEST_SOAK=1 means all shares.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import pytest

VARIABLE = "DATAFLOW_TEST_SHARE"
SOAK = os.environ.get("DATAFLOW_TEST_SOAK", "") not in ("", "0")
"""Whether this run does all of it."""

# Set once, before the workers of `pytest -n` start: all of them collect the same tests, also at midnight.
SHARE = int(os.environ.setdefault(VARIABLE, str(datetime.now(UTC).toordinal())))

_T = TypeVar("_T")


def share_of(items: Sequence[_T], shares: int) -> Sequence[_T]:
    """Return one of so many shares of a sequence, the next one on the next day; all of it in a soak."""
    return items if SOAK else items[SHARE % shares :: shares]


def soaked(share: int, all_of_it: int) -> int:
    """Return how much a run does: its share, or in a soak all of it."""
    return all_of_it if SOAK else share


NOT_IN_THIS_SHARE = "it runs in another share"
_GROUPS = 3


def in_share(group: int) -> pytest.MarkDecorator:
    """Return the mark of a long test, which one of three shares runs, and each soak. `group`: 0, 1 or 2."""
    other = not SOAK and group != SHARE % _GROUPS
    return pytest.mark.skipif(other, reason=f"{NOT_IN_THIS_SHARE}: {VARIABLE}={SHARE - SHARE % _GROUPS + group}")


only_in_a_soak = pytest.mark.skipif(not SOAK, reason=f"{NOT_IN_THIS_SHARE}: make soak")
"""The mark of a test that is too long for any share."""


def announce() -> str:
    """Return a line for the header of a test run."""
    return "all shares: a soak" if SOAK else f"share {SHARE} ({VARIABLE})"
