"""Decide from looks at the locations of a run whether the run may start. Pure.

An input has to exist. Of an output only the folder above, or the connection, is checked, so its answer is never yes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opendataflow.model.records.look import Look
from opendataflow.names import Preflight

_MOST_BYTES = 1500
"""Bytes of all looks in a report, which has 4 KiB in a pod."""
_LONGEST = 300
"""Characters of the sentence of a look in a report."""
_REPORTED = ("dataset", "place", "found", "sentence")
"""The fields in a report. Who looked, and when, follows from the run."""
_ORDER = (Preflight.JOB, Preflight.CHUNK, Preflight.PASSED)


@dataclass(frozen=True)
class Finding:
    """A look at one location. `verdict`: whether the look prevents this run, or all runs of the job."""

    look: Look
    verdict: Preflight = Preflight.PASSED


@dataclass(frozen=True)
class Locations:
    """The findings of one run. Without findings, nobody has looked."""

    findings: Sequence[Finding] = ()

    @property
    def verdict(self) -> Preflight:
        """The verdict that prevents the most."""
        return min((it.verdict for it in self.findings), key=_ORDER.index, default=Preflight.PASSED)

    @property
    def sentence(self) -> str:
        """The sentence of the first finding with this verdict."""
        return next((it.look.sentence for it in self.findings if it.verdict is self.verdict), "nobody has looked")

    def report_fields(self) -> dict[str, Any]:
        """Return the fields for the report: what prevents the run first, and as many looks as there is room for."""
        if not self.findings:
            return {}
        room, looks = _MOST_BYTES, list[dict[str, Any]]()
        for finding in sorted(self.findings, key=lambda it: _ORDER.index(it.verdict)):
            look = {name: value for name, value in finding.look.document().items() if name in _REPORTED}
            look["sentence"] = look["sentence"][:_LONGEST]
            room -= len(json.dumps(look, ensure_ascii=False).encode("utf-8", "replace"))
            looks += [look] if room >= 0 else []
        return {"preflight": str(self.verdict), "looks": looks}
