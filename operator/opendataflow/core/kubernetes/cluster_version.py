"""The oldest supported version of Kubernetes. Pure."""

import re
from collections.abc import Mapping
from typing import Any

OLDEST = (1, 29)


def too_old(version: Mapping[str, Any]) -> str | None:
    """Return why a cluster is too old; None if it is new enough or unknown. `version`: the response of /version."""
    major, minor = (re.match(r"\d+", str(version.get(name, ""))) for name in ("major", "minor"))
    if major is None or minor is None:
        return None
    found = (int(major[0]), int(minor[0]))  # some clusters report "29+"
    if found >= OLDEST:
        return None
    named = version.get("gitVersion") or f"v{found[0]}.{found[1]}"
    return f"the cluster is Kubernetes {named}; OpenDataFlow needs v{OLDEST[0]}.{OLDEST[1]} or newer: upgrade it first"
