"""A run's SparkApplication: the few facts that are remembered of one. Values only; times as in `model.pod`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApplicationSeen:
    """A SparkApplication as it was seen last.

    `run`: from its annotation, None where that is no number. `engine`: from its label. `done`: the minute in which it
    was released. `state`, `message`: what the Spark operator says of it, empty before it has looked at it; `submitted`:
    whether a driver was ever submitted; `terminated_at`: when its driver ended. `deleted_at`: when somebody asked for
    its deletion. `start_deadline`, `run_deadline`: seconds. `gone`: the object is deleted.
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
