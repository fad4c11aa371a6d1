"""The program of driver pods: its order, its errors, its watch of executors."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opendataflow import names
from opendataflow.spark import driver, executors
from tests.unit.test_command import parse_properties
from tests.waiting import wait_for_file

SUBMIT = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done > "$SEEN/words"
cp "$2" "$SEEN/properties"
test -n "$TEMPLATE" || cp "$(dirname "$2")/executor.json" "$SEEN/" 2>/dev/null
trap 'echo TERM > "$SEEN/signal"; exit 9' TERM
echo up > "$SEEN/up"
test -z "$LAST" || while :; do sleep 0.05; done
exit "$CODE"
"""
CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class Pod:
    """A folder with what a driver's pod has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("spark/bin", "java/bin", "context", "seen"):
            (folder / name).mkdir(parents=True)
        for name in ("spark/bin/spark-submit", "java/bin/java"):
            (folder / name).write_text(SUBMIT)
            (folder / name).chmod(0o755)
        self.program = folder / "etl.py"
        self.program.write_text("")
        self.order: dict[str, Any] = {
            "main": str(self.program),
            "arguments": ["--day", "$x 'y'", ""],
            "settings": {"spark.app.name": "load 1.0"},
            "executor": None,
            "patience": 60.0,
        }
        self.environ = {
            **os.environ,
            "SPARK_HOME": str(folder / "spark"),
            "JAVA_HOME": str(folder / "java"),
            "DATAFLOW_CONTEXT": str(folder / "context" / "context.json"),
            "DATAFLOW_POD_IP": "10.1.2.3",
            "SEEN": str(folder / "seen"),
            "TMPDIR": str(folder),
            "CODE": "0",
        }

    def start(self) -> "subprocess.Popen[str]":
        self.context("spark.json").write_text(json.dumps(self.order))
        argv = [sys.executable, "-m", "opendataflow.spark.driver"]
        return subprocess.Popen(argv, env=self.environ, stderr=subprocess.PIPE, text=True)

    def run(self) -> tuple[int, str]:
        started = self.start()
        _, output = started.communicate(timeout=300)
        return started.returncode, output

    def context(self, name: str) -> Path:
        return self.folder / "context" / name

    def seen(self, name: str) -> str:
        return (self.folder / "seen" / name).read_text("utf-8")

    def settings(self) -> dict[str, str]:
        return parse_properties(self.seen("properties"))


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_spark_gets_its_settings_in_a_file_and_the_arguments_literally(pod: Pod) -> None:
    pod.order["settings"]["spark.x"] = " a=b\\:#\n$"
    assert pod.run() == (0, "")
    option, _, *rest = pod.seen("words").split("\n")
    assert [option, *rest] == ["--properties-file", str(pod.program), "--day", "$x 'y'", "", ""]
    assert pod.settings() == {
        "spark.app.name": "load 1.0",
        "spark.x": " a=b\\:#\n$",
        "spark.driver.host": "10.1.2.3",
        "spark.driver.bindAddress": "10.1.2.3",
    }


def test_a_module_is_started_by_a_program_of_its_own_with_nothing_beside_it(pod: Pod) -> None:
    del pod.order["main"], pod.order["arguments"]
    pod.order["module"] = "opendataflow.names"
    assert pod.run() == (0, "")
    _, _, program, *rest = pod.seen("words").split("\n")
    assert rest == [""]
    assert [path.name for path in Path(program).parent.iterdir()] == ["run.py"]
    assert "opendataflow.names" in Path(program).read_text()


def test_a_driver_with_executors_finds_the_api_server_and_their_template(pod: Pod) -> None:
    pod.order["executor"] = {"kind": "Pod", "metadata": {"labels": {"a": "ü"}}}
    pod.environ |= {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert pod.run() == (0, "")
    assert pod.settings()["spark.master"] == "k8s://https://[fd00::1]:6443"
    assert pod.settings()["spark.kubernetes.executor.podTemplateFile"].endswith("/executor.json")
    assert json.loads(pod.seen("executor.json")) == pod.order["executor"]


@pytest.mark.parametrize("code", [0, 1, 7, 143])
def test_the_exit_code_of_the_program_is_that_of_the_pod(pod: Pod, code: int) -> None:
    pod.environ["CODE"] = str(code)
    assert pod.run() == (code, "")


def test_a_signal_reaches_spark(pod: Pod) -> None:
    pod.environ["LAST"] = "1"
    started = pod.start()
    wait_for_file(pod.folder / "seen" / "up", started)
    started.send_signal(signal.SIGTERM)
    started.communicate(timeout=300)
    assert started.returncode == 9
    assert pod.seen("signal") == "TERM\n"


def test_repeated_failures_of_executors_are_reported(pod: Pod) -> None:
    pod.order["executor"] = {}
    pod.environ |= {**CLUSTER, "CODE": "11"}
    code, output = pod.run()
    assert code == 11
    assert output == (
        "dataflow: executors have failed too often, so that Spark gave up; the log says how each of them ended\n"
    )


@pytest.mark.parametrize("main", ["{}", "local://{}", "file://{}"])
def test_a_program_is_a_path_in_the_image(main: str, tmp_path: Path) -> None:
    program = tmp_path / "etl.py"
    program.write_text("")
    assert driver.find_program(main.format(program)) == str(program)


@pytest.mark.parametrize("main", ["https://h/etl.py", "s3a://b/etl.py", "gs://b/etl.py"])
def test_an_address_is_left_to_spark(main: str) -> None:
    assert driver.find_program(main) == main


def test_a_missing_program_is_reported(pod: Pod) -> None:
    pod.order["main"] = "local:///app/etl.py"
    assert pod.run() == (
        126,
        "dataflow: the program /app/etl.py is not in the image: look at mainApplicationFile and image\n",
    )


def test_an_image_without_java_is_reported(pod: Pod) -> None:
    pod.environ["JAVA_HOME"] = str(pod.folder / "none")
    assert pod.run() == (126, "dataflow: the image has no Java: use one that is made from opendataflow/spark\n")


def test_an_image_without_spark_is_reported(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "find_spec", lambda _: None)
    with pytest.raises(
        driver.CannotStart, match="the image has no Spark: use one that is made from opendataflow/spark"
    ):
        driver.find_spark_submit({**pod.environ, "SPARK_HOME": str(pod.folder)})


def test_an_order_of_another_version_is_reported(pod: Pod) -> None:
    del pod.order["settings"]
    code, output = pod.run()
    assert code == 126
    assert output.endswith("spark.json is not what this image knows: use an image of the operator's own version\n")


def test_a_program_outside_of_a_pod_is_reported(pod: Pod) -> None:
    del pod.environ["DATAFLOW_POD_IP"]
    assert pod.run() == (
        126,
        "dataflow: DATAFLOW_POD_IP is not set: this program runs in pods that the operator makes\n",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "it can't"),
        ('{"rows": 1}', '{"rows": 1}'),
        ("words", "words"),
        ('{"steps": [["read a", "RUNNING"]], "unfinished": true}', "it can't"),
    ],
)
def test_a_report_of_the_program_is_kept(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    log.write_text(before)
    monkeypatch.setattr(driver, "TERMINATION_LOG", log)
    assert driver._fail("it can't", 126) == 126
    assert log.read_text() == after
    assert "it can't" in capsys.readouterr().err


# Executors ---------------------------------------------------------------------------------------------------

CREATED = "2026-11-28T10:00:00Z"
BEGAN = 1795860000.0


def executor(phase: str, name: str = "e1", metadata: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": CREATED, **(metadata or {})}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


UNSCHEDULABLE: dict[str, Any] = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available:\n no cpu."}]
}


def waiting(reason: str, **more: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, **more}}}]}


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], None),
        ([executor("Running")], None),
        ([executor("Pending"), executor("Running", "e2")], None),
        ([executor("Failed"), executor("Succeeded", "e2")], None),
        ([executor("Pending", metadata={"deletionTimestamp": CREATED})], None),
        ([executor("Pending", **UNSCHEDULABLE)], "e1 is unschedulable: 0/3 nodes are available: no cpu."),
        (
            [executor("Pending", **waiting("ImagePullBackOff", message="no such image"))],
            "e1 can't start (ImagePullBackOff): no such image",
        ),
        ([executor("Pending", **waiting("ContainerCreating"))], "e1 has not started; its events say why"),
        (
            [executor("Pending", "e2", {"creationTimestamp": "2026-11-28T10:05:00Z"}), executor("Pending")],
            "e1 has not started; its events say why",
        ),
    ],
)
def test_reasons_for_missing_executors(pods: list[dict[str, Any]], why: str | None) -> None:
    found = executors.find_missing_executor(pods)
    assert (found and found.why) == why
    assert found is None or found.since == BEGAN


def test_a_driver_is_ended_once_no_executor_came_up_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []
    watch = driver.ExecutorWatch(lambda: [executor("Pending", **UNSCHEDULABLE)], 60, lambda: ended.append("now"))
    assert watch.check(BEGAN + 5)
    assert capsys.readouterr().err == ""
    assert watch.check(BEGAN + 20)
    assert watch.check(BEGAN + 59)
    assert capsys.readouterr().err == (
        "dataflow: no executor runs yet: e1 is unschedulable: 0/3 nodes are available: no cpu.\n"
    )
    assert not watch.check(BEGAN + 60)
    assert ended == ["now"]
    assert watch.sentence == (
        "no executor has come up within 60 s: e1 is unschedulable: 0/3 nodes are available: no cpu."
    )
    assert watch.sentence.startswith(names.NO_EXECUTOR)


def test_an_api_server_that_does_not_answer_ends_nothing() -> None:
    def away() -> list[dict[str, Any]]:
        raise TimeoutError

    watch = driver.ExecutorWatch(away, 0, lambda: pytest.fail("nothing is known"))
    assert watch.check(BEGAN)
    assert watch.sentence is None
