"""Answers the kubelet and Prometheus: /healthz, /readyz and /metrics. It asks nobody: who works says that it does.

Alive: every loop that has ever turned has turned within a minute. While Postgres does not answer at all, a loop may
well wait for it, and a restart would help nobody. Ready: Postgres and the API server have answered lately, and nothing
is known that keeps it from working; a standby is ready, too, or an update that waits for it would never end.
"""

import time
from collections.abc import Callable, Sequence

from aiohttp import web

from opendataflow.control.monitoring.metrics import CONTENT_TYPE, Figures

LOOP_SECONDS = 60.0
"""How long a loop may take for one turn."""
ANSWER_SECONDS = 45.0
"""How old the last answer of Postgres or of the API server may be: both are asked more often than that."""


class Health:
    """When what was seen to work last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns: dict[str, float] = {}
        self._answers: dict[str, float | None] = {"Postgres": None, "the Kubernetes API": None}
        self._said: dict[str, tuple[str, bool]] = {}

    def turned(self, loop: str) -> None:
        """A loop has begun its next turn; from now on it has to go on."""
        self._turns[loop] = self._clock()

    def postgres_answered(self) -> None:
        """Postgres has answered just now."""
        self._answers["Postgres"] = self._clock()

    def api_answered(self) -> None:
        """The Kubernetes API has answered just now."""
        self._answers["the Kubernetes API"] = self._clock()

    def say(self, what: str, sentence: str | None, *, blocks: bool = True) -> None:
        """Something is wrong with `what`, None: no more. `blocks`: so that nothing at all can be done."""
        if sentence is None:
            self._said.pop(what, None)
        else:
            self._said[what] = (sentence, blocks)

    def why_not_alive(self) -> list[str]:
        """Sentences; none where this process is alive."""
        if not self._answered("Postgres"):
            return []
        now = self._clock()
        stuck = {loop: now - turned for loop, turned in self._turns.items() if now - turned > LOOP_SECONDS}
        return [f"{loop} has not turned for {seconds:.0f} s" for loop, seconds in sorted(stuck.items())]

    def why_not_ready(self) -> list[str]:
        """Sentences; none where this process can work, or could if it led."""
        silent = [who for who in self._answers if not self._answered(who) and who not in self._said]
        said = [sentence for sentence, blocks in self._said.values() if blocks]
        return [*said, *(f"{who} has not answered for {ANSWER_SECONDS:.0f} s" for who in silent)]

    def notes(self) -> list[str]:
        """What else is wrong, though the rest works."""
        return [sentence for sentence, blocks in self._said.values() if not blocks]

    def _answered(self, who: str) -> bool:
        at = self._answers[who]
        return at is not None and self._clock() - at <= ANSWER_SECONDS


class Probes:
    """The server for both. `port`: 0 takes a free one, and `port` tells which."""

    def __init__(self, health: Health, figures: Figures, port: int, host: str | None = None) -> None:
        self.port = port
        self._health = health
        self._figures = figures
        self._host = host
        app = web.Application()
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)

    async def __aenter__(self) -> "Probes":
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _alive(self, _: web.Request) -> web.Response:
        return _answer(self._health.why_not_alive())

    async def _ready(self, _: web.Request) -> web.Response:
        return _answer(self._health.why_not_ready(), self._health.notes())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._figures.exposition(), headers={"Content-Type": CONTENT_TYPE})


def _answer(problems: list[str], notes: Sequence[str] = ()) -> web.Response:
    text = "".join(f"{line}\n" for line in [*(problems or ["ok"]), *notes])
    return web.Response(text=text, status=503 if problems else 200)
