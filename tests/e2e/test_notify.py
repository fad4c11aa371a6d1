"""Notifications beside a working engine: what arrives, how often, and that nobody who does not listen disturbs work."""

import asyncio
import json
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opendataflow.core.text.alert import text
from opendataflow.engine.alerts import Alerts
from opendataflow.errors import NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.names import ExitCode
from opendataflow.notify.command import CommandTarget
from opendataflow.notify.mail import MailServer, MailTarget
from opendataflow.notify.webhook import WebhookTarget
from opendataflow.store.store import Store
from tests.e2e.conftest import DATAFLOW, Answer, Program
from tests.e2e.jobs import squares
from tests.e2e.test_engine import engine_over
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease
from tests.unit.servers import CLOSED_PORT, MailBox, silent_server
from tests.waiting import until

FILE = squares('{list: ["1", "2", "3"]}')


@dataclass
class Box:
    """A target that keeps what it gets; while it is `broken` it takes nothing."""

    name: str = "box of a test"
    address: str = "box"
    broken: bool = False
    tried: int = 0
    alerts: list[Alert] = field(default_factory=list)

    async def deliver(self, alert: Alert) -> None:
        self.tried += 1
        if self.broken:
            raise NotDelivered("it is broken")
        self.alerts.append(alert)

    @property
    def reported(self) -> list[str]:
        return [f"{a.job} {a.kind} {'failing' if a.failing else 'well'}" for a in self.alerts]


class Hanging(Box):
    async def deliver(self, alert: Alert) -> None:  # noqa: ARG002 # a protocol
        self.tried += 1
        await asyncio.sleep(3600)


class Beside:
    """Alerts that run beside a test."""

    def __init__(
        self, store: Store, *targets: Box | CommandTarget | WebhookTarget | MailTarget, pause: float = 0
    ) -> None:
        self.notes: list[str] = []
        self.alerts = Alerts(store, targets, self.notes.append, poll_seconds=0.05, pause_seconds=pause)

    async def __aenter__(self) -> "Beside":
        self._future = asyncio.create_task(self.alerts.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._future.cancel()
        with suppress(asyncio.CancelledError):
            await self._future


@pytest.fixture
async def store(dsn: str) -> Store:
    return await Store.open(lambda: dsn, size=6)


def failing(db: Connection, job_id: str = "j") -> None:
    """A job with a chunk whose retries are used up."""
    apply(
        db, [dataset(f"{job_id}-in", "1"), dataset(f"{job_id}-out")], [job(job_id, [f"{job_id}-in"], [f"{job_id}-out"])]
    )
    [run] = claim(db, open_lease(db), job_id)
    end(db, run, "FAILED", message="exit code 3: oops")


async def test_a_beginning_and_an_end_are_one_message_each(store: Store, db: Connection) -> None:
    box = Box()
    async with Beside(store, box):
        failing(db)
        await until(lambda: bool(box.alerts))
        ask(db, "resubmit", "j", "1")
        await until(lambda: len(box.alerts) > 1)
        await asyncio.sleep(0.3)
    await store.close()
    assert box.reported == ["j failed failing", "j failed well"]
    assert "exit code 3: oops" in text(box.alerts[0])


async def test_two_engines_with_the_same_targets_report_it_once_and_a_restart_reports_nothing_again(
    store: Store, db: Connection
) -> None:
    boxes = [Box(), Box(), Box()]
    for number in range(20):
        failing(db, f"job-{number}")
    async with Beside(store, boxes[0]), Beside(store, boxes[1]):
        await until(lambda: len(boxes[0].alerts) + len(boxes[1].alerts) >= 20)
        await asyncio.sleep(0.3)
    async with Beside(store, boxes[2]):
        await asyncio.sleep(0.3)
    await store.close()
    assert sorted(boxes[0].reported + boxes[1].reported) == sorted(f"job-{n} failed failing" for n in range(20))
    assert boxes[2].reported == []


async def test_a_broken_target_is_one_line_and_gets_what_is_still_true_when_it_works_again(
    store: Store, db: Connection
) -> None:
    box, other = Box(broken=True), Box("other box of a test", "other")
    for name in ("j", "k"):
        failing(db, name)
    async with Beside(store, box, other) as beside:
        await until(lambda: box.tried >= 3)
        ask(db, "resubmit", "k", "1")
        box.broken = False
        await until(lambda: bool(box.alerts))
    await store.close()
    assert box.reported == ["j failed failing"]
    assert other.reported[:2] == ["j failed failing", "k failed failing"]
    assert beside.notes == [
        "box of a test: a notification could not be sent: it is broken. It is tried again, with growing pauses",
        "box of a test: notifications are sent again",
    ]


async def test_a_target_that_hangs_holds_up_neither_the_others_nor_the_work(
    dsn: str, store: Store, db: Connection, tmp_path: Path
) -> None:
    failing(db)
    hanging, box = Hanging("hanging box", "hanging"), Box()
    async with (
        engine_over(dsn, tmp_path, "true", chunks=20, parallelism=4) as (engine, _, _),
        Beside(store, hanging, box),
    ):
        await until(lambda: hanging.tried == 1)
        [progress] = await engine.run()
        await until(lambda: bool(box.alerts))
    await store.close()
    assert progress.counts == {"DONE": 20}
    assert hanging.tried == 1


async def test_servers_that_are_not_there_or_never_answer_do_not_hold_up_those_that_do(
    store: Store, db: Connection, tmp_path: Path
) -> None:
    failing(db)
    with silent_server() as silent, MailBox() as box:
        targets = (
            WebhookTarget(f"http://127.0.0.1:{silent}/s3cret", 1),
            WebhookTarget(f"http://127.0.0.1:{CLOSED_PORT}/s3cret"),
            CommandTarget(("sh", "-c", "sleep 100"), os.environ, 1),
            CommandTarget(("sh", "-c", f"cat > {tmp_path}/message"), os.environ, 240),
            MailTarget(MailServer("127.0.0.1", box.port, False), "a@example.org", ("b@example.org",), 240),
        )
        async with Beside(store, *targets) as beside:
            await until(lambda: len(beside.notes) == 3 and bool(box.received) and (tmp_path / "message").exists())
            await asyncio.sleep(0.1)
    await store.close()
    assert len(box.received) == 1
    assert len(beside.notes) == 3
    assert "s3cret" not in "".join(beside.notes)


async def test_a_target_with_a_bug_is_a_broken_target(store: Store, db: Connection) -> None:
    class Buggy(Box):
        async def deliver(self, alert: Alert) -> None:  # noqa: ARG002 # a protocol
            raise KeyError("s3cret")

    failing(db)
    box = Box()
    async with Beside(store, Buggy("buggy box", "buggy"), box) as beside:
        await until(lambda: bool(box.alerts) and bool(beside.notes))
    await store.close()
    assert beside.notes == [
        "buggy box: a notification could not be sent: KeyError. It is tried again, with growing pauses"
    ]


async def test_the_address_of_a_target_is_not_kept_in_postgres(store: Store, db: Connection) -> None:
    failing(db)
    box = Box(address="https://hooks.example.org/s3cret")
    async with Beside(store, box):
        await until(lambda: bool(box.alerts))
    await store.close()
    kept = json.dumps(db.execute("SELECT * FROM opendataflow.alert").fetchall(), default=str)
    assert "s3cret" not in kept
    assert "hooks" not in kept


# The program ---------------------------------------------------------------------------------------------


def run(program: Program, *arguments: str, **environ: str) -> Answer:
    """Run a command with some more variables."""
    environment = {**program.environ, **environ}
    done = subprocess.run(
        [DATAFLOW, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Where the command of the tests writes its messages, a line each."""
    return tmp_path / "messages"


@pytest.fixture
def command(messages: Path) -> str:
    return f"sh -c 'cat >> {messages}; echo >> {messages}'"


def events(messages: Path) -> list[str]:
    if not messages.exists():
        return []
    return [f"{m['job']} {m['kind']} {m['event']}" for m in map(json.loads, messages.read_text().splitlines())]


def test_the_runner_reports_what_has_failed_also_at_its_end_and_over_restarts_only_once(
    dataflow: Program, db: Connection, tmp_path: Path, messages: Path, command: str
) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    (tmp_path / "work.sh").write_text("exit 3")
    local = ("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    for _ in range(2):
        assert run(dataflow, *local, DATAFLOW_NOTIFY_COMMAND=command).code == ExitCode.UNFINISHED
        assert events(messages) == ["square failed failing"]
    (tmp_path / "work.sh").write_text("env > environment")
    db.execute("UPDATE opendataflow.alert SET reported_at = reported_at - interval '1 hour'")
    dataflow.run("resubmit", "square", "--failed")
    assert run(dataflow, *local, DATAFLOW_NOTIFY_COMMAND=command).code == ExitCode.OK
    assert events(messages) == ["square failed failing", "square failed well"]
    assert "DATAFLOW_NOTIFY" not in (tmp_path / "environment").read_text()


def test_a_mistake_in_the_environment_is_reported_before_anything_starts(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    answer = run(dataflow, "local", "-f", str(tmp_path / "job.yaml"), DATAFLOW_NOTIFY_WEBHOOK="hooks.org/s3cret")
    assert answer.code == ExitCode.USAGE
    assert re.fullmatch("error: DATAFLOW_NOTIFY_WEBHOOK is no .*: one looks like https://host/path\n", answer.err)
    assert "s3cret" not in answer.err
    assert db.execute("SELECT * FROM opendataflow.job").fetchall() == []


def test_notify_test_says_for_each_target_whether_it_works(dataflow: Program, messages: Path, command: str) -> None:
    with MailBox() as box:
        smtp = f"smtp://127.0.0.1:{box.port}/?from=a@example.org&to=b@example.org"
        good = {"DATAFLOW_NOTIFY_COMMAND": command, "DATAFLOW_NOTIFY_SMTP": smtp}
        assert run(dataflow, "notify", "test", **good) == Answer(
            0, f"command sh: sent\nmail to b@example.org by 127.0.0.1:{box.port}: sent\n", ""
        )
        assert events(messages) == ["test test well"]
        answer = run(
            dataflow, "notify", "test", **good, DATAFLOW_NOTIFY_WEBHOOK=f"http://127.0.0.1:{CLOSED_PORT}/s3cret"
        )
    assert answer.code == ExitCode.FAILED
    assert f"webhook http://127.0.0.1:{CLOSED_PORT}/…: failed: it can't be reached" in answer.out
    assert answer.out.count(": sent") == 2
    assert "s3cret" not in answer.out + answer.err


def test_notify_test_without_any_target_says_which_variables_there_are(dataflow: Program) -> None:
    answer = run(dataflow, "notify", "test")
    assert answer.code == ExitCode.USAGE
    assert answer.err.startswith(
        "error: failures are reported to nobody: set DATAFLOW_NOTIFY_COMMAND, DATAFLOW_NOTIFY_WEBHOOK"
    )
