"""Decide whether an object in the cluster is the pod or SparkApplication of a run. Pure.

Labels prove nothing, because anybody who may create pods can set them. Before the object of a run is created, only
Postgres and the operator know its nonce. Afterwards the object keeps its name until its outcome is committed, because
it has our finalizer, and its uid is known.
"""

from enum import Enum, auto
from typing import Protocol

from opendataflow import names
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import ObservedPod, RunIdentity


class Match(Enum):
    """The relation of an object to a run."""

    OURS = auto()
    UNPROTECTED = auto()
    """It is the object of the run, but somebody has removed our finalizer."""
    OPEN = auto()
    """It may be the driver of the run's SparkApplication. The Spark operator has not named the driver yet."""
    LOST = auto()
    """It is the object of a run with the same number and another nonce, which Postgres has forgotten."""
    FOREIGN = auto()


class ClusterObject(Protocol):
    """An object in the cluster; see `model.records.pod`."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class Identified(ClusterObject, Protocol):
    """The facts that identify an object of a run; see `model.records.pod`."""

    @property
    def run(self) -> int | None: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def nonce(self) -> str | None: ...
    @property
    def job(self) -> str | None: ...
    @property
    def data_id(self) -> str | None: ...
    @property
    def engine(self) -> str | None: ...
    @property
    def finalizer(self) -> bool: ...


def match_object(seen: Identified, run: RunIdentity, engine: str) -> Match:
    """Compare a pod or SparkApplication, whose uid is not known yet, with a run. `engine`: the database's identity."""
    if (seen.namespace, seen.name) != (run.namespace, run.name) or not _is_of_run(seen, run, engine):
        return Match.LOST if claims_to_be(seen) is not None and _is_of_lost_run(seen, run, engine) else Match.FOREIGN
    return Match.OURS if seen.finalizer else Match.UNPROTECTED


def claims_to_be(seen: Identified) -> RunIdentity | None:
    """Return the run whose object this seems to be, by its own annotations; None if they do not fit its name."""
    own = (seen.run, seen.fence, seen.nonce, seen.job, seen.data_id)
    if seen.run is None or seen.fence is None or not (seen.nonce and seen.job and seen.data_id and all(own)):
        return None
    name = names.pod_name(seen.job, seen.run, seen.nonce)
    return RunIdentity(seen.run, seen.namespace, name, seen.fence, seen.nonce) if seen.name == name else None


def match_driver(pod: ObservedPod, application: ObservedApplication | None, run: RunIdentity, engine: str) -> Match:
    """Compare a pod that Spark has created with the driver of a run. `application`: of the run, already matched.

    The driver has no finalizer of ours. Its application has one, and names the driver.
    """
    if pod.namespace != run.namespace or not _is_of_run(pod, run, engine):
        return Match.LOST if _is_of_lost_run(pod, run, engine) else Match.FOREIGN
    if application is None or application.driver is None:
        return Match.OPEN
    # A Spark operator without its webhook sets no owner.
    is_named = pod.name == application.driver and pod.owner in (None, application.uid)
    is_submitted = None in (pod.submission, application.submission) or pod.submission == application.submission
    return Match.OURS if is_named and is_submitted else Match.FOREIGN


def _is_of_run(seen: Identified, run: RunIdentity, engine: str) -> bool:
    own = (run.run, run.fence, run.nonce, engine)
    return all(own) and (seen.run, seen.fence, seen.nonce, seen.engine) == own


def _is_of_lost_run(seen: Identified, run: RunIdentity, engine: str) -> bool:
    return (seen.run, seen.engine) == (run.run, engine) and seen.nonce not in (None, run.nonce)
