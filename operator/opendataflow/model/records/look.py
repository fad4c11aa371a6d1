"""A look: what one program found at the location of a data set, and when. Values only."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from opendataflow.names import Answer


@dataclass(frozen=True)
class Look:
    """One look at the location of a data set.

    `place`: where the program looked, without a password. `found`: whether the place exists; UNKNOWN if the program
    could not look there. `sentence`: what it found, for people. `who`: the run, or the command and its host. `at`: the
    time of the look, with its zone.
    """

    dataset: str
    place: str
    found: Answer
    sentence: str
    who: str
    at: datetime

    def document(self) -> dict[str, Any]:
        """Return the look as JSON."""
        return {**vars(self), "found": str(self.found), "at": self.at.isoformat(timespec="seconds")}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        """Return the look from its JSON. Raises ValueError, KeyError or TypeError if the JSON is another one."""
        known = {name: document[name] for name in ("dataset", "place", "sentence", "who")}
        return cls(**known, found=Answer(document["found"]), at=datetime.fromisoformat(document["at"]))
