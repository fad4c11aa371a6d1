"""Where RunJob's passkey comes from: PASSKEY, or the first argument as the old framework had it."""

import shutil
from collections.abc import Mapping, Sequence


def split_key(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, Sequence[str]]:
    """Return the passkey and the command out of RunJob's arguments.

    PASSKEY is the passkey. Without it, a first argument that is no program before a second one that is: the old form.
    """
    given = environ.get("PASSKEY")
    if given is None and len(arguments) > 1 and not shutil.which(arguments[0]) and shutil.which(arguments[1]):
        return arguments[0], arguments[1:]
    return given, arguments
