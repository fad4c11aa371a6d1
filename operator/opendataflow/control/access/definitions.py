"""Looks whether the cluster knows the kinds of this operator as this version has them, and says where it does not."""

import asyncio
import logging
from contextlib import suppress

from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.monitoring.probes import Health
from opendataflow.core.kubernetes.definitions import outdated
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.launch.cluster.api import Api
from opendataflow.names import API_VERSION

_WHAT = "definitions"

logger = logging.getLogger(__name__)


class Definitions:
    """The custom resource definitions of the cluster. Older ones hinder nobody but those who write what they lack."""

    def __init__(self, api: Api, health: Health) -> None:
        self._api = api
        self._health = health
        self._sparing = Sparing(logger)

    def refused(self, error: ClusterRefused) -> None:
        """A kind is not known to the cluster, so that nothing can be done."""
        if error.code == 404:
            self._health.say(_WHAT, str(error))

    async def look(self) -> None:
        """All kinds are known: see whether they are as they should be."""
        sentences: list[str] = []
        with suppress(ClusterUnreachable, ClusterRefused):
            sentences = await asyncio.to_thread(outdated, await self._api.ask_schemas(API_VERSION))
        for sentence in sentences:
            self._sparing.warn(sentence)
        self._health.say(_WHAT, "; ".join(sentences) or None, blocks=False)
