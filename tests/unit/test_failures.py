"""A failure while one resource is handled becomes the fault of this resource, and others are handled as before."""

import asyncio
from typing import Any, cast

import pytest

from opendataflow.control.resources import bodies, failures, reconcile
from opendataflow.control.resources.bodies import DEEPEST_SPEC, LARGEST_SPEC, parse_entry
from opendataflow.control.resources.catalog import Catalog, Fault, Key
from opendataflow.control.resources.orders import OrderMakers
from opendataflow.control.resources.reconcile import Reconciler
from opendataflow.control.resources.requests import Requests
from opendataflow.errors import DataflowError, LeadershipLost, LimitReached, Unreachable
from opendataflow.model.records.plan import Applied, Plan
from opendataflow.names import Reason
from opendataflow.store.store import Store
from tests.waiting import until

BAD, GOOD = Key("DataSet", "team-b", "bad"), Key("DataSet", "team-a", "good")


def body(key: Key, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": key.namespace, "name": key.name, "uid": f"uid of {key.name}", "generation": 1}
    return {"metadata": metadata, "spec": spec}


class Declaring:
    """Declares every resource but `bad`, whose next declarations raise these errors. `owners`: each try."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.owners: list[str] = []

    async def __call__(self, _store: object, datasets: list[dict[str, Any]], *_: object) -> Applied:
        owner = datasets[0]["owner"]
        self.owners.append(owner)
        if owner == BAD.owner and self.errors:
            raise self.errors.pop(0)
        return Applied(Plan("", (), (), (), ()), ())


class Scene:
    """A reconciler without a database: only declarations would need it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.declaring = Declaring(*errors)
        monkeypatch.setattr(reconcile, "declare", self.declaring)
        monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.001)
        monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.001)
        self.catalog, self.failed, self.shown = Catalog(), list[str](), list[Key]()
        self.reconciler = Reconciler(
            cast("Store", None),
            self.catalog,
            cast("Requests", None),
            cast("OrderMakers", None),
            self.shown.append,
            self.failed.append,
        )
        for key in (BAD, GOOD):
            self.catalog.put(parse_entry(key.kind, body(key)))
            self.reconciler.enqueue(key)

    def fault(self, key: Key) -> Fault | None:
        entry = self.catalog.get(key)
        assert entry is not None
        return entry.fault

    def accepted(self, key: Key) -> bool:
        entry = self.catalog.get(key)
        return entry is not None and entry.accepted == 1

    async def run_until_accepted(self, *keys: Key) -> None:
        loop = asyncio.create_task(self.reconciler.run())
        await until(lambda: loop.done() or all(map(self.accepted, keys)))
        assert not loop.done()
        loop.cancel()
        await asyncio.wait([loop])


ALWAYS = [RecursionError("deep")] * 10_000


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RecursionError("secret value"), "the operator has a fault: RecursionError"),
        (KeyError("secret value"), "the operator has a fault: KeyError"),
        (DataflowError("Postgres refused a statement (22P05): no"), "Postgres refused a statement (22P05): no"),
    ],
)
async def test_a_failure_is_the_fault_of_its_resource_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
) -> None:
    scene = Scene(monkeypatch, *[error] * 10_000)
    await scene.run_until_accepted(GOOD)
    message = (
        f"{cause}. The log of the operator has the details. It tries again after growing pauses of up to 5 minutes"
    )
    assert scene.fault(BAD) == Fault(Reason.INTERNAL_ERROR, message)
    assert scene.fault(GOOD) is None
    assert set(scene.failed) == {"DataSet"}
    assert scene.shown[:2] == [BAD, GOOD]


async def test_a_resource_that_has_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *ALWAYS[:3])
    await scene.run_until_accepted(BAD)
    assert scene.fault(BAD) is None
    assert scene.declaring.owners.count(BAD.owner) == 4
    assert scene.declaring.owners.count(GOOD.owner) == 1


async def test_a_refused_resource_is_tried_again_after_changes_of_its_own_namespace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = Key("DataSet", BAD.namespace, "more")
    scene = Scene(monkeypatch, LimitReached("too many"))
    await scene.run_until_accepted(GOOD)
    assert scene.reconciler.waiting == 0
    assert scene.declaring.owners == [BAD.owner, GOOD.owner]
    scene.catalog.put(parse_entry(more.kind, body(more)))
    scene.reconciler.enqueue(more)
    await scene.run_until_accepted(more, BAD)
    assert scene.declaring.owners == [BAD.owner, GOOD.owner, more.owner, BAD.owner]


async def test_a_failure_at_the_start_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *ALWAYS)

    async def nothing(_store: Store) -> dict[tuple[str, str], Any]:
        return {}

    monkeypatch.setattr(reconcile, "declared_by_resources", nothing)
    await scene.reconciler.begin()
    assert scene.accepted(GOOD)
    assert not scene.accepted(BAD)


async def test_a_loss_of_the_leadership_is_no_fault_of_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, LeadershipLost("another operator has taken over"))
    await scene.run_until_accepted(GOOD)
    assert scene.fault(BAD) is None
    assert scene.failed == []


async def test_a_lost_connection_is_no_fault_of_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, *[Unreachable("no answer")] * 3)
    await scene.run_until_accepted(BAD, GOOD)
    assert scene.failed == []
    assert scene.declaring.owners == [BAD.owner, GOOD.owner, *[BAD.owner] * 3]


@pytest.mark.parametrize("error", [MemoryError(), Unreachable("no answer"), LeadershipLost("another one leads")])
def test_all_resources_suffer_from_some_errors(error: Exception) -> None:
    assert not failures.concerns_one_resource(error)


async def test_each_failure_in_a_row_doubles_the_pause() -> None:
    retries = failures.Retries(lambda _: None)
    pauses = []
    for _ in range(40):
        asked = asyncio.get_running_loop().time()
        retries.failed(BAD)
        (timer,) = retries._timers.values()
        pauses.append(round(timer.when() - asked))
    assert pauses[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(pauses[10:]) == {300}
    retries.succeeded(BAD)
    assert timer.cancelled()


def test_a_body_that_can_not_be_parsed_is_a_fault_of_its_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(bodies, "parse_spec", fail)
    entry = parse_entry("DataSet", body(BAD))
    assert entry.model is None
    assert entry.fault is not None
    assert entry.fault.reason is Reason.INTERNAL_ERROR


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"a": {"b": deep(DEEPEST_SPEC - 1)}},
            f"spec.a.b{'[0]' * 32}[…: the spec is nested deeper than 64 levels: nest it less deeply",
        ),
        (
            {"a": 1, "b": "é" * (LARGEST_SPEC // 2)},
            "spec: it has 262147 bytes of JSON, and at most 262144 are allowed: shorten spec.b, which has 262146",
        ),
    ],
)
def test_a_spec_beyond_the_bounds_is_refused_in_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    entry = parse_entry("DataSet", body(BAD, **spec))
    assert entry.fault == Fault(Reason.INVALID_SPEC, sentence)


def test_a_spec_within_the_bounds_is_parsed() -> None:
    entry = parse_entry("DataSet", body(BAD, a=deep(DEEPEST_SPEC - 1), b="x" * (LARGEST_SPEC - 200)))
    assert entry.fault is None
