"""The state of a watch: one namespace, or all namespaces, as the launchers see it. It never sends a request."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class NamespaceView:
    """What a watch sees of one namespace, or of all (None).

    `synced`: set when every object has been seen once. `listed`: the uids of the list that is under way; None without
    one. `followed`: a watch was started. `closed`: why nothing may be done there; None if it is open.
    """

    namespace: str | None
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    listed: set[str] | None = None
    followed: bool = False
    closed: str | None = None

    def covers(self, namespace: str) -> bool:
        """Return whether objects of a namespace are seen here."""
        return self.namespace in (None, namespace)
