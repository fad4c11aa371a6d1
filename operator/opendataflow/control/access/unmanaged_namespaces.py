"""Says what stands still in namespaces that this operator does not work in, though it has worked there before.

In the log when that changes, and at /readyz for as long as it is so. It decides nothing: such runs wait until their
namespace is back, or a person says that they are dead.
"""

import logging

from opendataflow.control.monitoring.probes import Health
from opendataflow.core.text.explain import unmanaged_namespaces_sentence
from opendataflow.store.leader import unmanaged_namespaces
from opendataflow.store.store import Store

_WHAT = "namespaces"

logger = logging.getLogger(__name__)


class Outside:
    """What Postgres knows of other namespaces."""

    def __init__(self, store: Store, health: Health) -> None:
        self._store = store
        self._health = health
        self._said: list[str] = []

    async def look(self) -> None:
        """Ask Postgres, and say it."""
        found = [unmanaged_namespaces_sentence(row) for row in await unmanaged_namespaces(self._store)]
        for sentence in found:
            if sentence not in self._said:
                logger.warning("%s", sentence)
        self._said = found
        self._health.say(_WHAT, "; ".join(found) or None, blocks=False)
