"""What an operator knows from Postgres, and compares with it at each renewal of its leadership. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """The epoch in which an operator leads, and the id and fencing token of the newest run that it knows.

    None: it has seen none yet.
    """

    epoch: int | None = None
    run: int | None = None
    fence: int | None = None


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True)
class Home:
    """The service account of an operator: the home of a database. `uid`: Kubernetes never gives it again."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
