"""Reports runs and jobs in unmanaged namespaces: the operator managed them before, and does not manage them now.

The log reports each change, and /readyz the current state. This module decides nothing: such runs wait until their
namespace is managed again, or until a person declares them lost.
"""

import logging

from opendataflow.control.monitoring.probes import Health
from opendataflow.core.text.explain import unmanaged_namespace_sentence
from opendataflow.store.leader import unmanaged_namespaces
from opendataflow.store.store import Store

_WHAT = "namespaces"

logger = logging.getLogger(__name__)


class UnmanagedNamespaces:
    """Reports of unmanaged namespaces, from Postgres."""

    def __init__(self, store: Store, health: Health) -> None:
        self._store = store
        self._health = health
        self._reported: list[str] = []

    async def check(self) -> None:
        """Read the unmanaged namespaces from Postgres, and report them."""
        found = [unmanaged_namespace_sentence(row) for row in await unmanaged_namespaces(self._store)]
        for sentence in found:
            if sentence not in self._reported:
                logger.warning("%s", sentence)
        self._reported = found
        self._health.report(_WHAT, "; ".join(found) or None, blocks=False)
