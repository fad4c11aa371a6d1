"""Who may read the dashboard on a laptop: nobody but a browser that has opened the printed URL."""

import re
import signal
import socket
from pathlib import Path
from urllib.parse import quote

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Program
from tests.e2e.dashboard.serving import Dashboard, dashboard

PAGES = ("/", "/static/style.css", "/nowhere", "/job?id=nowhere")


@pytest.mark.parametrize("path", [*PAGES, "/events", "/cells?job=delay"])
def test_without_the_cookie_nothing_is_shown(served: Dashboard, path: str) -> None:
    for answer in (served.ask(path), served.ask(path, Cookie=f"dataflow_ui_{served.port}=guess")):
        assert answer.status == 401
        assert "dataflow ui" in answer.text
        assert "delay" not in answer.text


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(served: Dashboard) -> None:
    answer = served.ask(f"/?{served.url.partition('?')[2]}")
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    attributes = answer.headers["Set-Cookie"].split("; ")[1:]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(attributes)
    assert served.ask("/", Cookie=served.cookie()).status == 200


@pytest.mark.parametrize("token", ["", "x", "\u00e9".encode().decode("latin-1")])
def test_a_wrong_token_is_refused(served: Dashboard, token: str) -> None:
    assert served.ask(f"/?token={quote(token)}").status == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "[", "10.0.0.1"])
def test_a_name_that_is_not_loopback_is_refused_also_with_the_cookie(served: Dashboard, host: str) -> None:
    answer = served.ask("/", Host=host, Cookie=served.cookie())
    assert answer.status == 403
    assert "delay" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
def test_other_loopback_names_work(served: Dashboard, host: str) -> None:
    assert served.ask("/", Host=f"{host}:{served.port}", Cookie=served.cookie()).status == 200


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("known", [True, False])
def test_every_answer_has_the_security_headers(served: Dashboard, path: str, known: bool) -> None:
    answer = served.ask(path, Cookie=served.cookie()) if known else served.ask(path)
    headers = answer.headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Server"] == "OpenDataFlow"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(served: Dashboard, method: str) -> None:
    assert served.ask("/", method, Cookie=served.cookie()).status == 405


def test_it_listens_on_loopback_only(served: Dashboard) -> None:
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as client:
            assert client.connect_ex((str(address), served.port)) != 0


def test_a_port_in_use_is_one_sentence(served: Dashboard, lasting_dsn: str, tmp_path: Path) -> None:
    answer = Program(tmp_path, lasting_dsn).ask("ui", "--port", str(served.port))
    assert answer.code == ExitCode.FAILED
    assert re.fullmatch(rf"error: port {served.port} of 127\.0\.0\.1 is in use: .*--port.*\n", answer.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_also_while_a_browser_keeps_a_connection(dsn: str, tmp_path: Path, number: int) -> None:
    with dashboard(dsn, tmp_path) as running, socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {running.cookie()}\r\n\r\n".encode())
        assert client.recv(64).startswith(b"HTTP/1.1 200")
        running.process.send_signal(number)
        assert running.process.wait(timeout=60) == ExitCode.OK


def test_an_empty_database_says_how_to_begin(dsn: str, tmp_path: Path) -> None:
    with dashboard(dsn, tmp_path) as running:
        assert "dataflow apply -f" in running.page("/")
