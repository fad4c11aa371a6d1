"""Where RunJob's passkey may be: its first argument, as the old framework had it."""

import shutil
from collections.abc import Mapping, Sequence


def split_key(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, Sequence[str]]:
    """Return the passkey that is among RunJob's arguments, if one is, and the command.

    Without PASSKEY, a first argument that is no program before a second one that is: the old form.
    """
    given = "PASSKEY" in environ
    if not given and len(arguments) > 1 and not shutil.which(arguments[0]) and shutil.which(arguments[1]):
        return arguments[0], arguments[1:]
    return None, arguments
