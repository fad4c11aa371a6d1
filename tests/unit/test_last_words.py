"""What a program of the operator's image leaves for `kubectl describe pod` when it can't go on."""

from pathlib import Path

import pytest

from opendataflow.control import main
from opendataflow.errors import Refused


def test_it_leaves_its_sentence_without_the_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    last_words = tmp_path / "termination-log"
    last_words.touch()
    monkeypatch.setattr(main, "TERMINATION_LOG", last_words)
    monkeypatch.setenv("DATAFLOW_DSN", "postgresql://u:hunter2@here/d")
    with pytest.raises(SystemExit) as ended:
        main._fail(ExceptionGroup("", [Refused("here refuses u:hunter2@here")]))
    assert ended.value.code == Refused.exit_code
    assert last_words.read_text() == "here refuses u:***@here"


def test_outside_of_a_container_it_makes_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(main, "TERMINATION_LOG", tmp_path / "termination-log")
    with pytest.raises(SystemExit):
        main._fail(ExceptionGroup("", [Refused("no")]))
    assert list(tmp_path.iterdir()) == []
