"""The Spark session of a command on this machine. Spark's own output goes to a file, not to the terminal."""

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from opendataflow.core.databases.dialect import Driver
from opendataflow.errors import NotInstalled
from opendataflow.spark import archiving, class_archive
from opendataflow.spark.pipeline.project.reporting import log_line
from opendataflow.spark.shared.jvm import Holder, detach, running_context
from opendataflow.spark.shared.jvm_start import NO_SPARK, Start, environment, replace_with_jvm, spark_home
from opendataflow.spark.shared.values import ask_for_numpy_only_if_imported

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_CONF = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.redaction.options.regex": "(?i)url|credentials",
}
"""Defaults, unless the job, SPARK_CONF_DIR or PYSPARK_SUBMIT_ARGS sets other values.

No port is open to the network. Plans show no key. Values that Arrow can't convert
from pandas raise an error: by default, Spark turns large numbers to NULL, and numbers beside text to text. Times in
Parquet files are as other readers expect: Spark's INT96 holds no year after 2262 for them.
"""

_NO_PROGRESS = {"spark.ui.showConsoleProgress": "false"}
"""Without it, pyspark's own JVM draws a bar for each stage."""

_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of pyspark that repeat every error on stderr, as JSON with the stack of the JVM."""

_OUT_OF_MEMORY = 52
"""Spark's exit code."""
_MORE_MEMORY = "give it more by spark.driver.memory, in a job by driver.memory, or make smaller chunks"

_JAVA_END = 60.0
"""Seconds that a JVM may take to end before its process ends without it. It takes about half a second."""

WORKER_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
"""Makes Spark keep the output of functions on Python workers, to show the output with its step."""

_OURS: dict[str, bool | float | int | str | None] = {
    WORKER_LOGGING: "true",
    "spark.python.daemon.module": "opendataflow.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings that no user can change. Times mean the same on every machine."""


@contextmanager
def local_session(name: str, drivers: Sequence[Driver] = (), chunk: str = "") -> Iterator["SparkSession"]:
    """Yield the session of this process, or a new session that is stopped at the end.

    If the launcher has given the JVM of a holder to this run, the new session is in this JVM, which goes on.

    `name`, `chunk`: for the name of the application. `drivers`: required JDBC drivers and connectors. Spark downloads
    missing ones from Maven and keeps them. Raises NotInstalled if pyspark, Java or a driver is missing.
    """
    with _in_utc(), _session(name, drivers, chunk) as spark:
        yield spark


@contextmanager
def _in_utc() -> Iterator[None]:
    """Set Python's time zone to that of Spark, here and on workers.

    Spark converts times to Python's time zone. Results of a transformation would depend on the machine otherwise.
    """
    try:
        with environment({"TZ": "UTC"}):
            time.tzset()
            yield
    finally:
        time.tzset()


@contextmanager
def _session(name: str, drivers: Sequence[Driver], chunk: str) -> Iterator["SparkSession"]:
    try:
        from pyspark import util  # optional and slow to import
        from pyspark.errors import PySparkException  # see above
        from pyspark.logger import PySparkLogger  # see above
        from pyspark.sql import SparkSession  # see above
    except ModuleNotFoundError:
        raise NotInstalled(NO_SPARK) from None
    for logger in _LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    util.print_exec = _print_nothing
    ask_for_numpy_only_if_imported()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the `python3` of PATH
    shared = _shared_session(name, drivers)
    if shared is not None:
        yield shared
        archiving.start_in_background(os.environ, spark_home(), sys.executable)
        return
    archive = class_archive.pyspark_variables(os.environ, spark_home())
    with (
        environment(archive),
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        _output_to(log),
    ):
        try:
            spark = _create_session(f"{name} {chunk}".rstrip(), drivers)
            _wait_for_java_at_exit()
        except (PySparkException, OSError) as error:
            raise NotInstalled(f"Spark can't be started: {_reason(log, error)}") from error
    try:
        yield spark
    finally:
        _stop(spark)
        archiving.start_in_background(os.environ, spark_home(), sys.executable)


def _create_session(name: str, drivers: Sequence[Driver]) -> "SparkSession":
    from pyspark import SparkConf, SparkContext  # optional and slow to import
    from pyspark.sql import SparkSession  # see above

    builder = SparkSession.builder.appName(name).config(map=_OURS)
    with _keep_interrupt_handler():
        SparkContext._ensure_initialized(conf=_settings_of_java(drivers))
        given = SparkConf()  # of the JVM, which knows all settings of the user
        for key, value in _CONF.items():
            builder = builder if given.contains(key) else builder.config(key, value)
        return builder.getOrCreate()


def _shared_session(name: str, drivers: Sequence[Driver]) -> "SparkSession | None":
    """Return a session in the JVM of the holder that the launcher has given to this run, if there is one.

    If the JVM can't be used, the run starts its own.
    """
    from py4j.protocol import Py4JError  # optional and slow to import
    from pyspark.errors import PySparkException  # see above

    holder = Holder.take(os.environ)
    if holder is None:
        return None
    obstacle = holder.find_obstacle(_start(drivers))
    if obstacle is None:
        try:
            with _keep_interrupt_handler(), environment(holder.gateway):
                holder.attach()
                _use_running_context()
            return holder.open(_create_session(name, drivers))
        except (PySparkException, Py4JError, OSError) as error:
            obstacle = f"it fails ({type(error).__name__})"
    log_line(holder.declare_refused(obstacle))
    detach()
    return None


def _use_running_context() -> None:
    """Use the SparkContext that an earlier run has started in the shared JVM, if any."""
    from pyspark import SparkConf, SparkContext  # optional and slow to import

    context = running_context(SparkContext._jvm)
    if context is not None:
        SparkContext(jsc=context, conf=SparkConf(_jconf=context.getConf()))


def _start(drivers: Sequence[Driver]) -> Start:
    return Start.with_settings(dict(_settings_of_java(drivers).getAll()))


def replace_with_jvm_of_pipeline(drivers: Sequence[Driver], folder: Path) -> NoReturn:
    """Replace this process by the JVM that pyspark would start for a pipeline. `folder`: of its holder.

    Raises NotInstalled if Spark is missing, and OSError.
    """
    replace_with_jvm(_start(drivers), folder, {"TZ": "UTC"})


def _stop(spark: "SparkSession") -> None:
    """Stop the session without waiting for its accumulator server, which takes up to a second."""
    context = spark.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is None:  # a transformation has stopped it
        return
    context._accumulatorServer = None  # type: ignore[assignment]  # its own stop() does the same
    threading.Thread(target=server.shutdown, daemon=True).start()
    with suppress(Exception) if explain_java_exit(0) is not None else nullcontext():
        spark.stop()


def _wait_for_java_at_exit() -> None:
    """Let this process end after its JVM.

    The JVM removes its temporary folders when it ends. A launcher kills it as soon as its process has ended, and each
    chunk of a job would leave three folders.
    """
    from pyspark import SparkContext  # optional and slow to import

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        atexit.unregister(_end_java)  # of an earlier session, whose JVM this may be
        atexit.register(_end_java, process)


def _end_java(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError, subprocess.TimeoutExpired, KeyboardInterrupt):
        if process.stdin is not None:
            process.stdin.close()  # which asks pyspark's JVM to end
        process.wait(_JAVA_END)


def explain_java_exit(timeout: float) -> str | None:
    """Return why Spark's JVM has ended, with a remedy, or None if the JVM runs. `timeout`: seconds to wait."""
    from pyspark import SparkContext  # optional and slow to import

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    holder = Holder.used()
    code: int | None = None
    try:
        if process is not None:
            code = process.wait(timeout)
        elif holder is not None:
            code = holder.exit_code(timeout)
    except subprocess.TimeoutExpired:
        return None
    how = {
        None: None,
        _OUT_OF_MEMORY: "has no memory left",
        -signal.SIGKILL: "was killed, as where the machine has no memory left",
    }.get(code, f"has ended with exit code {code}")
    return how and f"Spark's Java {how}: {_MORE_MEMORY}"


def _settings_of_java(drivers: Sequence[Driver]) -> "SparkConf":
    """Return the settings that a JVM must have from its start. They take precedence over the user's files."""
    from pyspark import SparkConf  # optional and slow to import

    given = class_archive.spark_defaults(os.environ, spark_home())
    settings = SparkConf()
    for key, value in {**_NO_PROGRESS, **given, **_jars(drivers, given)}.items():
        if value != given.get(key):
            settings.set(key, value)
    return settings


def _jars(drivers: Sequence[Driver], given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that add missing drivers to the user's settings.

    Downloaded jars are named by path: even a search of Maven without a download takes seconds.
    """
    texts = (given.get(key, "") for key in (_PACKAGES, _JARS, "spark.driver.extraClassPath"))
    named = [Path(word).name for text in texts for word in re.split("[,:]", text)]
    own = spark_home() / "jars"
    missing = [
        it for it in drivers if not any(it.jar in name for name in named) and not any(own.glob(f"{it.jar}-*.jar"))
    ]
    kept = {it: _downloaded_jar(it, given) for it in missing}
    added = {
        _JARS: [str(jar) for jar in kept.values() if jar.is_file()],
        _PACKAGES: [it.package for it, jar in kept.items() if not jar.is_file()],
    }
    return {key: ",".join([*filter(None, given.get(key, "").split(",")), *more]) for key, more in added.items() if more}


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the handler of Ctrl-C. pyspark's handler calls the JVM during another call, and prints two tracebacks."""
    logging.getLogger().addFilter(_is_no_interrupt)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # relevant errors are raised
    kept = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, kept)


def _print_nothing(stream: object) -> None:
    """Print no traceback. The error is raised, too."""


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Return False for py4j's record of an interrupted call, which has a traceback of its own."""
    return not re.match("(KeyboardInterrupt|Exception) while sending command", str(record.msg))


def _downloaded_jar(driver: Driver, given: Mapping[str, str]) -> Path:
    """Return the path where Spark keeps a driver's jar from Maven."""
    group, name, version = driver.package.split(":")
    folder = given.get("spark.jars.ivy", "~/.ivy2.5.2")
    return Path(folder, "jars", f"{group}_{name}-{version}.jar").expanduser()


def _reason(log: IO[str], error: Exception) -> str:
    """Return the line of Java's or Spark's output that explains the failure."""
    if class_archive.find_java(os.environ) is None:
        return f"it needs {class_archive.explain_missing_java(os.environ)}"
    log.seek(0)
    lines = [line.strip() for line in log if line.strip()]
    if not lines or any("java" in line.lower() and "not found" in line.lower() for line in lines):
        return f"it needs Java 17 or newer ({str(error).partition(chr(10))[0]})"
    missing = next((line for line in lines if "unresolved dependency" in line or "download failed" in line), None)
    if missing is not None:
        return (
            f"{missing.strip(': ')}: Maven does not answer; put the jar into Spark's folder `jars`, or name it in "
            "spark.jars of spark-defaults.conf in SPARK_CONF_DIR"
        )
    return next((line for line in lines if "error" in line.lower() or "exception" in line.lower()), lines[-1])


@contextmanager
def _output_to(log: IO[str]) -> Iterator[None]:
    """Redirect stdout and stderr of child processes to `log` during the block."""
    kept = {number: os.dup(number) for number in (1, 2)}
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    try:
        for number in kept:
            os.dup2(log.fileno(), number)
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
