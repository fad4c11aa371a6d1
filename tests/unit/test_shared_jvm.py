"""A run uses the JVM of a holder only if it would start the same one, and if the JVM answers in time."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from opendataflow.spark.shared import jvm
from opendataflow.spark.shared.jvm import Holder
from opendataflow.spark.shared.jvm_start import Start

START = Start("/project", "4.3.0", "", {"spark.jars": "postgresql.jar"})


@contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A program that answers a connection; None: it never answers. Yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(100)
                if answer is not None:
                    connection.sendall(answer if asked == b"A\nsecret\ne\n" else b"!x\n")
                connection.recv(100)

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])


def holder(folder: Path, port: int = 1) -> Holder:
    START.write(folder)
    environ = {
        "DATAFLOW_HOLDER": str(folder),
        "DATAFLOW_CONTEXT": "/runs/p-r1/context.json",
        "PYSPARK_GATEWAY_PORT": str(port),
        "PYSPARK_GATEWAY_SECRET": "secret",
    }
    found = Holder.take(environ)
    assert found is not None
    assert [*environ] == ["DATAFLOW_CONTEXT"]
    return found


def test_a_run_without_a_holder_has_none() -> None:
    assert Holder.take({"DATAFLOW_CONTEXT": "/runs/p-r1/context.json"}) is None


def test_a_jvm_that_answers_and_was_started_alike_can_be_used(tmp_path: Path) -> None:
    with listening(b"!yv\n") as port:
        assert holder(tmp_path, port).find_obstacle(START) is None


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (replace(START, folder="/clones/next"), "it was started with another folder"),
        (replace(START, spark="4.4.0", settings={}), "it was started with another spark and another settings"),
    ],
)
def test_a_jvm_that_was_started_in_another_way_is_not_used(tmp_path: Path, wanted: Start, sentence: str) -> None:
    assert holder(tmp_path).find_obstacle(wanted) == sentence


@pytest.mark.parametrize("answer", [None, b"!x\n", b""], ids=["silent", "refusing", "closing"])
def test_a_jvm_that_does_not_admit_the_run_in_time_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setattr(jvm, "ANSWER_SECONDS", 0.1)
    with listening(answer) as port:
        assert (holder(tmp_path, port).find_obstacle(START) or "").startswith("it does not answer (")


def test_a_jvm_that_has_ended_is_not_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert (holder(tmp_path, port).find_obstacle(START) or "").startswith("it does not answer (")


@pytest.mark.parametrize("text", ["", "[]", '{"folder": "/project"}', None])
def test_an_unknown_start_is_not_used(tmp_path: Path, text: str | None) -> None:
    found = holder(tmp_path)
    (tmp_path / "start.json").unlink()
    if text is not None:
        (tmp_path / "start.json").write_text(text)
    assert (found.find_obstacle(START) or "").startswith("it does not answer (")


def test_a_run_learns_how_its_jvm_has_ended(tmp_path: Path) -> None:
    found = holder(tmp_path)
    assert found.exit_code(0) is None
    (tmp_path / "exit").write_text("-9")
    assert found.exit_code(0) == -9
