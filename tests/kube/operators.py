"""Operators as processes of their own, which a test may kill, pause and start again.

They are forked from a process that has imported everything, so that a start costs little.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

TOMBSTONE_SECONDS = 15.0
"""How long a deleted pod keeps its name: tests would wait for the whole minute."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["opendataflow.control.main", "opendataflow.control.operator", "tests.kube.points"])


def _main(environ: Mapping[str, str], log: str, die: tuple[str, str, int] | None, often: bool, hasty: bool) -> None:
    with open(log, "a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.update(environ)
    sys.argv = ["opendataflow", "operator"]
    from opendataflow.control import operator, startup
    from opendataflow.control.access import rights
    from opendataflow.control.main import main
    from opendataflow.control.resources import reconcile
    from opendataflow.engine import limits
    from opendataflow.launch.cluster import releases

    releases.TOMBSTONE_SECONDS = TOMBSTONE_SECONDS
    if often:
        operator.CLEAN_SECONDS = operator.SWEEP_SECONDS = 1.0
        rights.CHECK_SECONDS = 5.0
    if hasty:
        startup.PAUSE_SECONDS = operator.RETRY_SECONDS = reconcile.PAUSE_SECONDS = limits.RECONNECT_SECONDS = 0.05
        limits.RENEW_SECONDS = limits.NOT_CREATABLE_SECONDS = 0.5
    if die is not None:
        from tests.kube.points import die_at

        die_at(*die)
    main()


@dataclass
class Operator:
    """One process. `log`: what it has printed."""

    process: Any
    log: Path

    @property
    def alive(self) -> bool:
        return bool(self.process.is_alive())

    @property
    def exit_code(self) -> int | None:
        code: int | None = self.process.exitcode
        return code

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.join()

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self, seconds: float = 240) -> int:
        """End it as Kubernetes does; return its exit code."""
        self.send(signal.SIGTERM)
        self.process.join(seconds)
        if self.alive:
            self.kill()
            raise TimeoutError(f"the operator did not stop: {self.output()[-3000:]}")
        return self.process.exitcode or 0


@dataclass
class Operators:
    """Makes operators over one database and one namespace. What they log is in `folder`. `through`: another address
    of the database, which they use. `often`: they look within seconds for what may go, and at their rights. `hasty`:
    they hardly pause if Postgres does not answer, or after a pod was refused."""

    dsn: str
    kubeconfig: Path
    namespace: str
    folder: Path
    made: list[Operator] = field(default_factory=list)
    through: str | None = None
    often: bool = False
    hasty: bool = False

    def start(self, *, die: tuple[str, str, int] | None = None, **environ: str) -> Operator:
        """Start one. `die`: (point, before or after, how often it may be reached), see `points`."""
        log = self.folder / f"operator-{len(self.made)}.log"
        settings = {
            "DATAFLOW_DSN": self.through or self.dsn,
            "KUBECONFIG": str(self.kubeconfig),
            "DATAFLOW_NAMESPACES": self.namespace,
            "DATAFLOW_PORT": "0",
            "POD_NAME": f"operator-{len(self.made)}",
            **environ,
        }
        process = _FORKS.Process(target=_main, args=(settings, str(log), die, self.often, self.hasty), daemon=True)
        process.start()
        operator = Operator(process, log)
        self.made.append(operator)
        return operator

    def expire_lease(self) -> None:
        """What time does: the lease of an operator that is dead has ended. Only after its process has."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("UPDATE opendataflow.lease SET expires_at = now() WHERE kind = 'operator'")

    def restart(self, *, die: tuple[str, str, int] | None = None) -> Operator:
        """Start another one after all others are dead."""
        assert not any(operator.alive for operator in self.made)
        self.expire_lease()
        return self.start(die=die)


@contextmanager
def new_operators(dsn: str, kubeconfig: Path, namespace: str, folder: Path) -> Iterator[Operators]:
    """Operators for one test; none of them outlives it."""
    with psycopg.connect(dsn, autocommit=True) as connection:  # copies of one template have the same
        connection.execute("UPDATE opendataflow.leader SET identity = left(md5(gen_random_uuid()::text), 12)")
    made = Operators(dsn, kubeconfig, namespace, folder)
    try:
        yield made
    finally:
        for operator in made.made:
            if operator.alive:
                operator.kill()
