"""`opendataflow migrate`: brings the database to this program's schema, before the operator of the same pod starts.

It waits until Postgres answers, and until other sessions release the locks that it needs; the log names these sessions.
It fails at once if waiting can't help. Several may run concurrently: one migrates, and the others wait for it.
"""

import asyncio
import logging
import time

from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.opening.database import named_source
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import Settings
from opendataflow.store.connections.connection import connect, place
from opendataflow.store.migrations.schema import migrate

PAUSE_SECONDS = 1.0
LOG_SECONDS = 30.0
"""The interval between two log lines about the reason of the wait."""

logger = logging.getLogger(__name__)


async def migrate_database(settings: Settings, wait: float) -> None:
    """Migrate the database. Raises Refused if waiting can't help.

    `wait`: seconds to wait for Postgres and for locks.
    """
    source = named_source(settings, Passkey())
    if source is None:
        raise Refused("DATAFLOW_DSN is not set: it names the database that is to be migrated")
    begin = time.monotonic()
    logged = -LOG_SECONDS

    def remaining() -> float:
        return begin + wait - time.monotonic()

    def log_reason(why: object) -> None:
        nonlocal logged
        if wait - remaining() >= logged + LOG_SECONDS:
            logged = wait - remaining()
            logger.info("waiting, at most %.0f s more: %s", remaining(), why)

    while True:
        try:
            async with await connect(await asyncio.to_thread(source)) as connection:
                done = await migrate(connection, remaining(), log_reason)
            break
        except (NoAccess, InvalidInput) as error:
            raise Refused(str(error)) from error
        except DataflowError as error:
            if not error.retryable or remaining() <= 0:
                raise
            log_reason(error)
        await asyncio.sleep(PAUSE_SECONDS)
    logger.info("the database %s: %s", place(source()), "; ".join(done) or "the schema is up to date")
