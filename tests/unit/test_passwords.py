"""Passwords of runs: which of them are hidden in what a run prints."""

import pytest

from opendataflow.engine.passwords import Passwords, inherited_passwords
from opendataflow.opening.passkey import Passkey


def test_every_variable_that_holds_a_password_counts() -> None:
    environ = {"PGPASSWORD": "a1", "orders_password": "b2", "MYSQL_PWD": "c3", "DB_PASSWD": "d4", "EMPTY_PASSWORD": ""}
    others = {"PWD": "/work", "OLDPWD": "/", "HOME": "/root", "PASSWORD_FILE": "/x", "PASSKEY": "k"}
    assert sorted(inherited_passwords({**environ, **others})) == ["a1", "b2", "c3", "d4"]


def test_a_password_that_a_run_inherits_is_hidden_in_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2!")
    redact = Passwords(Passkey(asks=False)).redactor()
    assert redact is not None
    assert redact("connecting with hunter2!\n") == "connecting with ***\n"


def test_without_passwords_the_output_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PWD": "/work", "HOME": "/root"})
    assert Passwords(Passkey(asks=False)).redactor() is None
