"""What RunJob prints, in the words that cron mails and scripts of its users look for. Pure."""

from datetime import datetime


def launching(now: datetime, program: str, data_id: str) -> str:
    """A run is about to start."""
    return f"{_date(now)}: Launching {program} with dataid {data_id}"


def ended(now: datetime, program: str, *, succeeded: bool) -> str:
    """A run has ended and its outcome is about to be committed."""
    return f"{_date(now)}: Job {program} {'is complete' if succeeded else 'has failed'}. Updating status"


def updated(status: str, job: str, data_id: str, *, outputs: int, inputs: int) -> str:
    """The outcome is committed."""
    return f"{outputs} rows updated to {status} for {job} and {data_id} {inputs} IN file-local locks released"


def nothing(now: datetime) -> str:
    """Nothing is ready; nothing was started."""
    return f"{_date(now)}: no suitable data available for job. Not running it"


def _date(now: datetime) -> str:
    return now.strftime("%a %b %d %H:%M:%S %Z %Y")
