"""A running dashboard over a database with a story in it, and requests to it as a browser sends them."""

import http.client
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tests.e2e.conftest import Program
from tests.sql import graph
from tests.sql.conftest import Connection

MONTHS = [f"2013-{month:02}" for month in range(1, 13)]
HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}\x1b[31m"
"""What a data id, a reason or a line of a log may contain."""


@dataclass(frozen=True)
class Answer:
    """An answer of the dashboard."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class Dashboard:
    """A dashboard that runs. `url`: with its token."""

    url: str
    process: subprocess.Popen[str]

    @property
    def root(self) -> str:
        """The address without the token."""
        return self.url.partition("/?")[0]

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def ask(self, path: str, method: str = "GET", form: Mapping[str, str] | None = None, **headers: str) -> Answer:
        """Send one request without following redirects. `form`: the fields of its body."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None if form is None else urlencode(form).encode()
        request = urllib.request.Request(self.root + path, body, method=method, headers=names)
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=60) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())

    def cookie(self) -> str:
        """Exchange the token for the cookie."""
        found = self.ask(f"/?{self.url.partition('?')[2]}").headers["Set-Cookie"]
        return found.partition(";")[0]

    def end(self) -> None:
        """End it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        if self.process.stdout and not self.process.stdout.closed:
            self.process.communicate(timeout=60)

    def page(self, path: str) -> str:
        """Return a page as a browser with the cookie reads it."""
        answer = self.ask(path, Cookie=self.cookie())
        assert answer.status == http.client.OK, answer.text
        return answer.text


@contextmanager
def dashboard(dsn: str, home: Path, *options: str) -> Iterator[Dashboard]:
    """Start `dataflow ui` on a free port, and end it as Ctrl-C does."""
    process = Program(home, dsn).start("ui", "--port", "0", *options)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line + process.stdout.read()
    try:
        yield Dashboard(found[0], process)
    finally:
        Dashboard(found[0], process).end()


def paths() -> dict[str, str]:
    """Every page of the story, by its name."""
    return {
        "overview": "/",
        "job": "/job?id=delay",
        "chunk": "/chunk?job=delay&id=2013-07",
        "run": "/run?id=7",
        "dataset": "/dataset?id=delays",
        "graph": "/graph",
        "pipelines": "/pipelines",
        "search": "/search?text=2013-0",
        "action": "/act?owner=delay&verb=resubmit&state=FAILED",
    }


def write_story(db: Connection, *, hostile: bool = True, big: int = 0) -> None:
    """Two jobs over a year, one after the other: done, stale, running, failed, held and waiting.

    `hostile`: also a job whose texts are markup. `big`: also a job with so many chunks, in all states.
    """
    lease = graph.open_lease(db)
    graph.apply(
        db,
        [graph.source("flights", *MONTHS), graph.dataset("delays"), graph.dataset("report")],
        [graph.job("delay", ["flights"], ["delays"], retry_limit=0), graph.job("summary", ["delays"], ["report"])],
    )
    graph.ask(db, "publish", "flights", *MONTHS[:11])
    runs = graph.claim(db, lease, "delay", 9)
    for run in runs[:6]:
        graph.end(db, run, "DONE", log_tail=f"reading {run['data_id']}\nwrote 27004 rows\n", metrics={"rows": 27004})
    reason = "row 17 of 2013-07 has no carrier"
    graph.end(db, runs[6], "FAILED", message=reason, log_tail=f"reading 2013-07\nValueError: {reason}\n")
    graph.end(db, runs[7], "RETRYING", delay=3600, message="the share does not answer")
    for run in graph.claim(db, lease, "summary", 4)[:3]:
        graph.end(db, run, "DONE")
    graph.ask(db, "publish", "flights", MONTHS[0])
    graph.ask(db, "hold", "delay", MONTHS[10])
    _write_pipeline(db, lease)
    if hostile:
        _write_hostile(db, lease)
    if big:
        _write_big(db, lease, big)


def _write_pipeline(db: Connection, lease: str) -> None:
    job = graph.job("carriers", ["report"], ["carriers"], retry_limit=0, pipeline="carriers", tests="subject")
    graph.apply(db, [graph.dataset("carriers")], [job])
    [first, second, _] = graph.claim(db, lease, "carriers", 3)
    steps = [
        {"ordinal": 1, "name": "read report", "status": "DONE", "rows": 27004, "seconds": 1.4},
        {
            "ordinal": 2,
            "name": "drop_cancelled",
            "status": "DONE",
            "rows": 26483,
            "seconds": 0.2,
            "stdout": "521 dropped\n",
        },
        {"ordinal": 3, "name": "mean_by_carrier", "status": "DONE", "rows": 16, "seconds": 2.1},
        {"ordinal": 4, "name": "write carriers", "status": "DONE", "rows": 16, "seconds": 0.6},
    ]
    graph.end(db, first, "DONE", steps=steps, metrics={"rows": 16, "commit": "4f0c9d1e77aa31c0b5d2"})
    error = 'KeyError: no column carrier\n  File "steps.py", line 12, in mean_by_carrier'
    failed = [*steps[:2], {"ordinal": 3, "name": "mean_by_carrier", "status": "FAILED", "error": error}]
    failed.append({"ordinal": 4, "name": "write carriers", "status": "SKIPPED"})
    graph.end(db, second, "FAILED", message="step mean_by_carrier: no column carrier", steps=failed)


def _write_hostile(db: Connection, lease: str) -> None:
    data_id = HOSTILE.replace("\x1b", "")
    graph.apply(db, [graph.source("odd", data_id)], [graph.job("hostile", ["odd"], [], retry_limit=0)])
    graph.ask(db, "publish", "odd", data_id)
    [run] = graph.claim(db, lease, "hostile", 1)
    graph.end(db, run, "FAILED", message=HOSTILE, log_tail=f"{HOSTILE}\n</pre><script>alert(2)</script>\n")


def _write_big(db: Connection, lease: str, size: int) -> None:
    ids = [f"shard-{number:06}" for number in range(size)]
    graph.apply(
        db, [graph.source("shards", *ids)], [graph.job("import", ["shards"], [], retry_limit=0, parallelism=500)]
    )
    graph.ask(db, "publish", "shards", *ids[: size * 4 // 5])
    for number, run in enumerate(graph.claim(db, lease, "import", min(500, size // 2))):
        if number % 97 == 13:
            graph.end(db, run, "FAILED", message=f"{run['data_id']} has no header")
        elif number < 450:
            graph.end(db, run, "DONE")
    states = "UPDATE opendataflow.task SET state = 'DONE' WHERE job = 'import' AND state = 'QUEUED' AND data_id < %s"
    graph.raw(db, states, ids[size * 3 // 5])
    graph.ask(db, "hold", "import", *ids[size * 7 // 10 : size * 72 // 100])
    graph.ask(db, "skip", "import", *ids[size * 72 // 100 : size * 73 // 100])
