"""`opendataflow migrate`: brings the database to this program's schema, before the operator of the same pod starts.

It waits for a Postgres that is not there yet, and for who has a lock that it needs, and says who that is; it ends at
once where waiting can't help. Several may run at a time: one works, the others wait for it and find it done.
"""

import asyncio
import logging
import time

from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused
from opendataflow.opening.database import named_dsn
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import Settings
from opendataflow.store.connections.connection import connect, place
from opendataflow.store.migrations.schema import migrate

PAUSE_SECONDS = 1.0
SAY_SECONDS = 30.0
"""How often it says what it waits for."""

logger = logging.getLogger(__name__)


async def migrate_database(settings: Settings, patience: float) -> None:
    """Migrate, waiting up to so many seconds for Postgres and its locks; Refused where it can't be done."""
    dsn = named_dsn(settings, Passkey())
    if dsn is None:
        raise Refused("DATAFLOW_DSN is not set: it names the database that is to be migrated")
    begin = time.monotonic()
    said = -SAY_SECONDS

    def left() -> float:
        return begin + patience - time.monotonic()

    def say(why: object) -> None:
        nonlocal said
        if patience - left() >= said + SAY_SECONDS:
            said = patience - left()
            logger.info("waiting, at most %.0f s more: %s", left(), why)

    while True:
        try:
            async with await connect(dsn) as connection:
                done = await migrate(connection, left(), say)
            break
        except (NoAccess, InvalidInput) as error:
            raise Refused(str(error)) from error
        except DataflowError as error:
            if not error.retryable or left() <= 0:
                raise
            say(error)
        await asyncio.sleep(PAUSE_SECONDS)
    logger.info("the database %s: %s", place(dsn), "; ".join(done) or "the schema is up to date")
