"""`inspect --check`: looks at paths, and leaves unknown what this machine has no client for. Tables: tests/e2e."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from opendataflow.model.records.look import Look
from opendataflow.names import Answer
from opendataflow.opening.looking import Expected, Looking

LOOKING = Looking("test", {})


def row(**columns: Any) -> dict[str, Any]:
    """The row of a data set with a location."""
    names = ("kind", "hostname", "database", "schemaname", "tablename", "username", "encryptedpass", "url", "format")
    return {"id": "d", "owner": None, "secret_ref": None, **dict.fromkeys(names), **columns}


def look(*, is_written: bool = True, looking: Looking = LOOKING, **columns: Any) -> Look:
    [found] = looking.look_at([Expected(row(**columns), is_written)])
    return found


def test_a_folder_with_files_exists(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    for url in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/a.csv", f"{tmp_path}/*.csv"):
        assert look(url=url).found is Answer.YES, url


def test_a_path_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    for url in (f"{tmp_path}/no", f"{tmp_path}/*.csv", f"{tmp_path}/no/deeper"):
        found = look(url=url)
        assert (found.dataset, found.found, found.who) == ("d", Answer.NO, "test")


def test_an_empty_folder_is_no_evidence_of_data(tmp_path: Path) -> None:
    assert look(url=str(tmp_path)).found is Answer.UNKNOWN


def test_of_what_is_not_written_yet_only_the_folder_above_is_looked_at(tmp_path: Path) -> None:
    assert look(url=f"{tmp_path}/no", is_written=False).found is Answer.YES
    assert look(url=f"{tmp_path}/no/deeper", is_written=False).found is Answer.NO


def test_a_relative_path_starts_in_the_folder_of_the_jobs_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    assert look(url="a.csv").found is Answer.UNKNOWN
    assert look(url="a.csv", looking=Looking("test", {}, tmp_path)).found is Answer.YES


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ({}, "no declared location of d, so nobody can look there"),
        ({"url": "s3a://bucket/d"}, "this machine has no client for s3a"),
        ({"url": "jdbc:mysql://h/d", "tablename": "t"}, "this machine has no client for jdbc:mysql"),
        ({"url": "bigquery://p/d"}, "this machine has no client for bigquery"),
        ({"kind": "topic", "hostname": "h"}, "this machine has no client for topic"),
        ({"url": "/data", "hostname": "other"}, "it is a path on another host"),
        ({"url": "/", "owner": "ns/d"}, "it is a path in the pods of a cluster"),
        ({"tablename": "t"}, "does not say where it is"),
    ],
)
def test_a_location_that_this_machine_cannot_look_at_is_unknown(location: dict[str, Any], words: str) -> None:
    found = look(**location)
    assert found.found is Answer.UNKNOWN
    assert words in found.sentence


def test_an_encrypted_password_without_a_passkey_is_unknown_and_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSKEY", "DATAFLOW_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    found = look(hostname="nohost.invalid", tablename="t", encryptedpass="sealed")
    assert found.found is Answer.UNKNOWN
    assert "set PASSKEY or DATAFLOW_KEY_FILE" in found.sentence


def test_a_location_that_does_not_answer_in_time_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Event()
    monkeypatch.setattr(Path, "stat", lambda *_, **__: answers.wait())
    found = look(url=str(tmp_path), looking=Looking("test", {}, timeout=0.1))
    answers.set()
    assert (found.found, found.sentence) == (Answer.NO, f"{tmp_path} did not answer within 0.1 seconds")
