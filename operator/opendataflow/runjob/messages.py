"""Lines that RunJob prints, in the wording of the old framework: scripts and cron mails of users search for them.

Pure functions.
"""

from datetime import datetime


def launching(now: datetime, program: str, data_id: str) -> str:
    """Return the line before the start of a run."""
    return f"{_date(now)}: Launching {program} with dataid {data_id}"


def ended(now: datetime, program: str, *, succeeded: bool) -> str:
    """Return the line after the end of a run, before its outcome is committed."""
    return f"{_date(now)}: Job {program} {'is complete' if succeeded else 'has failed'}. Updating status"


def updated(status: str, job: str, data_id: str, *, outputs: int, inputs: int) -> str:
    """Return the line after the commit of an outcome."""
    return f"{outputs} rows updated to {status} for {job} and {data_id} {inputs} IN file-local locks released"


def nothing_ready(now: datetime) -> str:
    """Return the line for a job without a ready chunk."""
    return f"{_date(now)}: no suitable data available for job. Not running it"


def _date(now: datetime) -> str:
    return now.strftime("%a %b %d %H:%M:%S %Z %Y")
