"""Run a PySpark program, unchanged, in a JVM that runs share.

    python -P -m opendataflow.spark.shared.program PROGRAM [ARGUMENT…]

The program is `__main__`, as if Python had been started with its path. Its first SparkContext is not a new one: it is
that of the JVM, with a new session. The program may stop it and create another one. If the launcher has given no JVM to
this run, or the program needs other settings than the JVM has, pyspark starts a JVM, as it does without this module.

This module never decides whether a run has succeeded, and never changes the program's output or exit code.
"""

import atexit
import builtins
import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opendataflow.spark.shared.jvm import (
    Holder,
    JavaSide,
    changeable_state,
    detach,
    running_context,
    worker_variables,
)
from opendataflow.spark.shared.jvm_start import Start, environment
from opendataflow.spark.shared.values import ask_for_numpy_only_if_imported

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

_NAME = "spark.app.name"


class SharedJvm:
    """Lets pyspark use the JVM of a holder in this process. `holder`: given by the launcher."""

    def __init__(self, holder: Holder) -> None:
        """Change nothing yet."""
        self._holder = holder
        self._is_used = self._is_refused = False
        self._java: JavaSide | None = None
        self._before: tuple[Any, ...] = ()

    def install(self) -> None:
        """Replace the two methods of pyspark that start a JVM and a SparkContext, and how it looks for numpy."""
        from pyspark import SparkContext  # optional and slow to import

        def initialize(context: "SparkContext", settings: Any) -> Any:  # a function becomes a method
            return self._initialize_context(context, settings)

        self._connect = SparkContext._ensure_initialized
        self._create = SparkContext._initialize_context
        replaced = {"_ensure_initialized": self._connect_to_jvm, "_initialize_context": initialize}
        for name, method in replaced.items():
            setattr(SparkContext, name, method)
        ask_for_numpy_only_if_imported()
        atexit.register(self._end)

    def _connect_to_jvm(
        self, instance: "SparkContext | None" = None, gateway: Any = None, conf: "SparkConf | None" = None
    ) -> None:
        from pyspark import SparkContext  # optional and slow to import

        if SparkContext._gateway is not None or gateway is not None or self._is_refused or self._is_used:
            self._connect(instance, gateway, conf)
            return
        obstacle = self._holder.find_obstacle(Start.with_settings({}))
        if obstacle is not None:
            self._refuse(obstacle)
            self._connect(instance, gateway, conf)
            return
        self._is_used = True
        with environment(self._holder.gateway):
            self._connect(instance, gateway, conf)
        self._holder.mark()

    def _initialize_context(self, context: "SparkContext", settings: Any) -> Any:
        """Return the JavaSparkContext for a new SparkContext of the program. `settings`: a SparkConf in the JVM."""
        from pyspark import SparkConf  # optional and slow to import

        if not self._is_used or self._is_refused:
            return self._create(context, settings)
        jvm: Any = context._jvm
        wanted = dict(SparkConf(_jconf=settings).getAll())
        java = self._java or _start_session(jvm, wanted[_NAME])
        found = dict(SparkConf(_jconf=jvm.SparkConf(True)).getAll()) | _defaults()
        own = {key: value for key, value in wanted.items() if found.get(key) != value}
        fixed = sorted(key for key in own.keys() - {_NAME} if not java.session.conf().isModifiable(key))
        if fixed:
            self._refuse(f"the program sets {fixed[0]}, which a JVM has from its start; write it in the job's conf")
            return self._start_own_jvm(context, own)
        self._open_session(context, java)
        return java.context

    def _open_session(self, context: "SparkContext", java: JavaSide) -> None:
        """Let the SparkContext use a new session of the shared JVM, and leave the JVM alone when it is stopped."""
        session = java.session.newSession()
        sessions = _sessions(java.jvm)
        sessions.setDefaultSession(session)
        sessions.clearActiveSession()
        self._java = JavaSide(java.jvm, java.context, session)
        self._before = self._before or changeable_state(self._java)
        context.environment = worker_variables() | context.environment
        stop = context.stop

        def leave() -> None:
            if context._jsc is not None:
                context._jsc.sc().cancelAllJobs()
                context._jsc = _Left()  # of which pyspark stops the context
            stop()

        context.stop = leave  # type: ignore[method-assign]  # of this object

    def _start_own_jvm(self, context: "SparkContext", own: Mapping[str, str]) -> Any:
        """Start a JVM for a program with settings of its own, as pyspark does; return the JavaSparkContext."""
        from pyspark import SparkConf, SparkContext  # optional and slow to import

        detach()
        settings = SparkConf(loadDefaults=False).setAll([*own.items()])
        self._connect(context, None, settings)
        started = SparkConf(_jvm=SparkContext._jvm).setAll([*({**_defaults(), **own}).items()])
        return self._create(context, started._jconf)

    def _refuse(self, obstacle: str) -> None:
        self._is_refused = True
        print(f"dataflow: {self._holder.declare_refused(obstacle)}", file=sys.stderr, flush=True)

    def _end(self) -> None:
        """Declare the JVM reusable, if it is."""
        if self._is_refused:
            return
        if not self._is_used:
            self._holder.declare_unused()
        elif self._java is not None:
            with suppress(Exception):  # the JVM may have ended
                _sessions(self._java.jvm).setDefaultSession(self._java.session)
            self._holder.declare_reusable(self._java, self._before)


class _Left:
    """Stands for the context in the JVM after the program has stopped its SparkContext."""

    def stop(self) -> None:
        """Do nothing: the next run uses the context."""


def _sessions(jvm: Any) -> Any:
    from pyspark.sql import SparkSession  # optional and slow to import

    return SparkSession._get_j_spark_session_class(jvm)


def _start_session(jvm: Any, name: str) -> JavaSide:
    """Return a session in a JVM, and its context, which the first run starts with the settings of the JVM."""
    context = running_context(jvm)
    if context is None:
        settings = jvm.SparkConf(True)
        for key, value in {**_defaults(), _NAME: name}.items():
            settings.set(key, value)
        context = jvm.JavaSparkContext(settings)
    sessions = _sessions(jvm)
    existing = sessions.getDefaultSession()
    return JavaSide(jvm, context, existing.get() if existing.isDefined() else sessions(context.sc(), {}))


def _defaults() -> dict[str, str]:
    """Return pyspark's own settings of a SparkContext."""
    from pyspark.core.context import DEFAULT_CONFIGS  # optional and slow to import

    return {key: str(value) for key, value in DEFAULT_CONFIGS.items()}


def run_program(path: str, arguments: list[str]) -> None:
    """Run a Python program as `python PATH ARGUMENT…` does. Raises what the program raises."""
    sys.argv[:] = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    sys.excepthook = _print_error
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = vars(sys.modules["__main__"])
    main.clear()
    names = {"__name__": "__main__", "__file__": path, "__builtins__": builtins}
    main.update({"__doc__": None, "__package__": None, "__spec__": None, "__loader__": None} | names)
    exec(code, main)


def _print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error of the program, without the lines of this module."""
    of_program = trace
    while of_program is not None and of_program.tb_frame.f_code is not run_program.__code__:
        of_program = of_program.tb_next
    trace = of_program.tb_next if of_program is not None else trace
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def main() -> None:
    """Run the program that the command line names."""
    path, *arguments = sys.argv[1:]
    holder = Holder.take(os.environ)
    if holder is not None:
        with suppress(ModuleNotFoundError):  # without pyspark, the program itself fails, or needs none
            SharedJvm(holder).install()
    run_program(path, arguments)


if __name__ == "__main__":
    from opendataflow.spark.shared import program

    program.main()  # of the imported module, because the names of this one give way to those of the user's program
