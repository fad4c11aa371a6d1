"""The observed facts of a run's SparkApplication. Values only. Times are as in `model.records.pod`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservedApplication:
    """A SparkApplication as last observed.

    `run`, `fence`, `nonce`, `job`, `data_id`: from its annotations; None if they are missing or invalid. `job` has no
    namespace. `engine`: from its label.
    `done`: the minute in which its finalizer was removed. `finalizer`: whether it has the finalizer of the framework.
    `state`, `message`: from the Spark operator; empty before it has processed the object. `driver`, `submission`: the
    name of the driver's pod and the id of its submission, from the Spark operator. `submitted`: whether a driver was
    ever submitted. `terminated_at`: the end of the driver. `deleted_at`: the time of the request to delete it.
    `start_deadline`, `run_deadline`: seconds. `gone`: the object does not exist any more.
    """

    namespace: str
    name: str
    uid: str
    run: int | None = None
    fence: int | None = None
    nonce: str | None = None
    job: str | None = None
    data_id: str | None = None
    engine: str | None = None
    done: int | None = None
    finalizer: bool = False
    state: str = ""
    message: str | None = None
    driver: str | None = None
    submission: str | None = None
    submitted: bool = False
    created_at: float | None = None
    terminated_at: float | None = None
    deleted_at: float | None = None
    start_deadline: float = 600.0
    run_deadline: float | None = None
    gone: bool = False
