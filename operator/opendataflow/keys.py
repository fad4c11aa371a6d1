"""The keys of data sets and jobs in the database: `namespace/id` for resources, and the id alone on one machine. Pure.

An id is unique in its namespace. It has no `/`, so no other namespace can have its key. No other module composes or
splits keys.
"""

import re
from collections.abc import Iterable

from opendataflow.names import TODAY

_SEPARATOR = "/"


def key_of(namespace: str | None, id: str) -> str:  # noqa: A002
    """Return the key of an id in a namespace. `namespace`: empty or None for files and commands on one machine."""
    return f"{namespace}{_SEPARATOR}{id}" if namespace else id


def input_key(namespace: str | None, written: str) -> str:
    """Return the key of an input, as a job of a namespace has written it: `raw`, `team-a/raw`, or `today`."""
    return written if written == TODAY or _SEPARATOR in written else key_of(namespace, written)


def namespace_of(key: str) -> str:
    """Return the namespace of a key; empty if it has none."""
    return key.rpartition(_SEPARATOR)[0]


def bare(key: str) -> str:
    """Return the id of a key, without its namespace."""
    return key.rpartition(_SEPARATOR)[2]


def seen_from(namespace: str, key: str) -> str:
    """Return a key as people of a namespace write it: the id alone if it is theirs."""
    return bare(key) if namespace and namespace_of(key) == namespace else key


def sentence_seen_from(namespace: str, sentence: str, keys: Iterable[str] = ()) -> str:
    """Return a sentence of this program with the keys as people of a namespace write them.

    `keys`: only these; needed if the sentence may have data ids, which may look like keys.
    """
    if not namespace:
        return sentence
    ids = "|".join(re.escape(bare(key)) for key in keys)
    following = rf"(?:{ids})(?!\w)" if ids else r"\S"
    return re.sub(rf"(?<![^\s'\"(\[]){re.escape(namespace)}{_SEPARATOR}(?={following})", "", sentence)
