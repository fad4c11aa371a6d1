"""DataFlowActions and spec.resubmit on a real API server: each is done once and reported, whatever breaks between."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from opendataflow.control.resources.bodies import parse_entry
from opendataflow.control.resources.catalog import Entry, Fault, Key
from opendataflow.control.resources.requests import TARGET_SECONDS, Requests
from opendataflow.errors import ClusterUnreachable
from opendataflow.launch.cluster import api as client
from opendataflow.launch.cluster.access import Access, Identity, from_kubeconfig
from opendataflow.names import API_VERSION
from opendataflow.store.store import Store
from tests.kube.cluster import proxy as faults
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.operating import entries
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, chunks, claim, dataset, end, job, of_namespace, open_lease, tasks, value

PATH = "/apis/opendataflow.io/v1alpha1/namespaces/{}/dataflowactions"


@pytest.fixture
def db(dsn: str, namespace: str) -> Any:
    """A database with job j of the namespace: b of a, which has 1, 2 and 10; 1 is done."""
    with open_connection(dsn) as connection:
        own = partial(of_namespace, namespace)
        apply(connection, [own(dataset("a", "1", "2", "10")), own(dataset("b"))], [own(job("j", ["a"], ["b"]))])
        [run] = claim(connection, open_lease(connection), f"{namespace}/j")
        end(connection, run, "DONE")
        yield connection


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    opened = await Store.open(lambda: dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def api(cluster: Api) -> AsyncIterator[client.Api]:
    async with client.Api(from_kubeconfig([cluster.kubeconfig])) as opened:
        yield opened


@pytest.fixture
def requests(store: Store, api: client.Api) -> Requests:
    return Requests(store, api, lambda _: None)


def action(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """An action that asks job j for something."""
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    wanted = {"job": "j", **spec} if "dataset" not in spec else spec
    return {"apiVersion": API_VERSION, "kind": "DataFlowAction", "metadata": metadata, "spec": wanted}


def resubmitted(db: Connection) -> int:
    query = "SELECT count(*) FROM opendataflow.history WHERE event = 'resubmit' AND kind = 'chunk' AND data_id = '1'"
    return int(value(db, query))


def made(cluster: Api, namespace: str, name: str = "fix", **spec: Any) -> Entry:
    """Create an action; return it as a watch delivers it."""
    wanted = spec or {"action": "resubmit", "chunks": ["1", "2"]}
    return parse_entry("DataFlowAction", cluster.create(PATH.format(namespace), action(name, **wanted)))


def status_of(cluster: Api, namespace: str, name: str = "fix") -> Object:
    """The status of an action."""
    status: Object = cluster.get(f"{PATH.format(namespace)}/{name}").get("status", {})
    return status


async def test_an_action_is_done_and_its_status_says_what_became_of_it(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await requests.handle_action(made(cluster, namespace))

    status = status_of(cluster, namespace)
    finished = datetime.fromisoformat(status.pop("finishedAt"))
    assert before <= finished <= datetime.now(UTC)
    first, second = status.pop("lines")
    assert (first, second.partition(": there")[0]) == ("j 1: QUEUED", "j 2: QUEUED (it has not run yet")
    assert status == {
        "phase": "Done",
        "counts": {"done": 1, "unchanged": 1, "refused": 0},
        "message": "resubmit: 1 done, 1 unchanged",
    }
    assert tasks(db)[f"{namespace}/j/1"] == "QUEUED"


@pytest.mark.parametrize(
    ("spec", "lines"),
    [
        ({"action": "hold", "range": {"from": "2"}}, ["j 2: HELD", "j 10: HELD"]),
        ({"action": "skip", "status": "QUEUED"}, ["j 2: SKIPPED", "j 10: SKIPPED"]),
        ({"action": "hold", "dataset": "a", "range": {"to": "1"}}, ["a 1: HOLD"]),
        ({"action": "publish", "dataset": "b", "chunks": ["11"]}, ["b 11: READY"]),
        ({"action": "resubmit", "dataset": "b", "status": "READY", "cascade": True}, ["b 1: QUEUED"]),
    ],
)
@pytest.mark.usefixtures("db")
async def test_chunks_are_chosen_by_name_by_range_or_by_state(
    requests: Requests, cluster: Api, namespace: str, spec: Object, lines: list[str]
) -> None:
    await requests.handle_action(made(cluster, namespace, **spec))

    assert status_of(cluster, namespace)["lines"] == lines


async def test_the_history_says_which_action_it_was_and_which_program_made_it(
    requests: Requests, api: client.Api, cluster: Api, namespace: str, db: Connection
) -> None:
    cluster.kubectl("create", f"--namespace={namespace}", "--filename=-", stdin=_yaml(action("fix", **HOLD)))
    for entry in await entries(api, namespace):
        await requests.handle_action(entry)

    assert _actor(db) == f"DataFlowAction {namespace}/fix by kubectl-create"


async def test_the_history_says_for_whom_the_command_line_has_asked(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    body = action("fix", {"opendataflow.io/requested-by": "ada@laptop"}, **HOLD)
    await requests.handle_action(parse_entry("DataFlowAction", cluster.create(PATH.format(namespace), body)))

    assert _actor(db) == f"DataFlowAction {namespace}/fix for ada@laptop"


HOLD: dict[str, Any] = {"action": "hold", "chunks": ["2"], "reason": "not today"}


def _actor(db: Connection) -> str:
    return str(value(db, "SELECT actor FROM opendataflow.history WHERE event = 'hold' AND reason = 'not today'"))


def _yaml(body: Object) -> str:
    import json

    return json.dumps(body)


@pytest.mark.usefixtures("db")
async def test_a_refusal_says_why_in_a_word_and_a_sentence(requests: Requests, cluster: Api, namespace: str) -> None:
    await requests.handle_action(made(cluster, namespace, action="accept", dataset="b", chunks=["1"]))

    status = status_of(cluster, namespace)
    assert (status["phase"], status["reason"]) == ("Refused", "Refused")
    assert status["message"].startswith("chunk 1 of b is READY: only PENDING ones ")
    assert status["counts"] == {"done": 0, "unchanged": 0, "refused": 1}


async def test_an_action_never_reaches_a_job_of_another_namespace(
    store: Store, api: client.Api, cluster: Api, namespace: str, other_namespace: str, db: Connection
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=TARGET_SECONDS + 1)
    requests = Requests(store, api, lambda _: None, lambda: later)
    await requests.handle_action(made(cluster, other_namespace))

    status = status_of(cluster, other_namespace)
    assert (status["phase"], status["reason"], status["message"]) == ("Refused", "Unknown", "there is no job j")
    assert tasks(db)[f"{namespace}/j/1"] == "DONE"


@pytest.mark.parametrize("field", ["job", "dataset"])
async def test_the_api_server_takes_no_action_about_another_namespace(cluster: Api, namespace: str, field: str) -> None:
    with pytest.raises(Refused, match="an id has no /"):
        made(cluster, namespace, **{"action": "hold", field: "other/j"})


@pytest.mark.usefixtures("db")
async def test_an_action_that_can_t_be_read_is_refused_with_what_is_wrong(
    requests: Requests, cluster: Api, namespace: str
) -> None:
    entry = made(cluster, namespace)
    entry.model, entry.fault = None, Fault("InvalidSpec", "spec.action: it is none")
    await requests.handle_action(entry)

    status = status_of(cluster, namespace)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Refused",
        "InvalidSpec",
        "spec.action: it is none",
    )


# Crashes, and what comes twice


async def test_an_action_that_is_seen_twice_is_done_once_and_its_status_stays(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = made(cluster, namespace)
    await requests.handle_action(entry)
    before = cluster.get(f"{PATH.format(namespace)}/fix")
    await requests.handle_action(entry)

    assert cluster.get(f"{PATH.format(namespace)}/fix") == before
    assert resubmitted(db) == 1


async def test_an_api_server_that_is_unreachable_is_reported_to_the_caller_and_the_answer_is_reported_later(
    store: Store, requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = made(cluster, namespace)
    async with client.Api(Access("http://127.0.0.1:9", Identity)) as nobody:
        with pytest.raises(ClusterUnreachable):
            await Requests(store, nobody, lambda _: None).handle_action(entry)
    assert tasks(db)[f"{namespace}/j/1"] == "QUEUED"
    [run] = claim(db, open_lease(db), f"{namespace}/j")
    end(db, run, "DONE")

    await requests.handle_action(entry)

    assert status_of(cluster, namespace)["counts"]["done"] == 1
    assert tasks(db)[f"{namespace}/j/1"] == "DONE"


@pytest.mark.usefixtures("db")
async def test_an_action_that_is_gone_meanwhile_is_done_all_the_same(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = made(cluster, namespace)
    cluster.delete(f"{PATH.format(namespace)}/fix")

    await requests.handle_action(entry)

    assert resubmitted(db) == 1


async def test_another_action_of_the_same_name_does_not_get_its_answer(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = made(cluster, namespace)
    cluster.delete(f"{PATH.format(namespace)}/fix")
    made(cluster, namespace, action="skip", chunks=["10"])

    await requests.handle_action(entry)

    assert status_of(cluster, namespace) == {}
    assert resubmitted(db) == 1


async def test_an_answered_action_is_not_done_again_in_a_new_database(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    await requests.handle_action(made(cluster, namespace, action="hold", chunks=["2"]))
    db.execute("DELETE FROM opendataflow.request")
    db.execute("SELECT opendataflow.release(%s, '{2}', 'test')", (f"{namespace}/j",))

    await requests.handle_action(parse_entry("DataFlowAction", cluster.get(f"{PATH.format(namespace)}/fix")))

    assert tasks(db)[f"{namespace}/j/2"] == "QUEUED"


async def test_an_action_waits_a_moment_for_its_job(
    store: Store, api: client.Api, cluster: Api, namespace: str, db: Connection
) -> None:
    import asyncio

    asked: asyncio.Queue[Key] = asyncio.Queue()
    requests = Requests(store, api, asked.put_nowait)
    entry = made(cluster, namespace, action="hold", job="late", chunks=["1"])

    await requests.handle_action(entry)

    assert await asyncio.wait_for(asked.get(), 240) == entry.key
    assert status_of(cluster, namespace) == {}
    own = partial(of_namespace, namespace)
    apply(db, [own(dataset("c"))], [own(job("late", ["a"], ["c"]))])
    await requests.handle_action(entry)
    assert status_of(cluster, namespace)["phase"] == "Done"


@pytest.mark.usefixtures("db")
async def test_an_action_whose_job_does_not_come_is_refused(
    store: Store, api: client.Api, cluster: Api, namespace: str
) -> None:
    later = datetime.now(UTC) + timedelta(seconds=TARGET_SECONDS + 1)
    requests = Requests(store, api, lambda _: None, lambda: later)

    await requests.handle_action(made(cluster, namespace, action="hold", job="never", chunks=["1"]))

    status = status_of(cluster, namespace)
    assert (status["phase"], status["reason"], status["message"]) == ("Refused", "Unknown", "there is no job never")


# The end of actions


async def test_a_finished_action_is_deleted_when_its_ttl_is_over(
    store: Store, api: client.Api, cluster: Api, namespace: str, db: Connection
) -> None:
    now = datetime.now(UTC)
    requests = Requests(store, api, lambda _: None, lambda: now)
    await requests.handle_action(made(cluster, namespace, "short", action="hold", chunks=["2"], ttl="2h"))
    await requests.handle_action(made(cluster, namespace, "long", action="hold", chunks=["2"]))
    made(cluster, namespace, "open", action="hold", chunks=["2"], ttl="1s")

    now += timedelta(hours=1, minutes=59)
    await requests.clean(await entries(api, namespace))
    assert [entry.key.name for entry in await entries(api, namespace)] == ["long", "open", "short"]

    now += timedelta(minutes=2)
    await requests.clean(await entries(api, namespace))
    assert [entry.key.name for entry in await entries(api, namespace)] == ["long", "open"]

    await requests.clean(await entries(api, namespace))
    assert value(db, "SELECT count(*) FROM opendataflow.request") == 1


@pytest.mark.usefixtures("db")
async def test_an_action_that_can_t_be_deleted_does_not_keep_the_others(
    store: Store, cluster: Api, namespace: str, proxy: faults.Proxy
) -> None:
    now = datetime.now(UTC)
    proxy.fail(faults.Fault("DELETE", "dataflowactions/first", answer=faults.refusal(403, "Forbidden")))
    async with client.Api(from_kubeconfig([proxy.kubeconfig])) as api:
        requests = Requests(store, api, lambda _: None, lambda: now)
        for name in ("first", "second"):
            await requests.handle_action(made(cluster, namespace, name, action="hold", chunks=["2"]))
        now += timedelta(days=8)

        await requests.clean(await entries(api, namespace))
        assert [entry.key.name for entry in await entries(api, namespace)] == ["first"]

        await requests.clean(await entries(api, namespace))
        assert await entries(api, namespace) == []


async def test_the_answer_of_an_action_that_is_gone_is_forgotten(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = made(cluster, namespace)
    await requests.handle_action(entry)
    assert value(db, "SELECT count(*) FROM opendataflow.request") == 1

    await requests.forget(entry)

    assert value(db, "SELECT count(*) FROM opendataflow.request") == 0


# spec.resubmit


def resubmitting(cluster: Api, namespace: str, **resubmit: Any) -> Entry:
    """Create the DataFlowJob of job j, which asks for chunks again."""
    spec = {
        "inputs": ["a"],
        "outputs": ["b"],
        "runtime": {"script": {"image": "busybox", "command": ["true"]}},
        "resubmit": resubmit,
    }
    body = {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "j"}, "spec": spec}
    path = PATH.format(namespace).replace("dataflowactions", "dataflowjobs")
    return parse_entry("DataFlowJob", cluster.create(path, body))


async def test_a_resubmit_of_a_job_is_done_once_and_remembered_for_its_status(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    entry = resubmitting(cluster, namespace, id="fix-42", chunks=["1"], cascade=True)
    await requests.handle_resubmit(entry)
    await requests.handle_resubmit(entry)

    assert resubmitted(db) == 1
    [answer] = db.execute("SELECT owner, id, answer FROM opendataflow.request").fetchall()
    assert (answer["owner"], answer["id"]) == (f"job {namespace}/j", "fix-42")
    assert (answer["answer"]["counts"]["done"], answer["answer"]["message"]) == (1, "resubmit: 1 done")
    query = "SELECT DISTINCT actor, reason FROM opendataflow.history WHERE event = 'resubmit'"
    assert db.execute(query).fetchall() == [{"actor": f"DataFlowJob {namespace}/j", "reason": "spec.resubmit fix-42"}]


async def test_a_resubmit_that_can_t_be_done_is_remembered_with_its_sentence(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    await requests.handle_resubmit(resubmitting(cluster, namespace, id="fix-42", failed=True))

    answer = value(db, "SELECT answer FROM opendataflow.request")
    assert answer["message"].startswith("no task of job j is FAILED: ")
    assert answer["counts"] == {"done": 0, "unchanged": 0, "refused": 0}


async def test_a_resubmit_may_name_a_range(requests: Requests, cluster: Api, namespace: str, db: Connection) -> None:
    await requests.handle_resubmit(resubmitting(cluster, namespace, id="fix-42", **{"from": "1", "to": "1"}))

    assert chunks(db)[f"{namespace}/b/1"] == "RESUBMIT"


# Characters that Postgres refuses, or that a terminal obeys


@pytest.mark.parametrize(
    "spec",
    [
        {"action": "hold", "chunks": ["2"], "reason": "a\x1b[2J"},
        {"action": "hold", "chunks": ["2"], "reason": "a\x00"},
        {"action": "hold", "chunks": ["2"], "reason": "a\u202eb"},
        {"action": "publish", "dataset": "b", "chunks": ["a\u2066"]},
        {"action": "hold", "job": "j\x00", "chunks": ["2"]},
        {"action": "hold", "range": {"from": "\x9b1"}},
    ],
)
def test_control_characters_in_the_fields_of_an_action_are_refused_by_the_api_server(
    cluster: Api, namespace: str, spec: Object
) -> None:
    with pytest.raises(Refused, match=r"control characters|should match"):
        cluster.create(PATH.format(namespace), action("fix", **spec))


async def test_an_action_with_control_characters_in_its_annotation_is_answered(
    requests: Requests, cluster: Api, namespace: str, db: Connection
) -> None:
    body = action("fix", {"opendataflow.io/requested-by": "ada\x00\x1b[2J\u202e\nbob"}, **HOLD)
    await requests.handle_action(parse_entry("DataFlowAction", cluster.create(PATH.format(namespace), body)))

    assert status_of(cluster, namespace)["phase"] == "Done"
    assert _actor(db) == rf"DataFlowAction {namespace}/fix for ada\x00\x1b[2J\u202e bob"
