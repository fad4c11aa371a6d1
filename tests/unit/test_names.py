"""Names: shell variables, runs, and exit codes of the reference."""

import re
from pathlib import Path
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from opendataflow.names import ExitCode, pod_name, run_name, shell_name

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"


def test_letters_that_a_shell_name_can_not_have_become_underscores() -> None:
    assert shell_name("dwh.orders-2013 é") == "dwh_orders_2013__"


def test_a_shell_name_does_not_begin_with_a_digit() -> None:
    assert shell_name("2013") == "_2013"


def test_a_shell_name_stays_as_it_is() -> None:
    assert shell_name("_Orders_7") == "_Orders_7"


@given(st.text(min_size=1))
def test_every_text_becomes_a_shell_name(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", shell_name(text))


def test_a_run_is_named_after_its_job_and_its_number() -> None:
    assert run_name("Load orders.daily", 17) == "load-orders-daily-r17"


def test_a_job_without_a_latin_letter_in_front_has_one_put_there() -> None:
    assert run_name("2013", 1) == "j-2013-r1"
    assert run_name("日本", 1) == "j-r1"


def test_a_long_job_is_cut_and_leaves_no_dash_at_the_cut() -> None:
    assert run_name("a" * 18 + "-" + "b" * 30, 5) == "a" * 18 + "-r5"


@given(st.text(min_size=1), st.integers(1, 2**63 - 1))
def test_every_name_of_a_run_is_a_dns_label_of_at_most_40_characters(job: str, run: int) -> None:
    name = run_name(job, run)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 40


@given(st.text(min_size=1), st.integers(1, 2**63 - 1), st.uuids())
def test_the_pod_of_a_run_has_a_name_that_nobody_can_predict(job: str, run: int, nonce: UUID) -> None:
    name = pod_name(job, run, str(nonce))
    assert name == f"{run_name(job, run)}-{str(nonce)[:6]}"
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= 47  # Spark needs 16 characters more for the names of executors


@given(st.text(min_size=1), st.text(min_size=1), st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_two_runs_never_share_a_name(one: str, other: str, first: int, second: int) -> None:
    assert first == second or run_name(one, first) != run_name(other, second)


def test_the_reference_lists_exactly_the_exit_codes_of_the_program() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", REFERENCE.read_text("utf-8"), re.MULTILINE)
    assert [(name, int(code)) for code, name in rows] == [(code.name, code.value) for code in ExitCode]
