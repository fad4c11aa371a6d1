"""Tables of states and events, as the tests of chunks and of tasks write them down."""

from typing import Any

RESULTS = {"=": "unchanged", "?": "remembered", "!": "refused"}

ENDS: dict[str, dict[str, Any]] = {
    "success": {"verdict": "DONE"},
    "retried": {"verdict": "RETRYING"},
    "failed": {"verdict": "FAILED"},
    "lost": {"verdict": "RETRYING", "state": "LOST", "class": "Infrastructure", "message": "its host is gone"},
}
"""How runs end, by the event of a table."""


def cases(table: str, *events: str) -> list[tuple[str, str, str, str]]:
    """Read a table: state before, event, state after, result. `events`: only these."""
    header, *rows = (line.split() for line in table.strip().splitlines())
    return [
        (row[0], event, cell.rstrip("=?!"), RESULTS.get(cell[-1], "done"))
        for row in rows
        for event, cell in zip(header[1:], row[1:], strict=True)
        if cell != "-" and (not events or event in events)
    ]
