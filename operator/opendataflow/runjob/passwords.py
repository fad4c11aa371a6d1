"""Finds RunJob's passkey among its arguments: in the old framework it was the first one."""

import shutil
from collections.abc import Mapping, Sequence


def split_key(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, Sequence[str]]:
    """Return the passkey among RunJob's arguments, or None, and the command.

    The first argument is a passkey if PASSKEY is not set, this argument is no program and the second one is a program.
    """
    given = "PASSKEY" in environ
    if not given and len(arguments) > 1 and not shutil.which(arguments[0]) and shutil.which(arguments[1]):
        return arguments[0], arguments[1:]
    return None, arguments
