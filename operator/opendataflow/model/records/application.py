"""The observed facts of a run's SparkApplication. Values only. Times are as in `model.records.pod`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservedApplication:
    """A SparkApplication as last observed.

    `run`: from its annotation; None if the annotation is not a number. `engine`: from its label. `done`: the minute in
    which its finalizer was removed. `state`, `message`: from the Spark operator; empty before it has processed the
    object. `submitted`: whether a driver was ever submitted. `terminated_at`: the end of the driver. `deleted_at`: the
    time of the request to delete it. `start_deadline`, `run_deadline`: seconds. `gone`: the object does not exist any
    more.
    """

    namespace: str
    name: str
    uid: str
    run: int | None = None
    engine: str | None = None
    done: int | None = None
    state: str = ""
    message: str | None = None
    submitted: bool = False
    created_at: float | None = None
    terminated_at: float | None = None
    deleted_at: float | None = None
    start_deadline: float = 600.0
    run_deadline: float | None = None
    gone: bool = False
