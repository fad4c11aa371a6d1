"""Atomic replacement of files and folders."""

from contextlib import suppress
from pathlib import Path

import pytest

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.storage import atomic_replace
from opendataflow.spark.pipeline.storage.atomic_replace import staged_file, staged_folder


def write(target: Path, text: str) -> None:
    with staged_folder(target) as staging:
        staging.mkdir()
        (staging / "part").write_text(text)


def write_half(target: Path) -> None:
    """Fail in the middle."""
    with staged_folder(target) as staging:
        staging.mkdir()
        (staging / "part").write_text("half")
        raise ZeroDivisionError


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_second_result_takes_the_place_of_the_first(tmp_path: Path) -> None:
    target = tmp_path / "out" / "day=1"
    write(target, "old")
    write(target, "new")
    assert (target / "part").read_text() == "new"
    assert left(target.parent) == {"day=1", ".day=1.lock"}


def test_without_an_atomic_exchange_folders_are_renamed_in_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_replace, "_exchange", lambda _one, _other: False)
    write(tmp_path / "a", "old")
    write(tmp_path / "a", "new")
    assert (tmp_path / "a" / "part").read_text() == "new"
    assert left(tmp_path) == {"a", ".a.lock"}


def test_a_failure_leaves_the_target_unchanged(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError):
        write_half(tmp_path / "a")
    assert (tmp_path / "a" / "part").read_text() == "old"
    assert left(tmp_path) == {"a", ".a.lock"}


def test_the_old_folder_of_a_killed_attempt_is_restored(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    (tmp_path / "a").rename(tmp_path / ".a.old")
    (tmp_path / ".a.staging").mkdir()
    with pytest.raises(ZeroDivisionError):
        write_half(tmp_path / "a")
    assert (tmp_path / "a" / "part").read_text() == "old"
    assert left(tmp_path) == {"a", ".a.lock"}


def test_a_swap_that_fails_halfway_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_staging(_one: Path, _other: Path) -> bool:
        (tmp_path / ".a.staging" / "part").unlink()
        (tmp_path / ".a.staging").rmdir()
        return False

    write(tmp_path / "a", "old")
    monkeypatch.setattr(atomic_replace, "_exchange", without_staging)
    with pytest.raises(StepFailed, match="can't be written: No such file or directory"):
        write(tmp_path / "a", "new")
    assert (tmp_path / "a" / "part").read_text() == "old"
    assert left(tmp_path) == {"a", ".a.lock"}


def test_the_folder_behind_a_link_is_replaced(tmp_path: Path) -> None:
    write(tmp_path / "disk" / "b", "old")
    (tmp_path / "a").symlink_to("disk/b")
    write(tmp_path / "a", "new")
    write(tmp_path / "a", "newer")
    assert (tmp_path / "disk" / "b" / "part").read_text() == "newer"
    assert left(tmp_path) == {"a", "disk"}
    assert left(tmp_path / "disk") == {"b", ".b.lock"}


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StepFailed, match="file: can't be written: File exists"), staged_folder(tmp_path / "file" / "a"):
        pass


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out" / "a.csv"
    with suppress(ZeroDivisionError), staged_file(target) as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert left(target.parent) == set()
    with staged_file(target) as path:
        path.write_text("whole")
    assert target.read_text() == "whole"


def fill(path: Path) -> None:
    path.symlink_to("/dev/full")
    path.write_text("new")


def fill_folder(target: Path) -> None:
    with staged_folder(target) as staging:
        staging.mkdir()
        fill(staging / "part")


def fill_file(target: Path) -> None:
    with staged_file(target) as path:
        fill(path)


def test_a_full_disk_is_reported_and_leaves_the_target_unchanged(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    sentence = "there is no space left on its disk; free some, or write to another path"
    with pytest.raises(StepFailed, match=f"/a: {sentence}"):
        fill_folder(tmp_path / "a")
    with pytest.raises(StepFailed, match=rf"/b\.csv: {sentence}"):
        fill_file(tmp_path / "b.csv")
    assert (tmp_path / "a" / "part").read_text() == "old"
    assert left(tmp_path) == {"a", ".a.lock"}
