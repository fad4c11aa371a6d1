"""`dataflow chunks load`: many chunks at once, all of them or none."""

from pathlib import Path

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, chunk, chunks, claim, dataset, job, open_lease, problems, tasks, transitions


@pytest.fixture
def declared(db: Connection) -> Connection:
    """a -> j -> b, with chunk 1 of a."""
    apply(db, [dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    return db


def test_a_list_declares_chunks_with_their_bounds(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "list.csv").write_text("id,from,to\n1,0,5\n2,5,9\n")
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list.csv"), "--dataset", "a")
    assert answer.out == "data set a: 2 chunks, 1 new, 1 known\n"
    assert chunk(declared, "a", "2")["bounds"] == {"from": "5", "to": "9"}
    assert (chunks(declared)["a/1"], chunks(declared)["a/2"]) == ("READY", "DECLARED")
    assert tasks(declared) == {"j/1": "QUEUED", "j/2": "WAITING"}
    assert problems(declared) == []


def test_published_chunks_are_ready_and_the_reason_is_kept(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "list").write_text("2\n3\n")
    answer = inside.ask(
        dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "a", "--publish", "--reason", "the old system"
    )
    assert answer.out == "data set a: 2 chunks, 2 new; 2 published\n"
    assert tasks(declared) == {"j/1": "QUEUED", "j/2": "QUEUED", "j/3": "QUEUED"}
    assert transitions(declared, "chunk", "a", "3") == ["DECLARED", "READY"]
    assert "the old system" in inside.ask(dataflow, "describe", "chunk", "a", "3").out


def test_a_dry_run_changes_nothing(dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("2\n")
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "a", "--publish", "--dry-run")
    assert answer.out == "data set a: 1 chunk, 1 new; 1 published; nothing was changed\n"
    assert "a/2" not in chunks(declared)


def test_where_one_can_not_be_published_none_is(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    [run] = claim(declared, open_lease(declared), "j")
    (tmp_path / "list").write_text("1\n2\n")
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "b", "--publish")
    assert answer.code == ExitCode.FAILED
    assert answer.err == (
        f"error: chunk 1 of b is being written by run {run['run']}: publish it when the run has ended; "
        "nothing was changed\n"
    )
    assert "b/2" not in chunks(declared)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"1\n2\n1\n", "line 3: 1 is in line 1 already"),
        (b"1\n\xff\n", "line 2: the file is not UTF-8 text"),
    ],
)
def test_a_list_that_is_wrong_changes_nothing(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path, content: bytes, sentence: str
) -> None:
    before = chunks(declared)
    (tmp_path / "list").write_bytes(content)
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "a")
    assert answer.code == ExitCode.USAGE
    assert sentence in answer.err
    assert chunks(declared) == before


def test_an_unknown_data_set_and_a_missing_file_are_named(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    assert declared
    (tmp_path / "list").write_text("1\n")
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "c")
    assert answer.err == "error: there is no data set c (known: a, b)\n"
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "no"), "--dataset", "a")
    assert answer.err.startswith(f"error: {tmp_path / 'no'}: can't be read: ")


def test_a_list_comes_from_standard_input_too(dataflow: Program, declared: Connection) -> None:
    answer = dataflow.ask("chunks", "load", "-", "--dataset", "a", typed='{"id": "0-9", "bounds": {"to": 10}}\n')
    assert answer.out == "data set a: 1 chunk, 1 new\n"
    assert chunk(declared, "a", "0-9")["bounds"] == {"to": 10}


def test_ten_thousand_chunks_are_loaded_at_once(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "list").write_text("".join(f"{number}\n" for number in range(10_000)))
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "a", "--publish")
    assert answer.out == "data set a: 10000 chunks, 9999 new, 1 known; 10000 published\n"
    assert set(tasks(declared).values()) == {"QUEUED"}


def test_bounds_that_overlap_are_refused_until_an_option_allows_them(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    (tmp_path / "first").write_text("id,from,to\nA-M,A,N\n")
    (tmp_path / "second").write_text("id,from,to\nA-F,A,G\n")
    first, second = (("chunks", "load", str(tmp_path / name), "--dataset", "a") for name in ("first", "second"))
    assert inside.ask(dataflow, *first).code == ExitCode.OK
    for options in ((), ("--dry-run",)):
        answer = inside.ask(dataflow, *second, *options)
        assert answer.code == ExitCode.FAILED
        assert answer.err == (
            "error: nothing was changed: 1 chunk of data set a would process rows again, because bounds overlap (A-F); "
            "to load them, add --allow-overlap\n"
        )
    assert "a/A-F" not in chunks(declared)
    assert inside.ask(dataflow, *second, "--allow-overlap").out == "data set a: 1 chunk, 1 new\n"
