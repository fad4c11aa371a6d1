"""The program of a driver pod: `python -m opendataflow.spark.driver`.

The program reads the operator's order beside the context (see core/kubernetes/spark_pods.py). It writes Spark's
settings and the template of executors to files, and starts `spark-submit` in client mode, with a JVM of the right size.
It forwards signals and the exit code, and watches whether executors start. Errors are reported on stderr and in the
termination message. The program needs only Python and Spark.
"""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from opendataflow import names
from opendataflow.spark import class_archive
from opendataflow.spark.class_archive import Archive
from opendataflow.spark.executors import find_missing_executor
from opendataflow.spark.properties import properties_text

TERMINATION_LOG = Path("/dev/termination-log")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOK_SECONDS = 15.0
GRACE_SECONDS = 20.0
"""Seconds for Spark to exit after no executor has started."""
CAN_NOT_START = 126
TOO_MANY_FAILURES = 11
"""Spark's exit code after too many failures of executors."""

_CLASS_PATH = "spark.driver.extraClassPath"

_GAVE_UP = "executors have failed too often, so that Spark gave up; the log says how each of them ended"


class CannotStart(Exception):
    """The program can't be started. The text is one sentence for people."""


@dataclass(frozen=True)
class Order:
    """The operator's order.

    `main`: a file or an address. `module`: an installed module, instead of `main`. `executor`: the template of executor
    pods; None: no executors. `patience`: seconds to wait for executors.
    """

    main: str
    arguments: tuple[str, ...]
    settings: Mapping[str, str]
    executor: Mapping[str, Any] | None
    patience: float
    module: str | None = None


def read_order(path: Path) -> Order:
    """Read the order. Raises CannotStart if the file is missing or invalid."""
    try:
        written = json.loads(path.read_text("utf-8"))
        return Order(
            main=written["main"] if "module" not in written else "",
            arguments=tuple(written.get("arguments", ())),
            settings=dict(written["settings"]),
            executor=written["executor"],
            patience=float(written["patience"]),
            module=written.get("module"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise CannotStart(f"{path} is not what this image knows: use an image of the operator's own version") from None


def find_program(main: str) -> str:
    """Return the program for `spark-submit`: an absolute path or an address. Raises CannotStart for a missing file."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", main)
    if scheme and scheme[1] not in ("local", "file"):
        return main
    path = Path(urllib.parse.urlsplit(main).path if scheme else main).absolute()
    if not path.is_file():
        raise CannotStart(f"the program {path} is not in the image: look at mainApplicationFile and image")
    return str(path)


def find_spark_submit(environ: Mapping[str, str]) -> str:
    """Return the path of `spark-submit`. Raises CannotStart if the image has no Spark or no Java."""
    java = Path(environ.get("JAVA_HOME", ""), "bin", "java")
    if not (java.is_file() if environ.get("JAVA_HOME") else shutil.which("java", path=environ.get("PATH"))):
        raise CannotStart("the image has no Java: use one that is made from opendataflow/spark")
    installed = find_spec("pyspark")
    places = [Path(environ["SPARK_HOME"])] if environ.get("SPARK_HOME") else []
    places += [Path(place) for place in (installed.submodule_search_locations or ())] if installed else []
    for place in places:
        if (place / "bin" / "spark-submit").is_file():
            return str(place / "bin" / "spark-submit")
    raise CannotStart("the image has no Spark: use one that is made from opendataflow/spark")


def all_settings(order: Order, environ: Mapping[str, str], template: Path) -> dict[str, str]:
    """Return the operator's settings and those that depend on the pod. Raises CannotStart."""
    try:
        address = _url_host(environ["DATAFLOW_POD_IP"])
        here = {"spark.driver.host": address, "spark.driver.bindAddress": address}
        if order.executor is not None:
            host, port = _url_host(environ["KUBERNETES_SERVICE_HOST"]), environ["KUBERNETES_SERVICE_PORT"]
            here |= {
                "spark.master": f"k8s://https://{host}:{port}",
                "spark.kubernetes.executor.podTemplateFile": str(template),
            }
    except KeyError as missing:
        raise CannotStart(f"{missing.args[0]} is not set: this program runs in pods that the operator makes") from None
    return {**order.settings, **here}


def _url_host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def prepare_command(
    order: Order, environ: Mapping[str, str], folder: Path, submit: str, archive: Archive | None
) -> list[str]:
    """Write the files to the folder, and return the command that reads them. Raises CannotStart."""
    main = find_program(order.main) if order.module is None else _starter(order.module, folder)
    file, template = folder / "spark.properties", folder / "executor.json"
    class_path = {} if archive is None else {_CLASS_PATH: archive.class_path}
    file.write_text(properties_text({**all_settings(order, environ, template), **class_path}), "utf-8")
    if order.executor is not None:
        template.write_text(json.dumps(order.executor), "utf-8")
    return [submit, "--properties-file", str(file), main, *order.arguments]


def _archive(order: Order, environ: Mapping[str, str], submit: str) -> Archive | None:
    """Return the archive of classes for the JVM, or None if the job puts classes before Spark's."""
    return None if _CLASS_PATH in order.settings else class_archive.find_archive(environ, Path(submit).parents[1])


def _starter(module: str, folder: Path) -> str:
    """Write a program that runs the module.

    `spark-submit` accepts only files and adds their folder to the import path. With the module's own file, other
    modules of the package would be importable under wrong names.
    """
    file = folder / "program" / "run.py"
    file.parent.mkdir()
    file.write_text(f"import runpy\n\nrunpy.run_module({module!r}, run_name='__main__')\n", "utf-8")
    return str(file)


# Executors -----------------------------------------------------------------------------------------------


def list_executor_pods(environ: Mapping[str, str], settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the pods of this driver's executors from the API server's cache. Raises OSError."""
    chosen = f"{names.LABEL_EXECUTOR_OF}={settings['spark.kubernetes.driver.pod.name']}"
    query = urllib.parse.urlencode({"labelSelector": chosen, "resourceVersion": "0"})
    host, port = _url_host(environ["KUBERNETES_SERVICE_HOST"]), environ["KUBERNETES_SERVICE_PORT"]
    address = f"https://{host}:{port}/api/v1/namespaces/{settings['spark.kubernetes.namespace']}/pods?{query}"
    token = (ACCOUNT / "token").read_text("utf-8").strip()
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=LOOK_SECONDS, context=trusted) as answer:
        return list(json.load(answer)["items"])


class ExecutorWatch:
    """Watches whether executors start, and ends the program if none starts in time.

    `pods`: returns the pods of the executors. `sentence`: why the program was ended, or None.
    """

    def __init__(self, pods: Callable[[], list[dict[str, Any]]], patience: float, end: Callable[[], None]) -> None:
        self._pods = pods
        self._patience = patience
        self._end = end
        self._reported = ""
        self.sentence: str | None = None

    def check(self, now: float) -> bool:
        """Check once. Return whether to continue."""
        try:
            found = find_missing_executor(self._pods())
        except (OSError, ValueError, KeyError, TypeError):
            return True  # Spark itself reports an unreachable API server
        if found is None:
            self._reported = ""
            return True
        waited = now - found.since
        if waited >= self._patience:
            self.sentence = f"{names.NO_EXECUTOR} within {self._patience:g} s: {found.why}"
            self._end()
            return False
        if waited >= LOOK_SECONDS and found.why != self._reported:
            self._reported = found.why
            print(f"dataflow: no executor runs yet: {found.why}", file=sys.stderr, flush=True)
        return True

    def run(self) -> None:
        """Check periodically until the program is ended."""
        while True:
            time.sleep(LOOK_SECONDS)
            if not self.check(time.time()):
                return


# The program ---------------------------------------------------------------------------------------------


def run(order: Order, environ: Mapping[str, str], folder: Path) -> int:
    """Run the program to its end. Return its exit code. Raises CannotStart."""
    submit = find_spark_submit(environ)
    archive = _archive(order, environ, submit)
    argv = prepare_command(order, environ, folder, submit, archive)
    variables = {} if archive is None else class_archive.submit_variables(environ, archive)
    child = subprocess.Popen(argv, env={"PYSPARK_PYTHON": sys.executable, **environ, **variables})

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 # a handler gets both
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)

    def end() -> None:
        child.terminate()
        time.sleep(GRACE_SECONDS)
        child.kill()

    watch = ExecutorWatch(lambda: list_executor_pods(environ, order.settings), order.patience, end)
    if order.executor is not None:
        threading.Thread(target=watch.run, daemon=True).start()
    code = child.wait()
    if watch.sentence is not None:
        return _fail(watch.sentence, CAN_NOT_START)
    if code == TOO_MANY_FAILURES and order.executor is not None:
        return _fail(_GAVE_UP, code)
    return code if code >= 0 else 128 - code


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run the operator's order. Return an exit code."""
    try:
        order = read_order(Path(environ.get("DATAFLOW_CONTEXT", "")).parent / names.SPARK_FILE)
        return run(order, environ, Path(tempfile.mkdtemp(prefix="dataflow-")))
    except CannotStart as error:
        return _fail(str(error), CAN_NOT_START)
    except OSError as error:
        return _fail(f"Spark can't be started: {error.strerror}: {error.filename}", CAN_NOT_START)


def _fail(sentence: str, code: int) -> int:
    """Report a failure. Keep the program's own final report, and replace a report of an unfinished run."""
    print(f"dataflow: {sentence}", file=sys.stderr, flush=True)
    if TERMINATION_LOG.exists() and not _is_report(TERMINATION_LOG.read_text("utf-8", "replace")):
        TERMINATION_LOG.write_text(sentence, "utf-8")
    return code


def _is_report(text: str) -> bool:
    try:
        report = json.loads(text)
    except ValueError:
        return bool(text)
    return not (isinstance(report, dict) and report.get("unfinished"))


if __name__ == "__main__":
    sys.exit(main())
