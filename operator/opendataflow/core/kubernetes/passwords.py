"""How the pods of a job get the passwords of its data sets. Pure. It never contains a plain password.

A DataSet names a Secret of its own namespace. A job of another namespace names its Secrets itself. So whoever shares a
data set can't choose which Secret of other namespaces is read, and can't move the data set to receive their passwords.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from opendataflow.core.kubernetes.pods import Password, SecretKey
from opendataflow.errors import LocationNotAccepted
from opendataflow.keys import namespace_of
from opendataflow.model.records.claim import DeclaredJob
from opendataflow.model.resources.jobs import DataFlowJob, InputCredentials
from opendataflow.names import TODAY

Row = Mapping[str, Any]

_SERVER = ("kind", "hostname", "database", "url")
"""The columns of a location that, with the options, decide who receives a password."""
_LOCATION = ("kind", "hostname", "database", "schemaname", "tablename", "url", "format")
_HASH_DIGITS = 20


def location_hash(row: Row) -> str:
    """Return the hash of where runs send the password of a data set. `row`: its columns.

    It begins with letters: YAML takes digits alone, or digits with an `e`, for a number.
    """
    server = [row[column] for column in _SERVER]
    content = json.dumps([server, sorted(row["options"].items())])
    return f"loc-{hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]}"


def describe_location(row: Row) -> str:
    """Return where a data set is, with its options, in words. `row`: its columns."""
    parts = [f"{column} {row[column]}" for column in _LOCATION if row[column]]
    parts += [f"option {name}={value}" for name, value in sorted(row["options"].items())]
    return ", ".join(parts) or "no declared location"


def passwords_of(job: DataFlowJob, declared: DeclaredJob) -> dict[str, Password]:
    """Return how the pods of a job get passwords, by the key of the data set.

    Raises LocationNotAccepted if the job has not accepted the location of a data set for which it names a Secret.
    """
    found = {row["id"]: _of_dataset(row) if _is_own(job, row) else _of_job(job, row) for row in declared.datasets}
    return {key: password for key, password in found.items() if password is not None}


def with_own_logins(job: DataFlowJob, declared: DeclaredJob) -> DeclaredJob:
    """Return the data sets of a job without the logins that other namespaces have declared for their own runs."""
    rows = (row if _is_own(job, row) else {**row, **_login(job, row)} for row in declared.datasets)
    return DeclaredJob(declared.job, tuple(rows))


def _is_own(job: DataFlowJob, row: Row) -> bool:
    """Return whether a data set is of the job's namespace, so that its DataSet names the Secret."""
    return row["id"] == TODAY or namespace_of(row["id"]) == (job.metadata.namespace or "")


def _credentials(job: DataFlowJob, row: Row) -> InputCredentials | None:
    """Return what a job declares for a data set of another namespace."""
    return job.spec.credentials.get(row["id"])


def _login(job: DataFlowJob, row: Row) -> Row:
    credentials = _credentials(job, row)
    username = None if credentials is None else credentials.username
    return {"encryptedpass": None, "secret_ref": None, "username": username or row["username"]}


def _of_job(job: DataFlowJob, row: Row) -> Password | None:
    credentials = _credentials(job, row)
    if credentials is None:
        return None
    accepted, present = credentials.accept_location, location_hash(row)
    if accepted != present:
        known = "has no acceptLocation" if accepted is None else f"accepts {accepted}, another location"
        raise LocationNotAccepted(
            f"spec.credentials of {row['id']} {known}: runs would send the password to {describe_location(row)}; "
            f"if that is right, write acceptLocation: {present}"
        )
    return Password(secret=SecretKey(credentials.secret_ref.name, credentials.secret_ref.key))


def _of_dataset(row: Row) -> Password | None:
    """Return the password that a DataSet declares."""
    reference, sealed = row["secret_ref"] or {}, row["encryptedpass"]
    secret, passkey = reference.get("secretRef"), reference.get("passkeySecretRef")
    if secret is not None:
        return Password(secret=SecretKey(**secret))
    if sealed is not None:
        return Password(sealed=sealed, passkey=None if passkey is None else SecretKey(**passkey))
    return None
