"""The engine over a real Postgres and real processes, while the connection between them misbehaves.

Seen at others: one limit that two schedulers do not share, a batch that must end before new slots are filled, a
controller that does not know what became of its request.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from opendataflow.cli.jobs.job_files import apply_files, read_files
from opendataflow.engine import limits
from opendataflow.engine.claim_authority import LocalClaimAuthority
from opendataflow.engine.engine import Engine
from opendataflow.engine.orders import FileOrders
from opendataflow.errors import NoAccess
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob, Progress
from opendataflow.model.records.run import RunOrder
from opendataflow.names import RunState, TaskState
from opendataflow.store.store import Store
from tests.seen import Seen
from tests.waiting import until

JOB = """
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: a}}
spec:
  chunkSource: {{range: {{from: 0, to: {chunks}, step: 1}}}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: b}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {{name: job}}
spec:
  inputs: [a]
  outputs: [b]
  parallelism: {parallelism}
  retry: {{limit: 0, infrastructureLimit: 100, backoff: {{initial: 0s}}}}
  runtime:
    script:
      command: [sh, -c, {script}]
"""


READY = b"Z\0\0\0\5"
"""The end of what Postgres answers to a request."""


class Wire:
    """A TCP relay to Postgres that can be cut, or made to lose the answer to one request."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._down = False
        self._lost: bytes | None = None
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        self.cut()
        server.close()

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._down = True
        for writer in list(self._writers):
            writer.transport.abort()

    def restore(self) -> None:
        """Be a good wire again."""
        self._down = False

    def lose_answer_to(self, request: str) -> None:
        """Let the next request with this text through, lose its answer once it is there, and be down for a moment."""
        self._lost = request.encode()

    def _be_down(self) -> None:
        self.cut()
        asyncio.get_running_loop().call_later(0.4, self.restore)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            writer.transport.abort()
            return
        back_reader, back_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back_writer}
        mute = asyncio.Event()
        await asyncio.gather(
            self._relay(reader, back_writer, mute, False), self._relay(back_reader, writer, mute, True)
        )
        self._writers -= {writer, back_writer}

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mute: asyncio.Event, answers: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not answers and self._lost is not None and self._lost in data:
                    self._lost = None
                    mute.set()
                if not (answers and mute.is_set()):
                    writer.write(data)
                    await writer.drain()
                elif READY in data:  # all of it is done
                    self._be_down()
        except (ConnectionError, OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


@pytest.fixture
async def wire(dsn: str) -> AsyncIterator[Wire]:
    parts = conninfo_to_dict(dsn)
    async with Wire(str(parts["host"]), int(str(parts["port"]))).open() as opened:
        yield opened


@asynccontextmanager
async def engine_over(
    dsn: str, home: Path, script: str, *, chunks: int, parallelism: int, slots: int = 100
) -> AsyncIterator[tuple[Engine[RunOrder], Seen, Store]]:
    """An engine for one script job, which ends when it has caught up."""
    file = home / "job.yaml"
    file.write_text(JOB.format(chunks=chunks, parallelism=parallelism, script=f"'{script}'"))
    declared = read_files([file])
    store = await Store.open(lambda: dsn, size=6)
    try:
        await apply_files(store, declared, "test")
        seen = Seen()
        orders = {"job": FileOrders(declared.jobs[0], home, "python3", home / "clones")}
        launcher = ProcessLauncher(home / "runs")
        authority = LocalClaimAuthority(store, launcher, seen.note)
        yield Engine(store, launcher, authority, orders, seen, parallelism=slots, until_caught_up=True), seen, store
    finally:
        await store.close()


def _done(progress: list[Progress]) -> int:
    return progress[0].of(TaskState.DONE)


async def test_slots_are_refilled_one_by_one(dsn: str, tmp_path: Path) -> None:
    script = "if [ $dataid = 0-0 ]; then while [ ! -e stop ]; do sleep 0.02; done; fi"
    async with engine_over(dsn, tmp_path, script, chunks=10, parallelism=2) as (engine, seen, _):
        running = asyncio.create_task(engine.run())
        await until(lambda: len(seen.ends) == 9)  # all others end while the first one runs
        (tmp_path / "stop").touch()
        assert _done(await running) == 10


async def test_a_fault_in_making_one_run_fails_that_run_and_no_other(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = FileOrders.__call__

    def faulty(orders: FileOrders, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:
        if run.data_id == "1-1":
            raise KeyError("unforeseen")
        return make(orders, run, declared)

    monkeypatch.setattr(FileOrders, "__call__", faulty)
    async with engine_over(dsn, tmp_path, "true", chunks=3, parallelism=1) as (engine, _, store):
        progress = await engine.run()
        assert (_done(progress), progress[0].of(TaskState.FAILED)) == (2, 1)
        (failed,) = [run for run in await store.list_runs("job", None, 10) if run["state"] == RunState.FAILED]
    assert failed["message"] == "exit code 126: a fault of this program: KeyError; see its log"


async def test_two_engines_together_keep_the_cap_of_the_job(dsn: str, tmp_path: Path) -> None:
    script = 'mkdir "slot-$dataid" && ls -d slot-* | wc -l >> ../counts; sleep 0.05; rmdir "slot-$dataid"'
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; {script}"
    homes = [tmp_path / "one", tmp_path / "two"]
    shared = tmp_path / "shared"
    for folder in (*homes, shared):
        folder.mkdir()
    script = f"cd {shared} && {script}"
    async with (
        engine_over(dsn, homes[0], script, chunks=60, parallelism=3, slots=2) as (first, seen_first, store),
        engine_over(dsn, homes[1], script, chunks=60, parallelism=3, slots=2) as (second, seen_second, _),
    ):
        running = asyncio.gather(first.run(), second.run())
        await until(lambda: bool(seen_first.claims and seen_second.claims))  # neither can take all three slots
        (tmp_path / "go").touch()
        progress, _ = await running
        assert await store.verify() == []
    assert _done(progress) == 60
    assert len(seen_first.claims) + len(seen_second.claims) == 60
    assert max(int(line) for line in (tmp_path / "counts").read_text().split()) <= 3


async def test_a_run_is_cancelled_on_request_and_its_task_is_not_tried_again(dsn: str, tmp_path: Path) -> None:
    script = "touch started-$dataid; if [ $dataid = 0-0 ]; then sleep 300; fi"
    async with engine_over(dsn, tmp_path, script, chunks=3, parallelism=3) as (engine, seen, store):
        running = asyncio.create_task(engine.run())
        await until(lambda: (tmp_path / "started-0-0").exists() and len(seen.ends) == 2)
        await store.call_verb("cancel", "job", ["0-0"], "ada", None)
        progress = await running
        assert (_done(progress), progress[0].of(TaskState.FAILED)) == (2, 1)
        assert [end.run_state for end in seen.ends] == [RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.CANCELLED]
        assert await store.verify() == []


async def test_a_change_that_the_engine_is_notified_of_counts_at_once(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_SECONDS", 3600)
    script = "while [ ! -e stop ]; do sleep 0.02; done"
    async with engine_over(dsn, tmp_path, script, chunks=3, parallelism=1) as (engine, seen, store):
        running = asyncio.create_task(engine.run())
        await until(lambda: len(seen.claims) == 1)
        await store.scale("job", 3, "ada", None)
        engine.refresh_jobs()
        async with asyncio.timeout(300):
            await until(lambda: len(seen.claims) == 3)
        (tmp_path / "stop").touch()
        assert _done(await running) == 3


async def test_runs_go_on_while_postgres_is_unreachable_and_their_outcomes_are_not_lost(
    dsn: str, tmp_path: Path, wire: Wire
) -> None:
    through = make_conninfo(dsn, port=wire.port)
    script = "while [ ! -e away ]; do sleep 0.02; done; touch done-$dataid"
    async with engine_over(through, tmp_path, script, chunks=6, parallelism=3) as made:
        engine, seen, store = made
        running = asyncio.create_task(engine.run())
        await until(lambda: len(seen.claims) >= 3)
        wire.cut()
        (tmp_path / "away").touch()
        await until(lambda: len(list(tmp_path.glob("done-*"))) >= 3)
        await until(lambda: any("does not answer" in note for note in seen.notes))
        await asyncio.sleep(0.3)
        assert len(seen.claims) == 3, "something new started without Postgres"
        wire.restore()
        assert _done(await running) == 6
        assert await store.verify() == []
    assert len(seen.claims) == 6, "a run was repeated"
    assert seen.notes[-1] == "Postgres answers again"


async def test_a_claim_whose_answer_is_lost_is_started_by_its_engine(dsn: str, tmp_path: Path, wire: Wire) -> None:
    through = make_conninfo(dsn, port=wire.port)
    async with engine_over(through, tmp_path, "true", chunks=4, parallelism=4) as (engine, seen, _):
        wire.lose_answer_to("opendataflow.claim(")
        assert _done(await engine.run()) == 4
    with psycopg.connect(dsn) as connection:
        runs = connection.execute("SELECT state, count(*) FROM opendataflow.run GROUP BY 1").fetchall()
    assert any("does not answer" in note for note in seen.notes)
    assert runs == [("SUCCEEDED", 4)], "the runs of the lost answer were not started, or others were in their place"


async def test_an_outcome_whose_answer_is_lost_is_committed_once(dsn: str, tmp_path: Path, wire: Wire) -> None:
    through = make_conninfo(dsn, port=wire.port)
    async with engine_over(through, tmp_path, "true", chunks=4, parallelism=4) as (engine, seen, store):
        wire.lose_answer_to("opendataflow.complete(")
        assert _done(await engine.run()) == 4
        assert await store.verify() == []
    assert any(end.already for end in seen.ends), "the outcome was not committed before its answer was lost"
    assert {end.task_state for end in seen.ends} == {TaskState.DONE}


@dataclass(frozen=True)
class Role:
    """A user of its own for an engine: its address, and what lets it in or keeps it out."""

    admin: psycopg.Connection
    name: str
    address: str

    def set_password(self, password: str) -> None:
        """Whoever connects from now on needs it."""
        self.admin.execute(SQL("ALTER ROLE {} PASSWORD {}").format(Identifier(self.name), password))

    def end_sessions(self) -> None:
        """A connection that was about to be made when the password changed is there a moment later: end it again."""
        self.admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (self.name,))

    async def stay_out(self, enough: Callable[[], bool]) -> None:
        """Be kept out until something is so."""
        self.set_password("other")

        def there() -> bool:
            self.end_sessions()
            return enough()

        await until(there)


@contextmanager
def role_of(dsn: str) -> Iterator[Role]:
    """A role for one test."""
    name = f"engine_of_{os.getpid()}"
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD 'right'").format(Identifier(name)))
        role = Role(admin, name, make_conninfo(dsn, user=name, password="right"))
        try:
            yield role
        finally:
            role.end_sessions()
            admin.execute(SQL("DROP ROLE {}").format(Identifier(name)))


async def test_runs_go_on_while_the_password_is_wrong_and_their_outcomes_wait_for_the_right_one(
    dsn: str, tmp_path: Path
) -> None:
    with role_of(dsn) as role:
        script = "while [ ! -e out ]; do sleep 0.02; done; touch done-$dataid"
        async with engine_over(role.address, tmp_path, script, chunks=2, parallelism=2) as made:
            engine, seen, _ = made
            running = asyncio.create_task(engine.run())
            await until(lambda: len(seen.claims) == 2)
            await role.stay_out(lambda: any("refuses the connection" in note for note in seen.notes))
            (tmp_path / "out").touch()
            await until(lambda: len(list(tmp_path.glob("done-*"))) == 2)
            role.set_password("right")
            assert _done(await running) == 2
    assert len(seen.claims) == 2, "a run was repeated"
    (refused,) = [note for note in seen.notes if "refuses" in note]
    assert re.match(r"Postgres at \S+ refuses the connection: password authentication failed for user", refused)


async def test_an_engine_that_is_kept_out_ends_after_a_while_with_the_message_of_postgres(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSED_SECONDS", 1.0)
    with role_of(dsn) as role:
        async with engine_over(role.address, tmp_path, "sleep 600", chunks=2, parallelism=2) as (engine, seen, _):
            running = asyncio.create_task(engine.run())
            await until(lambda: len(seen.claims) == 2)
            await role.stay_out(running.done)
            with pytest.raises(NoAccess, match="password authentication failed"):
                await running
