"""The JVM of a holder, as the process of a run sees it: it is checked, used in a new session, and left clean.

A run may use the JVM if it would start the same one itself. At its end, the run declares the JVM reusable. It does so
only if all that a run can change in the JVM is as before. Otherwise the launcher ends the JVM.
"""

import atexit
import json
import os
import socket
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from opendataflow.names import HOLDER_EXIT, HOLDER_START, HOLDER_VARIABLE, REUSABLE_FILE

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
class Start:
    """How a JVM is started. `settings`: those on its command line. `arguments`: the other ones of the user."""

    folder: str
    spark: str
    arguments: str
    settings: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write the description to the folder of a holder."""
        (folder / HOLDER_START).write_text(json.dumps(asdict(self)), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the description. Raises OSError, ValueError or TypeError."""
        return cls(**json.loads((folder / HOLDER_START).read_text("utf-8")))


@dataclass(frozen=True)
class Holder:
    """The holder of this run. `folder`: of the holder. `run_folder`: of the run. `gateway`: variables of pyspark."""

    folder: Path
    run_folder: Path
    gateway: Mapping[str, str]

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Return the holder that the launcher has given to this run, if any. Only this process may use it.

        Remove its variables, which a child process would inherit.
        """
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
        """Connect pyspark to the JVM, and use the SparkContext that an earlier run has started there, if any.

        By itself, pyspark would start a second one, which fails. Called while `gateway` is in the environment.
        """
        from pyspark import SparkConf, SparkContext  # optional and slow to import
        from pyspark.sql import SparkSession  # see above

        SparkContext._ensure_initialized()
        setattr(SparkContext._gateway, _ATTRIBUTE, self)
        jvm: Any = SparkContext._jvm
        earlier = SparkSession._get_j_spark_session_class(jvm).getDefaultSession()
        if earlier.isDefined():
            context = jvm.JavaSparkContext(earlier.get().sparkContext())
            SparkContext(jsc=context, conf=SparkConf(_jconf=context.getConf()))

    def open(self, spark: "SparkSession") -> "SparkSession":
        """Return a new session in the JVM for this run. Declare the JVM reusable when this process ends in order."""
        session = _new_session(spark)
        session.sparkContext.environment.update(_worker_variables())
        atexit.register(self._declare_reusable, session, changeable_state(session))
        return session

    def _declare_reusable(self, spark: "SparkSession", before: tuple[Any, ...]) -> None:
        """Write the file that declares the JVM reusable, if it is. Whatever is unexpected here means that it is not."""
        with suppress(Exception):
            limit_waiting()
            if is_unused(spark) and changeable_state(spark) == before and _release_memory(spark):
                (self.run_folder / REUSABLE_FILE).touch()

    def exit_code(self, timeout: float) -> int | None:
        """Return the exit code of the JVM, or the negative number of its signal; None if it runs after `timeout`."""
        until = time.monotonic() + timeout
        while True:
            with suppress(OSError, ValueError):
                return int((self.folder / HOLDER_EXIT).read_text("ascii"))
            if time.monotonic() >= until:
                return None
            time.sleep(0.05)


def detach() -> None:
    """Let pyspark start a JVM of its own."""
    from pyspark import SparkContext  # optional and slow to import
    from pyspark.sql import SparkSession  # see above

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _worker_variables() -> dict[str, str]:
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


def changeable_state(spark: "SparkSession") -> tuple[Any, ...]:
    """Return what a run could change in the JVM for the next run. Data of sessions is not in it."""
    jvm: Any = spark._jvm
    java = spark.sparkContext._jsc.sc()
    state = spark._jsparkSession.sharedState()
    catalog = state.externalCatalog()
    return (
        java.hadoopConfiguration().getPropsWithPrefix("").hashCode(),
        jvm.java.util.TimeZone.getDefault().getID(),
        jvm.java.util.Locale.getDefault().toString(),
        java.listJars().size(),
        java.listFiles().size(),
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


def is_unused(spark: "SparkSession") -> bool:
    """Drop what is cached. Return whether no Spark job, no stream and no cached data is left."""
    java = spark.sparkContext._jsc
    spark.catalog.clearCache()
    until = time.monotonic() + _JOBS_END
    while not java.sc().dagScheduler().activeJobs().isEmpty():
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    streams = spark._jsparkSession.sharedState().activeStreamingQueries()
    return bool(streams.isEmpty() and java.getPersistentRDDs().isEmpty())


def _release_memory(spark: "SparkSession") -> bool:
    """Release the objects of this run, and collect garbage. Return whether enough of the heap is free."""
    from py4j.finalizer import ThreadSafeFinalizer  # optional and slow to import

    jvm: Any = spark._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # a running session has one
    for reference in list(ThreadSafeFinalizer.finalizers.values()):
        found = reference()
        if found is not None and found is not runtime:
            client.garbage_collect_object(found._target_id, enqueue=False)
    jvm.java.lang.System.gc()
    used = runtime.totalMemory() - runtime.freeMemory()
    return bool(used <= _MOST_MEMORY * runtime.maxMemory())
