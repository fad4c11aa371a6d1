"""The program of a driver pod: `python -m opendataflow.spark.driver`.

It reads what the operator has written beside the context (see core/kubernetes/spark_pods.py), writes Spark's settings
and the template of the executors into files, and starts `spark-submit` with them, in client mode: the JVM has its
size before it starts. It hands on signals and the exit code, and watches whether executors come up. What can be told
in a sentence is told on stderr and in the termination message. It needs Python, Spark and nothing else.
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
from opendataflow.spark.executors import trouble
from opendataflow.spark.properties import properties_text

TERMINATION_LOG = Path("/dev/termination-log")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOOK_SECONDS = 15.0
GRACE_SECONDS = 20.0
"""How long Spark may take to end once no executor comes up."""
CAN_NOT_START = 126
TOO_MANY_FAILURES = 11
"""Spark's exit code where executors have failed again and again."""

_CLASS_PATH = "spark.driver.extraClassPath"

_GAVE_UP = "executors have failed too often, so that Spark gave up; the log says how each of them ended"


class Unfit(Exception):
    """The program can't be started; the text is one sentence for people."""


@dataclass(frozen=True)
class Order:
    """What the operator has written. `main`: a file or an address; or `module`: one that is installed beside this one.
    `executor`: the template of executor pods; None: there are none.

    `patience`: seconds that executors may take to come up.
    """

    main: str
    arguments: tuple[str, ...]
    settings: Mapping[str, str]
    executor: Mapping[str, Any] | None
    patience: float
    module: str | None = None


def read_order(path: Path) -> Order:
    """Read it. Raises Unfit where it is not there, or not what this program knows."""
    try:
        told = json.loads(path.read_text("utf-8"))
        return Order(
            main=told["main"] if "module" not in told else "",
            arguments=tuple(told.get("arguments", ())),
            settings=dict(told["settings"]),
            executor=told["executor"],
            patience=float(told["patience"]),
            module=told.get("module"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise Unfit(f"{path} is not what this image knows: use an image of the operator's own version") from None


def program(main: str) -> str:
    """Return what `spark-submit` is to run: a path from the root, or an address. Raises Unfit where it is not there."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", main)
    if scheme and scheme[1] not in ("local", "file"):
        return main
    path = Path(urllib.parse.urlsplit(main).path if scheme else main).absolute()
    if not path.is_file():
        raise Unfit(f"the program {path} is not in the image: look at mainApplicationFile and image")
    return str(path)


def spark_submit(environ: Mapping[str, str]) -> str:
    """Return the path of `spark-submit`. Raises Unfit where the image has no Spark or no Java."""
    java = Path(environ.get("JAVA_HOME", ""), "bin", "java")
    if not (java.is_file() if environ.get("JAVA_HOME") else shutil.which("java", path=environ.get("PATH"))):
        raise Unfit("the image has no Java: use one that is made from opendataflow/spark")
    installed = find_spec("pyspark")
    places = [Path(environ["SPARK_HOME"])] if environ.get("SPARK_HOME") else []
    places += [Path(place) for place in (installed.submodule_search_locations or ())] if installed else []
    for place in places:
        if (place / "bin" / "spark-submit").is_file():
            return str(place / "bin" / "spark-submit")
    raise Unfit("the image has no Spark: use one that is made from opendataflow/spark")


def settings(order: Order, environ: Mapping[str, str], template: Path) -> dict[str, str]:
    """Return all settings: those that only the pod knows, beside those of the operator. Raises Unfit."""
    try:
        address = _in_url(environ["DATAFLOW_POD_IP"])
        here = {"spark.driver.host": address, "spark.driver.bindAddress": address}
        if order.executor is not None:
            host, port = _in_url(environ["KUBERNETES_SERVICE_HOST"]), environ["KUBERNETES_SERVICE_PORT"]
            here |= {
                "spark.master": f"k8s://https://{host}:{port}",
                "spark.kubernetes.executor.podTemplateFile": str(template),
            }
    except KeyError as missing:
        raise Unfit(f"{missing.args[0]} is not set: this program runs in pods that the operator makes") from None
    return {**order.settings, **here}


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def command(order: Order, environ: Mapping[str, str], folder: Path, submit: str, archive: Archive | None) -> list[str]:
    """Write the files into the folder, and return the command that reads them. Raises Unfit."""
    main = program(order.main) if order.module is None else _starter(order.module, folder)
    file, template = folder / "spark.properties", folder / "executor.json"
    quick = {} if archive is None else {_CLASS_PATH: archive.class_path}
    file.write_text(properties_text({**settings(order, environ, template), **quick}), "utf-8")
    if order.executor is not None:
        template.write_text(json.dumps(order.executor), "utf-8")
    return [submit, "--properties-file", str(file), main, *order.arguments]


def _archive(order: Order, environ: Mapping[str, str], submit: str) -> Archive | None:
    """Return the archive of classes that the JVM may start from; None where the job brings classes before Spark's."""
    return None if _CLASS_PATH in order.settings else class_archive.found(environ, Path(submit).parents[1])


def _starter(module: str, folder: Path) -> str:
    """Write a program that is the module. `spark-submit` takes files only, and lets a file import what lies beside it:
    a module's own file would have its neighbours under wrong names."""
    file = folder / "program" / "run.py"
    file.parent.mkdir()
    file.write_text(f"import runpy\n\nrunpy.run_module({module!r}, run_name='__main__')\n", "utf-8")
    return str(file)


# Executors -----------------------------------------------------------------------------------------------


def executor_pods(environ: Mapping[str, str], settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the pods of this driver's executors, as the API server has them in its memory. Raises OSError."""
    chosen = f"{names.LABEL_EXECUTOR_OF}={settings['spark.kubernetes.driver.pod.name']}"
    query = urllib.parse.urlencode({"labelSelector": chosen, "resourceVersion": "0"})
    host, port = _in_url(environ["KUBERNETES_SERVICE_HOST"]), environ["KUBERNETES_SERVICE_PORT"]
    address = f"https://{host}:{port}/api/v1/namespaces/{settings['spark.kubernetes.namespace']}/pods?{query}"
    token = (ACCOUNT / "token").read_text("utf-8").strip()
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=LOOK_SECONDS, context=trusted) as answer:
        return list(json.load(answer)["items"])


class Watch:
    """Looks whether executors come up, and ends the program where they don't within its patience.

    `pods`: asks for the pods of the executors. `sentence`: why the program was ended; None while it goes on.
    """

    def __init__(self, pods: Callable[[], list[dict[str, Any]]], patience: float, end: Callable[[], None]) -> None:
        self._pods = pods
        self._patience = patience
        self._end = end
        self._told = ""
        self.sentence: str | None = None

    def look(self, now: float) -> bool:
        """Look once; say whether to go on looking."""
        try:
            found = trouble(self._pods())
        except (OSError, ValueError, KeyError, TypeError):
            return True  # Spark itself says so where the API server does not answer
        if found is None:
            self._told = ""
            return True
        waited = now - found.since
        if waited >= self._patience:
            self.sentence = f"{names.NO_EXECUTOR} within {self._patience:g} s: {found.why}"
            self._end()
            return False
        if waited >= LOOK_SECONDS and found.why != self._told:
            self._told = found.why
            print(f"dataflow: no executor runs yet: {found.why}", file=sys.stderr, flush=True)
        return True

    def keep_looking(self) -> None:
        """Look again and again."""
        while True:
            time.sleep(LOOK_SECONDS)
            if not self.look(time.time()):
                return


# The program ---------------------------------------------------------------------------------------------


def run(order: Order, environ: Mapping[str, str], folder: Path) -> int:
    """Run it to its end; return its exit code. Raises Unfit."""
    submit = spark_submit(environ)
    archive = _archive(order, environ, submit)
    argv = command(order, environ, folder, submit, archive)
    quick = {} if archive is None else class_archive.submit_variables(environ, archive)
    child = subprocess.Popen(argv, env={"PYSPARK_PYTHON": sys.executable, **environ, **quick})

    def hand_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 # a handler gets both
        child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hand_on)

    def end() -> None:
        child.terminate()
        time.sleep(GRACE_SECONDS)
        child.kill()

    watch = Watch(lambda: executor_pods(environ, order.settings), order.patience, end)
    if order.executor is not None:
        threading.Thread(target=watch.keep_looking, daemon=True).start()
    code = child.wait()
    if watch.sentence is not None:
        return _failed(watch.sentence, CAN_NOT_START)
    if code == TOO_MANY_FAILURES and order.executor is not None:
        return _failed(_GAVE_UP, code)
    return code if code >= 0 else 128 - code


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Do it; return an exit code."""
    try:
        order = read_order(Path(environ.get("DATAFLOW_CONTEXT", "")).parent / names.SPARK_FILE)
        return run(order, environ, Path(tempfile.mkdtemp(prefix="dataflow-")))
    except Unfit as error:
        return _failed(str(error), CAN_NOT_START)
    except OSError as error:
        return _failed(f"Spark can't be started: {error.strerror}: {error.filename}", CAN_NOT_START)


def _failed(sentence: str, code: int) -> int:
    """Tell it; what the program itself has reported is kept, but not what it told while it was under way."""
    print(f"dataflow: {sentence}", file=sys.stderr, flush=True)
    if TERMINATION_LOG.exists() and not _reported(TERMINATION_LOG.read_text("utf-8", "replace")):
        TERMINATION_LOG.write_text(sentence, "utf-8")
    return code


def _reported(text: str) -> bool:
    try:
        told = json.loads(text)
    except ValueError:
        return bool(text)
    return not (isinstance(told, dict) and told.get("unfinished"))


if __name__ == "__main__":
    sys.exit(main())
