"""The operator's log lines."""

import io
import json
import logging
import re
from collections.abc import Iterator

import kopf
import pytest

from opendataflow.control.monitoring.logs import Format, log_fields, set_up_logging

ENVIRON = {
    "DATAFLOW_DSN": "postgresql://op:very%2Fsecret@db:5432/flow",
    "DATAFLOW_NOTIFY_WEBHOOK": "https://hooks.example/T0KEN",
    "PGPASSWORD": "opened-before",
    "HOME": "/root",
}


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


def logs(form: Format, level: str = "INFO", environ: dict[str, str] | None = None) -> io.StringIO:
    """Set logging up; return where its lines go."""
    stream = io.StringIO()
    set_up_logging(level, form, ENVIRON if environ is None else environ, stream)
    return stream


def test_a_line_of_json_has_the_fields_that_are_known() -> None:
    stream = logs("json")
    logging.getLogger("opendataflow.x").info(
        "it is %s", "là", extra=log_fields(job="load", data_id="1.10", run=7, fence=9)
    )
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*(\+00:00|Z)", line.pop("time"))
    assert line == {
        "level": "INFO",
        "logger": "opendataflow.x",
        "message": "it is là",
        "job": "load",
        "data_id": "1.10",
        "run": 7,
        "fence": 9,
    }


def test_a_line_of_text_has_them_behind_it() -> None:
    stream = logs("text")
    logging.getLogger("x").warning("slow", extra=log_fields(job="load", run=7))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ WARNING x: slow \(job=load run=7\)\n", stream.getvalue())


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("secret", ["very/secret", "https://hooks.example/T0KEN", "opened-before"])
def test_a_secret_is_hidden_wherever_it_comes_from(form: Format, secret: str) -> None:
    stream = logs(form)
    try:
        raise OSError(f"can't reach {secret}")
    except OSError:
        logging.getLogger("a.library").exception("with %s", secret, extra={"job": secret})
    text = stream.getvalue()
    assert secret not in text
    assert json.dumps(secret)[1:-1] not in text
    assert text.count("***") >= 3
    assert "OSError" in text


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db password=pass-word user=op",
        r"host=db password='pass-word'",
        "postgresql://op@db/flow?sslmode=require&password=pass%2Dword",
    ],
)
def test_a_password_in_another_place_of_an_address_is_hidden(dsn: str) -> None:
    stream = logs("text", environ={"DATAFLOW_DSN": dsn})
    logging.getLogger("x").info("pass-word of db")
    assert "*** of db" in stream.getvalue()


def test_a_traceback_stays_in_its_line_of_json() -> None:
    stream = logs("json")
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: wrong" in json.loads(line)["traceback"]


def test_lines_of_kopf_go_through_it_with_the_resource_they_are_about() -> None:
    stream = logs("json")
    logger = kopf.LocalObjectLogger(
        body=kopf.Body({"kind": "DataFlowJob", "metadata": {"name": "load", "namespace": "team"}}),
        settings=kopf.OperatorSettings(),
    )
    logger.info("nobody asked")
    logger.warning("patching failed")
    line = json.loads(stream.getvalue())
    assert line["message"] == "patching failed"
    assert line["resource"]["name"] == "load"
    assert not {"settings", "k8s_skip"} & line.keys()
