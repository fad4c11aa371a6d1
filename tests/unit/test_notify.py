"""Where notifications go: what arrives, what is reported where nothing does, and that nothing hangs.

Servers here are real ones on the loopback interface.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from opendataflow.core.text.alert import text
from opendataflow.errors import InvalidInput, NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind
from opendataflow.notify.command import CommandTarget
from opendataflow.notify.delivery import DeliveryThread
from opendataflow.notify.mail import MailServer, MailTarget
from opendataflow.notify.targets import configured_targets
from opendataflow.notify.webhook import WebhookTarget
from opendataflow.settings import Notifications
from tests.unit.servers import CLOSED_PORT, MailBox, full_server, silent_server
from tests.waiting import until

SINCE = datetime(2013, 2, 1, 3, tzinfo=UTC)
FAILED = Alert("load", AlertKind.FAILED, True, SINCE, 3, "2013-02", "exit code 1: Größe 'x'")
SHORT = 1.0


# The words -----------------------------------------------------------------------------------------------


def test_one_failed_chunk_is_named_with_its_reason_and_the_command_that_shows_more() -> None:
    alert = Alert("load", AlertKind.FAILED, True, SINCE, 1, "2013-02", "exit code 1: oops")
    assert text(alert) == "job load: 1 chunk has failed (2013-02): exit code 1: oops. See: dataflow status load"


def test_of_many_failed_chunks_the_first_is_named() -> None:
    assert text(FAILED).startswith("job load: 3 chunks have failed (the first is 2013-02): exit code 1")


def test_an_open_breaker_is_reported_with_what_its_runs_ended_with() -> None:
    alert = Alert("load", AlertKind.BREAKER, True, SINCE, 5, None, "no answer")
    assert text(alert).startswith("job load: 5 chunks failed in a row, the last with: no answer. One probe at a time")


def test_a_missing_location_is_reported_with_the_first_chunk_that_needs_it() -> None:
    alert = Alert("load", AlertKind.PREFLIGHT, True, SINCE, 2, "2013-02", "there is no in/2013-02.csv")
    assert text(alert) == (
        "job load does not find its data: 2 chunks (2013-02 first): there is no in/2013-02.csv. "
        "See: dataflow status load"
    )


@pytest.mark.parametrize("kind", [AlertKind.FAILED, AlertKind.BREAKER, AlertKind.TESTS, AlertKind.PREFLIGHT])
def test_what_has_recovered_is_reported_with_its_job(kind: AlertKind) -> None:
    message = text(Alert("load", kind, False, SINCE))
    assert message.startswith("job load: ")
    assert "any more" in message or "healthy again" in message


# A command -----------------------------------------------------------------------------------------------


def command(*argv: str, environ: dict[str, str] | None = None, seconds: float = 30) -> CommandTarget:
    return CommandTarget(argv, environ or dict(os.environ), seconds)


async def test_a_command_gets_the_message_as_json_and_in_variables_and_never_through_a_shell(tmp_path: Path) -> None:
    program = tmp_path / "send.sh"
    program.write_text('#!/bin/sh\ncat > "$1"; env > "$1.env"\n')
    program.chmod(0o755)
    out = tmp_path / "out; touch never $(id)"
    await command(str(program), str(out)).deliver(FAILED)
    assert json.loads(out.read_text()) == {
        "text": text(FAILED),
        "job": "load",
        "kind": "failed",
        "event": "failing",
        "since": "2013-02-01T03:00:00+00:00",
        "count": 3,
        "data_id": "2013-02",
        "message": "exit code 1: Größe 'x'",
    }
    lines = out.with_name(f"{out.name}.env").read_text().splitlines()
    environ = dict(line.partition("=")[::2] for line in lines)
    assert {name: value for name, value in environ.items() if name.startswith("DATAFLOW_ALERT_")} == {
        "DATAFLOW_ALERT_TEXT": text(FAILED),
        "DATAFLOW_ALERT_JOB": "load",
        "DATAFLOW_ALERT_KIND": "failed",
        "DATAFLOW_ALERT_EVENT": "failing",
    }


async def test_a_command_does_not_see_what_opens_the_database_and_the_other_targets(tmp_path: Path) -> None:
    secrets = {
        "DATAFLOW_DSN": "x",
        "PASSKEY": "x",
        "DATAFLOW_NOTIFY_WEBHOOK": "x",
        "DATAFLOW_NOTIFY_SMTP_PASSWORD": "x",
    }
    target = command("sh", "-c", f"env > {tmp_path}/env", environ={**os.environ, **secrets, "MINE": "1"})
    await target.deliver(FAILED)
    seen = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "MINE" in seen
    assert not seen & set(secrets)


async def test_a_command_that_fails_is_reported_with_its_last_words() -> None:
    with pytest.raises(NotDelivered, match=r"^its exit code is 3: no such channel$"):
        await command("sh", "-c", "echo first >&2; echo no such channel >&2; exit 3").deliver(FAILED)


async def test_a_command_that_does_not_read_its_input_and_prints_much_is_fine() -> None:
    loud = "import sys; [sys.stderr.write('x' * 1000 + '\\n') for _ in range(1000)]; print('y' * 1000000)"
    await command(sys.executable, "-c", loud).deliver(FAILED)


async def test_a_command_that_is_not_there_is_reported() -> None:
    with pytest.raises(NotDelivered, match=r"^it can't be started: .*No such file"):
        await command("/nowhere/send").deliver(FAILED)


async def test_a_command_that_hangs_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/parent; wait"
    for seconds in (3, 60):
        if not (tmp_path / "parent").exists():  # else it has not come to begin
            with pytest.raises(NotDelivered, match=rf"^it has not answered within {seconds} s$"):
                await command("sh", "-c", script, seconds=seconds).deliver(FAILED)
    pids = [int((tmp_path / name).read_text()) for name in ("child", "parent")]
    await until(lambda: not any(map(alive, pids)), "all its processes have ended")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_what_a_command_leaves_in_the_background_is_not_waited_for() -> None:
    await command("sh", "-c", "sleep 20 & exit 0", seconds=15).deliver(FAILED)


# A webhook -----------------------------------------------------------------------------------------------


@contextmanager
def web_server(status: int = 200, **headers: str) -> Iterator[tuple[int, list[Any]]]:
    """A web server that answers every POST with a status; gives its port and (path, body, type) of each POST."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, json.loads(body), self.headers["Content-Type"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def do_GET(self) -> None:
            seen.append((self.path, "GET", None))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, seen
        server.shutdown()
        thread.join()


async def test_a_webhook_gets_json_with_the_text_that_chat_services_show() -> None:
    with web_server(204) as (port, seen):
        await WebhookTarget(f"http://127.0.0.1:{port}/services/T0/token?a=1").deliver(FAILED)
    [(path, body, kind)] = seen
    assert (path, kind) == ("/services/T0/token?a=1", "application/json; charset=utf-8")
    assert (body["text"], body["event"], body["job"]) == (text(FAILED), "failing", "load")


@pytest.mark.parametrize(("status", "answer"), [(403, "403 Forbidden"), (500, "500 Internal Server Error")])
async def test_a_webhook_that_refuses_is_reported_without_its_token(status: int, answer: str) -> None:
    with web_server(status) as (port, _):
        target = WebhookTarget(f"http://127.0.0.1:{port}/s3cret")
        with pytest.raises(NotDelivered, match=f"^it answers {answer}$"):
            await target.deliver(FAILED)
        assert target.name == f"webhook http://127.0.0.1:{port}/…"


async def test_a_webhook_that_is_elsewhere_now_is_not_followed_with_an_empty_request() -> None:
    with web_server(302, Location="/other") as (port, seen):
        with pytest.raises(NotDelivered, match=r"^it answers 302"):
            await WebhookTarget(f"http://127.0.0.1:{port}/s3cret").deliver(FAILED)
        assert [path for path, *_ in seen] == ["/s3cret"]


async def test_a_webhook_that_is_not_there_is_reported() -> None:
    with pytest.raises(NotDelivered, match=r"^it can't be reached: .*refused"):
        await WebhookTarget(f"http://127.0.0.1:{CLOSED_PORT}/s3cret").deliver(FAILED)


async def test_a_webhook_that_never_answers_is_given_up() -> None:
    with silent_server() as port, pytest.raises(NotDelivered, match=r"^it has not answered within 1 s$"):
        await WebhookTarget(f"http://127.0.0.1:{port}/", SHORT).deliver(FAILED)


@pytest.mark.parametrize("server", [silent_server, full_server])
@pytest.mark.parametrize("kind", ["webhook", "mail"])
async def test_a_time_out_reads_the_same_whoever_notices_it_first(
    server: Callable[[], AbstractContextManager[int]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        DeliveryThread, "run", lambda _, delivery: asyncio.to_thread(delivery)
    )  # which has a time-out of its own
    with server() as port:
        target = WebhookTarget(f"http://127.0.0.1:{port}/", 0.2) if kind == "webhook" else mail(port, seconds=0.2)
        with pytest.raises(NotDelivered, match=r"^it has not answered within 0\.2 s$"):
            await target.deliver(FAILED)


# Mail ----------------------------------------------------------------------------------------------------


def mail(port: int, user: str | None = None, password: str | None = None, seconds: float = 30) -> MailTarget:
    server = MailServer("127.0.0.1", port, False, user, password)
    return MailTarget(server, "dataflow@example.org", ("ada@example.org", "bob@example.org"), seconds)


async def test_mail_arrives_for_all_recipients_with_the_text() -> None:
    with MailBox() as box:
        await mail(box.port).deliver(FAILED)
    [(sender, recipients, message)] = box.received
    assert sender == "dataflow@example.org"
    assert recipients == ["ada@example.org", "bob@example.org"]
    assert message["Subject"] == "[dataflow] load: failed, failing"
    assert "exit code 1: Größe 'x'" in " ".join(message.get_content().split())


async def test_line_breaks_in_a_name_make_no_headers() -> None:
    with MailBox() as box:
        await mail(box.port).deliver(Alert("load\r\nBcc: eve@example.org", AlertKind.FAILED, True, SINCE, 1, "1", "x"))
    [(_, recipients, message)] = box.received
    assert "eve@example.org" not in recipients
    assert message["Bcc"] is None


async def test_a_password_is_not_sent_without_tls() -> None:
    with (
        MailBox() as box,
        pytest.raises(NotDelivered, match=r"^it offers no TLS, and the password is not sent without$"),
    ):
        await mail(box.port, "ada", "s3cret").deliver(FAILED)
    assert not any("s3cret" in line or "AUTH" in line for line in box.heard)


async def test_a_mail_server_that_refuses_everybody_is_reported() -> None:
    with (
        MailBox(refuse="RCPT") as box,
        pytest.raises(NotDelivered, match=r"^it takes mail for none of the recipients$"),
    ):
        await mail(box.port).deliver(FAILED)


async def test_a_mail_server_that_refuses_the_message_is_reported_with_its_words() -> None:
    with MailBox(refuse="MAIL") as box, pytest.raises(NotDelivered, match=r"^it answers 550 not you$"):
        await mail(box.port).deliver(FAILED)


async def test_a_mail_server_that_is_not_there_is_reported() -> None:
    with pytest.raises(NotDelivered, match=r"^it can't be reached: .*refused"):
        await mail(CLOSED_PORT).deliver(FAILED)


async def test_a_mail_server_that_never_answers_is_given_up() -> None:
    with silent_server() as port, pytest.raises(NotDelivered, match=r"^it has not answered within 1 s$"):
        await mail(port, seconds=SHORT).deliver(FAILED)


async def test_a_server_that_answers_by_drops_holds_nothing_up_and_is_asked_once_at_a_time() -> None:
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            while not stop.wait(0.05):
                connection.sendall(b"2")

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=lambda: drip(server.accept()[0]))
        accepting.start()
        target = mail(server.getsockname()[1], seconds=3)
        with pytest.raises(NotDelivered, match=r"^it has not answered within 3 s$"):
            await target.deliver(FAILED)
        with pytest.raises(NotDelivered, match=r"^the delivery before this one has not ended yet$"):
            await target.deliver(FAILED)
        stop.set()
        accepting.join()


# What the environment says -------------------------------------------------------------------------------

SMTP = "smtp://mail.example.org/?from=dataflow@example.org&to=ada@example.org"


def test_nothing_is_sent_to_nobody() -> None:
    assert configured_targets(Notifications()) == []


def test_every_target_that_is_named_is_made_and_shown_without_what_may_be_secret() -> None:
    wanted = Notifications(
        "/usr/local/bin/send --token s3cret 'a b'",
        "https://hooks.example.org/services/s3cret",
        "smtps://ada%40example.org@mail.example.org/?from=dataflow@example.org&to=a@example.org,b@example.org",
        "s3cret",
    )
    assert [target.name for target in configured_targets(wanted)] == [
        "command send",
        "webhook https://hooks.example.org/…",
        "mail to a@example.org, b@example.org by mail.example.org:465",
    ]
    assert "s3cret" not in repr(wanted)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            Notifications(command="send 's3cret"),
            "DATAFLOW_NOTIFY_COMMAND can't be divided into words: No closing quotation",
        ),
        (Notifications(command="  "), "DATAFLOW_NOTIFY_COMMAND is blank"),
        (Notifications(webhook="hooks.example.org/s3cret"), "DATAFLOW_NOTIFY_WEBHOOK is no http or https address"),
        (Notifications(webhook="file:///etc/s3cret"), "DATAFLOW_NOTIFY_WEBHOOK is no http or https address"),
        (Notifications(webhook="https:///s3cret"), "DATAFLOW_NOTIFY_WEBHOOK is no http or https address"),
        (Notifications(webhook="https://h:s3cret/"), "DATAFLOW_NOTIFY_WEBHOOK is no http or https address"),
        (Notifications(webhook="https://u:s3cret@h/"), "DATAFLOW_NOTIFY_WEBHOOK has a user in front of its host"),
        (Notifications(webhook="https://h/s3cret x"), "DATAFLOW_NOTIFY_WEBHOOK has characters that a URL can't have"),
        (Notifications(smtp="mail.example.org"), "DATAFLOW_NOTIFY_SMTP is no smtp or smtps address"),
        (Notifications(smtp=SMTP.replace("//", "//a:s3cret@")), "DATAFLOW_NOTIFY_SMTP has a password in it"),
        (Notifications(smtp=SMTP.replace("//", "//ada@")), "set DATAFLOW_NOTIFY_SMTP_PASSWORD"),
        (Notifications(smtp=SMTP, smtp_password="s3cret"), "set a user in DATAFLOW_NOTIFY_SMTP"),
        (Notifications(smtp="smtp://h/?from=a@b"), "DATAFLOW_NOTIFY_SMTP needs mail addresses in to="),
        (Notifications(smtp="smtp://h/?to=a@b"), "DATAFLOW_NOTIFY_SMTP needs mail addresses in from="),
        (Notifications(smtp="smtp://h/?from=a@b,c@d&to=a@b"), "DATAFLOW_NOTIFY_SMTP needs one sender in from="),
        (Notifications(smtp=f"{SMTP}&tls=no"), "DATAFLOW_NOTIFY_SMTP has tls= in it, which means nothing"),
    ],
)
def test_a_mistake_is_one_sentence_without_the_secret(wanted: Notifications, sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        configured_targets(wanted)
    assert sentence in str(raised.value)
    assert "s3cret" not in str(raised.value)
