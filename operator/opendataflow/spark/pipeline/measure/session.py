"""The Spark session of a command on this machine. What Spark says of itself goes to a file, not to the terminal."""

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
from typing import IO, TYPE_CHECKING

from opendataflow.core.chunks.dialects import Driver
from opendataflow.errors import NotInstalled
from opendataflow.spark import archiving, class_archive

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.redaction.options.regex": "(?i)url|credentials",
}
"""Unless SPARK_CONF_DIR says otherwise. Nothing is open to the network; times mean the same on every machine; a key is
not shown in a plan. What Arrow can't convert from pandas is an error: Spark by itself makes NULL of a number that is
too large, and text of numbers beside text."""

_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"

_NO_SPARK = "Spark is not installed: pip install 'opendataflow[spark]'"

_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where pyspark repeats every error on stderr, as JSON with the stack of its JVM."""

_OUT_OF_MEMORY = 52
"""With which Spark ends."""
_MORE_MEMORY = "give it more by spark.driver.memory, in a job by driver.memory, or make smaller chunks"

WORKER_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
"""Keep what functions print inside Python workers, so that it can be shown with the step that made them."""

_WORKERS: dict[str, bool | float | int | str | None] = {
    WORKER_LOGGING: "true",
    "spark.python.daemon.module": "opendataflow.spark.daemon",
}


@contextmanager
def local_session(name: str, drivers: Sequence[Driver] = ()) -> Iterator["SparkSession"]:
    """Give a session: the one of this process, or a new one of this machine that is stopped at the end.

    `drivers`: of JDBC, or connectors, that it needs; those that are not there Spark gets from Maven, and keeps. Raises
    NotInstalled where pyspark, Java or a driver are not there.
    """
    with _in_utc(), _session(name, drivers) as spark:
        yield spark


@contextmanager
def _in_utc() -> Iterator[None]:
    """Let Python, here and on the workers, have the time zone that Spark has: Spark hands on times in Python's own, so
    what a transformation does would depend on the machine."""
    try:
        with _environment({"TZ": "UTC"}):
            time.tzset()
            yield
    finally:
        time.tzset()


@contextmanager
def _session(name: str, drivers: Sequence[Driver]) -> Iterator["SparkSession"]:
    try:
        from pyspark import SparkConf, util
        from pyspark.errors import PySparkException
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise NotInstalled(_NO_SPARK) from None
    for logger in _LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    util.print_exec = _unsaid
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its workers run whatever `python3` is
    builder = SparkSession.builder.appName(name).config(map=_WORKERS)
    quick = class_archive.variables(os.environ, spark_home())
    with _environment(quick), tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log, _output_to(log):
        try:
            given = SparkConf()
            for key, value in {"spark.master": "local[*]", **_CONF}.items():
                builder = builder if given.contains(key) else builder.config(key, value)
            for key, value in _jars(drivers, given).items():
                builder = builder.config(key, value)
            with _interrupt_kept():
                spark = builder.getOrCreate()
        except (PySparkException, OSError) as error:
            raise NotInstalled(f"Spark can't be started: {_reason(log, error)}") from error
    try:
        yield spark
    finally:
        _stop(spark)
        archiving.leave_behind(os.environ, spark_home(), sys.executable)


def _stop(spark: "SparkSession") -> None:
    """Stop it, without the second that its server of accumulators may take to notice: nobody waits for that."""
    context = spark.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is None:  # a transformation has stopped it
        return
    context._accumulatorServer = None  # type: ignore[assignment]  # so does its own stop() afterwards
    threading.Thread(target=server.shutdown, daemon=True).start()
    with suppress(Exception) if end_of_java(0) is not None else nullcontext():
        spark.stop()


def end_of_java(patience: float) -> str | None:
    """Return how Spark's JVM has ended, waiting some seconds for it, and what to do; None where it goes on."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    try:
        code = None if process is None else process.wait(patience)
    except subprocess.TimeoutExpired:
        return None
    how = {
        None: None,
        _OUT_OF_MEMORY: "has no memory left",
        -signal.SIGKILL: "was killed, as where the machine has no memory left",
    }.get(code, f"has ended with exit code {code}")
    return how and f"Spark's Java {how}: {_MORE_MEMORY}"


def _jars(drivers: Sequence[Driver], given: "SparkConf") -> dict[str, str]:
    """Return the settings that bring drivers that are missing, beside what the user's settings bring: by their jars,
    which Maven is not asked for once they are kept, as even finding nothing new takes seconds."""
    texts = (given.get(key, "") or "" for key in (_PACKAGES, _JARS, "spark.driver.extraClassPath"))
    named = [Path(word).name for text in texts for word in re.split("[,:]", text)]
    own = spark_home() / "jars"
    missing = [
        it for it in drivers if not any(it.jar in name for name in named) and not any(own.glob(f"{it.jar}-*.jar"))
    ]
    kept = {it: _kept(it, given) for it in missing}
    brought = {
        _JARS: [str(jar) for jar in kept.values() if jar.is_file()],
        _PACKAGES: [it.package for it, jar in kept.items() if not jar.is_file()],
    }
    return {
        key: ",".join([*filter(None, (given.get(key, "") or "").split(",")), *more])
        for key, more in brought.items()
        if more
    }


@contextmanager
def _interrupt_kept() -> Iterator[None]:
    """Let Ctrl-C be what it was: pyspark's own way asks the JVM in the middle of another question, and tells of both in
    tracebacks."""
    logging.getLogger().addFilter(_is_no_interrupt)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what matters of it is raised
    kept = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, kept)


def _unsaid(stream: object) -> None:
    """Print no traceback of an error that is raised, too."""


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Whether it is not what py4j says when it is interrupted or cut off, with a traceback of its own."""
    return not re.match("(KeyboardInterrupt|Exception) while sending command", str(record.msg))


def spark_home() -> Path:
    """Return the folder of the Spark that sessions are of. Raises NotInstalled where there is none."""
    try:
        from pyspark.find_spark_home import _find_spark_home
    except ModuleNotFoundError:
        raise NotInstalled(_NO_SPARK) from None
    return Path(_find_spark_home())


def _kept(driver: Driver, given: "SparkConf") -> Path:
    """Return where Spark keeps the jar that Maven has given."""
    group, name, version = driver.package.split(":")
    folder = given.get("spark.jars.ivy", "") or "~/.ivy2.5.2"
    return Path(folder, "jars", f"{group}_{name}-{version}.jar").expanduser()


def _reason(log: IO[str], error: Exception) -> str:
    """Return the line in which Java or Spark's scripts say what is wrong."""
    if class_archive.java_of(os.environ) is None:
        return f"it needs {class_archive.no_java(os.environ)}"
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
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """Let programs that are started meanwhile have more variables."""
    kept = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _output_to(log: IO[str]) -> Iterator[None]:
    """Let programs that are started meanwhile write to `log` instead of this program's own output."""
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
