"""Look from this machine at the locations of data sets: at paths, and at tables in Postgres.

It never writes, and never prints a password. A location that this machine has no client for stays unknown.
"""

import glob
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any

from opendataflow.core.databases.postgres_address import libpq_uri
from opendataflow.core.status.places import has_location, is_database_url, place
from opendataflow.errors import DataflowError, NoAccess, Unreachable
from opendataflow.model.records.look import Look
from opendataflow.names import Answer
from opendataflow.opening.passkey import Passkey
from opendataflow.opening.source import VARIABLE, open_source

_POSTGRES_KINDS = ("", "table", "view", "postgres", "postgresql", "database")
"""Kinds of data sets that may be in Postgres if they have no URL."""
_THIS_HOST = ("", "localhost", "127.0.0.1", "::1")

_Found = tuple[Answer, str]


@dataclass(frozen=True)
class Expected:
    """A location to look at. `dataset`: the row of its data set. `is_written`: whether its data should be there.

    If the data is not written yet, only the parent folder or the connection is looked at.
    """

    dataset: Mapping[str, Any] = field(repr=False)
    is_written: bool


@dataclass(frozen=True)
class Looking:
    """How to look. `folder`: of the job's file, for relative paths. `timeout`: seconds for all locations together."""

    who: str
    environ: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    timeout: float = 10

    def look_at(self, locations: Sequence[Expected]) -> list[Look]:
        """Look at all locations at once. A location that does not answer in time is not found."""
        late = (Answer.NO, f"did not answer within {self.timeout:g} seconds")
        results = dict.fromkeys(range(len(locations)), late)

        def look(number: int) -> None:
            try:
                results[number] = self._look(locations[number])
            except Exception as error:  # of a client, such as a host name that no encoding has
                results[number] = Answer.UNKNOWN, f"was not looked at: {type(error).__name__}"

        # Daemons: a file system that hangs must not keep the program alive.
        threads = [threading.Thread(target=look, args=(number,), daemon=True) for number in results]
        for thread in threads:
            thread.start()
        at = datetime.now(UTC)
        deadline = at.timestamp() + self.timeout
        for thread in threads:
            thread.join(max(0.0, deadline - datetime.now(UTC).timestamp()))
        return [
            Look(it.dataset["id"], place(it.dataset), found, f"{place(it.dataset)} {sentence}", self.who, at)
            for it, (found, sentence) in zip(locations, list(results.values()), strict=True)
        ]

    def _look(self, it: Expected) -> _Found:
        dataset = it.dataset
        url, kind = dataset["url"] or "", (dataset["kind"] or "").lower()
        if not has_location(dataset):
            return Answer.UNKNOWN, f"of {dataset['id']}, so nobody can look there"
        scheme = url.partition("://")[0] if "://" in url else ""
        if url and not is_database_url(url) and scheme in ("", "file"):
            return self._look_at_path(it, url.removeprefix("file://"))
        if libpq_uri(url) is None and (url or kind not in _POSTGRES_KINDS):
            name = ":".join(url.split(":")[:2]) if url.startswith("jdbc:") else scheme or url.partition(":")[0] or kind
            return Answer.UNKNOWN, f"was not looked at: this machine has no client for {name}"
        return self._look_at_table(it)

    def _look_at_path(self, it: Expected, written: str) -> _Found:
        if it.dataset["owner"] is not None:
            return Answer.UNKNOWN, "was not looked at: it is a path in the pods of a cluster"
        if (it.dataset["hostname"] or "").lower() not in (*_THIS_HOST, gethostname().lower()):
            return Answer.UNKNOWN, "was not looked at: it is a path on another host"
        if not os.path.isabs(written) and self.folder is None:
            return Answer.UNKNOWN, "was not looked at: it starts in the folder of the job's file; give --folder"
        path = Path(self.folder or "/", written)
        try:
            found, sentence = _look_at_folder(path, is_written=it.is_written)
            return found, sentence if path == Path(written) else f"{sentence} ({path})"
        except PermissionError:
            return Answer.UNKNOWN, "was not looked at: this user may not read the folder"
        except (OSError, ValueError) as error:
            return Answer.UNKNOWN, f"was not looked at: {error}"

    def _look_at_table(self, it: Expected) -> _Found:
        dataset, table = it.dataset, it.dataset["tablename"]
        environ = {name: value for name, value in self.environ.items() if name != VARIABLE}
        try:
            with open_source(dataset, None, environ, Passkey(asks=False)) as source:
                if not it.is_written:
                    return Answer.YES, "answers; nothing is written yet, so only the connection was looked at"
                if table is None:
                    return Answer.UNKNOWN, "answers, and the data set names no table"
                exists = source.has_table(dataset["schemaname"], table)
                return (Answer.YES, "has the table") if exists else (Answer.NO, "answers, and has no such table")
        except NoAccess as error:
            return Answer.UNKNOWN, f"was not looked at: {error}"
        except Unreachable as error:
            return Answer.NO, f"does not answer: {error}"
        except DataflowError as error:
            return Answer.UNKNOWN, f"was not looked at: {error}"


def _look_at_folder(path: Path, *, is_written: bool) -> _Found:
    if glob.has_magic(str(path)):
        exists = next(glob.iglob(str(path)), None) is not None
        return (Answer.YES, "has files") if exists else (Answer.NO, "has no files")
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        if is_written:
            return Answer.NO, "does not exist"
        if path.parent.is_dir():
            return Answer.YES, f"is not written yet; its folder {path.parent} exists"
        return Answer.NO, f"is not written yet, and its folder {path.parent} does not exist"
    if is_written and is_folder and not any(path.iterdir()):
        return Answer.UNKNOWN, "exists and is empty"
    return Answer.YES, "exists"
