"""File names and paths as Spark and Hadoop read them."""

import re

LOCAL_SCHEME = "file://"
"""Prefix of a path of this machine. Without a scheme, Hadoop uses its default file system."""


def is_data_file(name: str) -> bool:
    """Return whether Spark reads a file of this name."""
    return name[0] not in "._"


def escape_wildcards(path: str) -> str:
    """Escape Hadoop's wildcards in a path, so that the path matches only itself."""
    return re.sub(r"[*?{}\[\]\\]", r"\\\g<0>", path)
