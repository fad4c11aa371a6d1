"""Values that do not fit the type of their column: the text of the error that a conversion raises, and its parts.

Conversions run on executors, where an error has only a text.
"""

import re
from dataclasses import dataclass

MARK, SEPARATOR = "opendataflow: a value does not fit", "\x1f"
LONGEST = 100
"""Characters of the value."""
_RAISED = re.compile(SEPARATOR.join((re.escape(MARK), *(["([^\x1f]*)"] * 4), "")))


@dataclass(frozen=True)
class UnfitValue:
    """A value that does not fit. `file`: a URL, or "" for a table. `type`: as Spark spells it."""

    file: str
    column: str
    type: str
    text: str


def find_unfit(message: str) -> UnfitValue | None:
    """Return the value in the message of an error, or None if no conversion raised it."""
    found = _RAISED.search(message)
    return None if found is None else UnfitValue(*found.groups())
