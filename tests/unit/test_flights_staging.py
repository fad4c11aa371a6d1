"""Publishing a partition: whole or not at all, the newest fence alone, nothing left behind."""

import fcntl
from pathlib import Path

import pytest

from staging import OlderFenceError, staged


def publish(target: Path, fence: int, text: str) -> None:
    with staged(target, fence) as folder:
        (folder / "part.txt").write_text(text, encoding="utf-8")


def names(folder: Path) -> list[str]:
    """What lies in a folder, but for the lock's file."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "results" / "month=2013-01"


def test_what_was_written_appears_under_the_target_with_its_fence(target: Path) -> None:
    publish(target, 7, "seven")
    assert names(target.parent) == [target.name]
    assert names(target) == ["_fence", "part.txt"]
    assert (target / "part.txt").read_text(encoding="utf-8") == "seven"


def test_nothing_is_to_be_seen_before_the_block_has_ended(target: Path) -> None:
    with staged(target, 7) as folder:
        (folder / "part.txt").write_text("half", encoding="utf-8")
        assert not target.exists()
        assert folder.name.startswith(".")


def test_a_newer_attempt_replaces_the_whole_partition(target: Path) -> None:
    publish(target, 7, "seven")
    (target / "only-in-seven.txt").touch()
    publish(target, 8, "eight")
    assert names(target.parent) == [target.name]
    assert names(target) == ["_fence", "part.txt"]
    assert (target / "part.txt").read_text(encoding="utf-8") == "eight"


def test_the_same_attempt_may_publish_twice(target: Path) -> None:
    publish(target, 7, "once")
    publish(target, 7, "twice")
    assert (target / "part.txt").read_text(encoding="utf-8") == "twice"


def test_an_attempt_older_than_the_published_one_does_not_begin(target: Path) -> None:
    publish(target, 8, "eight")
    with pytest.raises(OlderFenceError, match="fence 7, a newer one with fence 8"):
        publish(target, 7, "seven")
    assert (target / "part.txt").read_text(encoding="utf-8") == "eight"
    assert names(target.parent) == [target.name]


def test_an_attempt_that_was_overtaken_while_it_wrote_does_not_publish(target: Path) -> None:
    def overtaken() -> None:
        with staged(target, 7) as folder:
            publish(target, 8, "eight")
            folder.mkdir(exist_ok=True)  # the newer attempt has removed it; a writer would make it again

    with pytest.raises(OlderFenceError):
        overtaken()
    assert (target / "part.txt").read_text(encoding="utf-8") == "eight"
    assert names(target.parent) == [target.name]


def test_an_older_attempt_does_not_begin_while_a_newer_one_writes(target: Path) -> None:
    with staged(target, 8) as folder:
        with pytest.raises(OlderFenceError):
            publish(target, 7, "seven")
        assert folder.is_dir()


def test_a_failed_attempt_leaves_the_old_partition_and_nothing_else(target: Path) -> None:
    def failing() -> None:
        with staged(target, 8) as folder:
            (folder / "part.txt").write_text("half", encoding="utf-8")
            raise ValueError("the disk is full")

    publish(target, 7, "seven")
    with pytest.raises(ValueError, match="the disk is full"):
        failing()
    assert (target / "part.txt").read_text(encoding="utf-8") == "seven"
    assert names(target.parent) == [target.name]


def test_what_killed_attempts_left_is_removed_by_the_next_one(target: Path) -> None:
    target.parent.mkdir(parents=True)
    for leftover in (f".{target.name}.staging-5", f".{target.name}.old-6"):
        (target.parent / leftover).mkdir()
    publish(target, 7, "seven")
    assert names(target.parent) == [target.name]


def test_the_leftovers_of_another_partition_are_not_touched(target: Path) -> None:
    target.parent.mkdir(parents=True)
    other = target.parent / ".month=2013-02.staging-5"
    other.mkdir()
    publish(target, 7, "seven")
    assert other.is_dir()


def test_an_attempt_killed_between_the_two_renames_still_counts_as_newer(target: Path) -> None:
    publish(target, 7, "seven")
    target.rename(target.with_name(f".{target.name}.old-8"))
    with pytest.raises(OlderFenceError):
        publish(target, 7, "seven again")


def test_the_lock_is_free_while_the_block_runs_so_that_a_newer_attempt_can_overtake(target: Path) -> None:
    with staged(target, 7), target.with_name(f".{target.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
