"""Checks whether the custom resource definitions of the cluster are those of this version, and reports differences."""

import asyncio
import logging
from contextlib import suppress

from opendataflow.control.monitoring.logs import RateLimitedLogger
from opendataflow.control.monitoring.probes import Health
from opendataflow.core.kubernetes.definitions import outdated_sentences
from opendataflow.errors import ClusterRefused, ClusterUnreachable
from opendataflow.launch.cluster.api import Api
from opendataflow.names import API_VERSION

_WHAT = "definitions"

logger = logging.getLogger(__name__)


class Definitions:
    """Checks of the custom resource definitions. Older ones do not block the operator: only new fields are missing."""

    def __init__(self, api: Api, health: Health) -> None:
        self._api = api
        self._health = health
        self._limited_logger = RateLimitedLogger(logger)

    def record_refusal(self, error: ClusterRefused) -> None:
        """Report the refusal of a list. With code 404 the cluster lacks a kind, which blocks the operator."""
        if error.code == 404:
            self._health.report(_WHAT, str(error))

    async def check(self) -> None:
        """Compare the schemas of all kinds with those of this version. Called when the cluster has all kinds."""
        sentences: list[str] = []
        with suppress(ClusterUnreachable, ClusterRefused):
            sentences = await asyncio.to_thread(outdated_sentences, await self._api.get_schemas(API_VERSION))
        for sentence in sentences:
            self._limited_logger.warn(sentence)
        self._health.report(_WHAT, "; ".join(sentences) or None, blocks=False)
