"""What the kubelet and Prometheus are answered."""

import asyncio

import aiohttp

from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.control.monitoring.probes import Health, Probes


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def health() -> tuple[Health, Clock]:
    """Something healthy whose loop has turned just now."""
    clock = Clock()
    made = Health(clock)
    made.heartbeat("claims")
    made.postgres_answered()
    made.api_answered()
    return made, clock


def test_a_loop_that_has_not_turned_for_a_minute_is_not_alive() -> None:
    made, clock = health()
    clock.now += 59
    made.postgres_answered()
    assert made.why_not_alive() == []
    clock.now += 2
    assert made.why_not_alive() == ["loop claims has not made progress for 61 s"]


def test_a_loop_may_wait_for_a_database_that_does_not_answer() -> None:
    made, clock = health()
    clock.now += 300
    assert made.why_not_alive() == []
    assert made.why_not_ready() == [
        "Postgres has not answered for 45 s",
        "the Kubernetes API has not answered for 45 s",
    ]


def test_nothing_is_ready_before_both_have_answered() -> None:
    made = Health()
    assert len(made.why_not_ready()) == 2
    made.postgres_answered()
    assert made.why_not_ready() == ["the Kubernetes API has not answered yet"]
    made.api_answered()
    assert made.why_not_ready() == []


def test_what_keeps_it_from_working_is_reported_in_place_of_a_silence_and_until_it_is_over() -> None:
    made = Health()
    made.api_answered()
    made.report("Postgres", "Postgres at h refuses the connection: no such user")
    assert made.why_not_ready() == ["Postgres at h refuses the connection: no such user"]
    made.postgres_answered()
    made.report("Postgres", None)
    assert made.why_not_ready() == []


def test_what_only_a_part_of_it_lacks_is_a_note() -> None:
    made, _ = health()
    made.report("rights b", "it may not create pods in b", blocks=False)
    assert made.why_not_ready() == []
    assert made.warnings() == ["it may not create pods in b"]


def test_a_check_is_missed_if_nothing_was_answered_since_it_began() -> None:
    made, clock = health()
    begun = clock.now
    made.api_checked(begun)
    assert made.missed_checks == 0
    clock.now += 15
    for number in (1, 2, 3):
        made.api_checked(clock.now)
        assert made.missed_checks == number
    made.api_answered()
    assert made.missed_checks == 0


async def test_a_silent_server_is_named_beside_the_answer_that_the_process_is_alive() -> None:
    made, clock = health()
    clock.now += 46
    made.heartbeat("claims")
    made.api_answered()
    async with (
        Probes(made, Metrics("1"), port=0, host="127.0.0.1") as probes,
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{probes.port}/healthz") as response,
    ):
        assert (response.status, await response.text()) == (200, "ok\nPostgres has not answered for 45 s\n")


async def test_answers_over_http() -> None:
    made, clock = health()
    async with Probes(made, Metrics("1"), port=0, host="127.0.0.1") as probes, aiohttp.ClientSession() as client:

        async def get(path: str) -> tuple[int, str]:
            async with client.get(f"http://127.0.0.1:{probes.port}{path}") as response:
                return response.status, await response.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (200, "ok\n")
        made.report("rights b", "it may not create pods in b", blocks=False)
        assert await get("/readyz") == (200, "ok\nit may not create pods in b\n")
        status, text = await get("/metrics")
        assert (status, "opendataflow_leader 0.0" in text) == (200, True)
        clock.now += 61
        made.postgres_answered()
        made.api_answered()
        assert await get("/healthz") == (503, "loop claims has not made progress for 61 s\n")
        clock.now += 46
        assert (await get("/readyz"))[0] == 503
    await asyncio.sleep(0)
