"""Serves /healthz, /readyz and /metrics. It never checks anything itself: the loops report their heartbeats.

Alive: every loop that has started has sent a heartbeat within a minute. While Postgres does not answer, a loop may wait
for it, and a restart would not help. Ready: Postgres and the API server have answered recently, and no reported problem
blocks the operator. A standby is ready, too: a rolling update waits for that. Both probes name a server that does not
answer: an operator needs both.
"""

import time
from collections.abc import Callable, Sequence

from aiohttp import web

from opendataflow.control.monitoring.metrics import CONTENT_TYPE, Metrics

LOOP_SECONDS = 60.0
"""How long one iteration of a loop may take."""
ANSWER_SECONDS = 45.0
"""The maximum age of the last answer of Postgres or the API server. Both are asked more often."""


class Health:
    """The last heartbeats and answers, and the reported problems."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heartbeats: dict[str, float] = {}
        self._answers: dict[str, float | None] = {"Postgres": None, "the Kubernetes API": None}
        self.missed_checks = 0
        """How many checks in a row the API server has not answered."""
        self._reported: dict[str, tuple[str, bool]] = {}

    def heartbeat(self, loop: str) -> None:
        """Record that a loop starts its next iteration. From now on it has to send heartbeats."""
        self._heartbeats[loop] = self._clock()

    def postgres_answered(self) -> None:
        """Record an answer of Postgres."""
        self._answers["Postgres"] = self._clock()

    def api_answered(self) -> None:
        """Record an answer of the Kubernetes API."""
        self._answers["the Kubernetes API"] = self._clock()
        self.missed_checks = 0

    def api_checked(self, begun: float) -> None:
        """Record the end of a check that began at `begun`. It is missed if no answer has arrived since then."""
        at = self._answers["the Kubernetes API"]
        if at is None or at < begun:
            self.missed_checks += 1

    def report(self, what: str, sentence: str | None, *, blocks: bool = True) -> None:
        """Report a problem with `what`; None: it is solved. `blocks`: the operator can't work at all."""
        if sentence is None:
            self._reported.pop(what, None)
        else:
            self._reported[what] = (sentence, blocks)

    def why_not_alive(self) -> list[str]:
        """Return the sentences for /healthz; an empty list if this process is alive."""
        if not self._answered("Postgres"):
            return []
        now = self._clock()
        stuck = {loop: now - last for loop, last in self._heartbeats.items() if now - last > LOOP_SECONDS}
        return [f"loop {loop} has not made progress for {seconds:.0f} s" for loop, seconds in sorted(stuck.items())]

    def why_not_ready(self) -> list[str]:
        """Return the sentences for /readyz; an empty list if this process can work, or could as the leader."""
        reported = [sentence for sentence, blocks in self._reported.values() if blocks]
        return [*reported, *(sentence for server, sentence in self._silent() if server not in self._reported)]

    def silent_servers(self) -> list[str]:
        """Return a sentence about each server that does not answer. An operator needs both."""
        return [sentence for _, sentence in self._silent()]

    def warnings(self) -> list[str]:
        """Return the sentences about problems that do not block the operator."""
        return [sentence for sentence, blocks in self._reported.values() if not blocks]

    def _silent(self) -> list[tuple[str, str]]:
        return [
            (server, f"{server} has not answered {'yet' if at is None else f'for {ANSWER_SECONDS:.0f} s'}")
            for server, at in self._answers.items()
            if not self._answered(server)
        ]

    def _answered(self, server: str) -> bool:
        at = self._answers[server]
        return at is not None and self._clock() - at <= ANSWER_SECONDS


class Probes:
    """The HTTP server for probes and metrics. `port`: 0 chooses a free one; the attribute `port` is the chosen one."""

    def __init__(self, health: Health, metrics: Metrics, port: int, host: str | None = None) -> None:
        self.port = port
        self._health = health
        self._metrics = metrics
        self._host = host
        app = web.Application()
        app.router.add_get("/healthz", self._serve_alive)
        app.router.add_get("/readyz", self._serve_ready)
        app.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)

    async def __aenter__(self) -> "Probes":
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve_alive(self, _: web.Request) -> web.Response:
        return _answer(self._health.why_not_alive(), self._health.silent_servers())

    async def _serve_ready(self, _: web.Request) -> web.Response:
        return _answer(self._health.why_not_ready(), self._health.warnings())

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})


def _answer(problems: list[str], notes: Sequence[str] = ()) -> web.Response:
    text = "".join(f"{line}\n" for line in [*(problems or ["ok"]), *notes])
    return web.Response(text=text, status=503 if problems else 200)
