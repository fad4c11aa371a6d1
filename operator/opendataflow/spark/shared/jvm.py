"""The JVM of a holder, as the process of a run sees it: it is checked, used in a new session, and left clean.

A run may use the JVM if it would start the same one itself. At its end, the run declares the JVM reusable. It does so
only if all that a run can change in the JVM is as before. Otherwise the launcher ends the JVM.
"""

import atexit
import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from opendataflow.names import HOLDER_EXIT, HOLDER_VARIABLE, OWN_JVM_FILE, REUSABLE_FILE, UNUSED_FILE
from opendataflow.spark.shared.jvm_start import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 20.0
"""How long the JVM may take to answer at the begin of a run, and for each question at its end."""
_JOBS_END = 5.0
"""How long Spark jobs may go on after the end of a run."""
_MOST_MEMORY = 0.5
"""The share of the heap that may be in use after the end of a run."""

_ATTRIBUTE = "opendataflow_holder"
"""The attribute of pyspark's gateway with the holder that this process uses."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_OF_THE_JVM = {"SPARK_CONF_DIR", "PYTHONPATH"}
"""Variables of a run that its Python workers do not get: the JVM gives them its own."""


@dataclass(frozen=True)
class Holder:
    """The holder of this run. `folder`: of the holder. `run_folder`: of the run. `gateway`: variables of pyspark."""

    folder: Path
    run_folder: Path
    gateway: Mapping[str, str]

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Return the holder that the launcher has given to this run, if any and once. Only this process may use it.

        Remove its variables, which a child process would inherit.
        """
        if _hidden:
            hidden: Self = _hidden.pop()
            return hidden
        folder = environ.pop(HOLDER_VARIABLE, None)
        if folder is None:
            return None
        gateway = {name: environ.pop(name) for name in (_PORT, _SECRET)}
        return cls(Path(folder), Path(environ["DATAFLOW_CONTEXT"]).parent, gateway)

    @classmethod
    def used(cls) -> Self | None:
        """Return the holder whose JVM this process uses; None if it uses none."""
        from pyspark import SparkContext  # optional and slow to import

        found: Self | None = vars(SparkContext._gateway).get(_ATTRIBUTE) if SparkContext._gateway else None
        return found

    def find_obstacle(self, wanted: Start) -> str | None:
        """Return why this run can't use the JVM; None if it can. `wanted`: the start of an own JVM."""
        try:
            found = Start.read(self.folder)
            if found != wanted:
                names = [name for name, value in asdict(wanted).items() if value != asdict(found)[name]]
                return f"it was started with another {' and another '.join(names)}"
            _ask_for_admission(int(self.gateway[_PORT]), self.gateway[_SECRET])
        except (OSError, ValueError, TypeError, KeyError) as error:
            return f"it does not answer ({error})"
        return None

    def attach(self) -> None:
        """Connect pyspark to the JVM. Called while `gateway` is in the environment."""
        from pyspark import SparkContext  # optional and slow to import

        SparkContext._ensure_initialized()
        self.mark()

    def mark(self) -> None:
        """Remember at pyspark's connection that it leads to the JVM of this holder."""
        from pyspark import SparkContext  # optional and slow to import

        setattr(SparkContext._gateway, _ATTRIBUTE, self)

    def open(self, spark: "SparkSession") -> "SparkSession":
        """Return a new session in the JVM for this run. Declare the JVM reusable when this process ends in order."""
        session = _new_session(spark)
        session.sparkContext.environment.update(worker_variables())
        java = JavaSide.of(session)
        atexit.register(self.declare_reusable, java, changeable_state(java))
        return session

    def declare_reusable(self, java: "JavaSide", before: tuple[Any, ...]) -> None:
        """Write the file that declares the JVM reusable, if it is. Whatever is unexpected here means that it is not.

        `before`: the changeable state of the JVM when this run began to use it.
        """
        with suppress(Exception):
            limit_waiting()
            if is_unused(java) and changeable_state(java) == before and _release_memory(java):
                (self.run_folder / REUSABLE_FILE).touch()

    def declare_unused(self) -> None:
        """Write the file that says that this run has not used the JVM."""
        with suppress(OSError):
            (self.run_folder / UNUSED_FILE).touch()

    def declare_refused(self, obstacle: str) -> str:
        """Write the file with the reason why this run starts a JVM of its own. Return the line for its log."""
        with suppress(OSError):
            (self.run_folder / OWN_JVM_FILE).write_text(obstacle, "utf-8")
        return f"this run has a JVM of its own, as it can't use the shared one: {obstacle}"

    def exit_code(self, timeout: float) -> int | None:
        """Return the exit code of the JVM, or the negative number of its signal; None if it runs after `timeout`."""
        until = time.monotonic() + timeout
        while True:
            with suppress(OSError, ValueError):
                return int((self.folder / HOLDER_EXIT).read_text("ascii"))
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)


_hidden: list[Any] = []


def hide_holder(environ: MutableMapping[str, str]) -> None:
    """Remove the holder's variables before code of the user runs: pyspark would connect to the JVM by itself.

    `Holder.take` returns the holder. If nothing takes it, the JVM is declared unused when this process ends.
    """
    holder = Holder.take(environ)
    if holder is not None:
        _hidden.append(holder)
        atexit.register(_declare_hidden_unused)


def _declare_hidden_unused() -> None:
    while _hidden:
        _hidden.pop().declare_unused()


@dataclass(frozen=True)
class JavaSide:
    """The objects in the JVM that a run uses. They outlive the Python objects, which a program may stop.

    `context`: a JavaSparkContext. `session`: a SparkSession.
    """

    jvm: Any
    context: Any
    session: Any

    @classmethod
    def of(cls, spark: "SparkSession") -> Self:
        """Return the objects behind a session of Python."""
        return cls(spark._jvm, spark.sparkContext._jsc, spark._jsparkSession)


def running_context(jvm: Any) -> Any:
    """Return the JavaSparkContext that an earlier run has started in a JVM, or None.

    By itself, pyspark would start a second one, which fails.
    """
    contexts = getattr(getattr(jvm, "org.apache.spark.SparkContext$"), "MODULE$")
    found = contexts.getActive()
    return jvm.JavaSparkContext(found.get()) if found.isDefined() else None


def detach() -> None:
    """Let pyspark start a JVM of its own."""
    from pyspark import SparkContext  # optional and slow to import
    from pyspark.sql import SparkSession  # see above

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def worker_variables() -> dict[str, str]:
    """Return the variables of this run for its Python workers, which the workers of an own JVM would inherit.

    A value that is no text can't be sent. It is not about the chunk, so the JVM has it, too.
    """
    own = ((name, value) for name, value in os.environ.items() if name not in _OF_THE_JVM)
    return {name: value for name, value in own if _is_text(name + value)}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _ask_for_admission(port: int, secret: str) -> None:
    """Authenticate at the JVM and close the connection. Raises OSError if the JVM does not answer in time."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
        connection.sendall(f"A\n{secret}\ne\n".encode())
        answer = connection.recv(16)
        if not answer.startswith(b"!y"):
            raise OSError(f"it refuses the connection: {answer!r}")


def _new_session(spark: "SparkSession") -> "SparkSession":
    """Return a new session, which is also the one that `SparkSession.builder.getOrCreate()` finds in this process."""
    from pyspark.sql import SparkSession  # optional and slow to import

    created = spark._jsparkSession.newSession()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    return SparkSession(spark.sparkContext, created)


def changeable_state(java: JavaSide) -> tuple[Any, ...]:
    """Return what a run could change in the JVM for the next run. Data of sessions is not in it."""
    jvm, context = java.jvm, java.context.sc()
    state = java.session.sharedState()
    catalog = state.externalCatalog()
    return (
        context.hadoopConfiguration().getPropsWithPrefix("").hashCode(),
        jvm.java.util.TimeZone.getDefault().getID(),
        jvm.java.util.Locale.getDefault().toString(),
        context.listJars().size(),
        context.listFiles().size(),
        catalog.listDatabases().size(),
        catalog.listTables("default").size(),
        state.globalTempViewManager().listViewNames("*").size(),
    )


def limit_waiting() -> None:
    """Let each question of this thread to the JVM fail after `ANSWER_SECONDS`. Raises OSError without a connection."""
    from pyspark import SparkContext  # optional and slow to import

    gateway: Any = SparkContext._gateway
    connection = gateway._gateway_client.get_thread_connection()
    if connection is None:
        raise OSError("this thread has no connection to the JVM")
    connection.socket.settimeout(ANSWER_SECONDS)


def is_unused(java: JavaSide) -> bool:
    """Drop what is cached. Return whether no Spark job, no stream and no cached data is left."""
    java.session.catalog().clearCache()
    until = time.monotonic() + _JOBS_END
    while not java.context.sc().dagScheduler().activeJobs().isEmpty():
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    streams = java.session.sharedState().activeStreamingQueries()
    return bool(streams.isEmpty() and java.context.getPersistentRDDs().isEmpty())


def _release_memory(java: JavaSide) -> bool:
    """Release the objects of this run, and collect garbage. Return whether enough of the heap is free."""
    from py4j.finalizer import ThreadSafeFinalizer  # optional and slow to import
    from pyspark import SparkContext  # see above

    runtime = java.jvm.java.lang.Runtime.getRuntime()
    gateway: Any = SparkContext._gateway
    for reference in list(ThreadSafeFinalizer.finalizers.values()):
        found = reference()
        if found is not None and found is not runtime:
            gateway._gateway_client.garbage_collect_object(found._target_id, enqueue=False)
    java.jvm.java.lang.System.gc()
    used = runtime.totalMemory() - runtime.freeMemory()
    return bool(used <= _MOST_MEMORY * runtime.maxMemory())
