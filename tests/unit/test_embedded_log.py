"""Why a server has ended, as its log says it."""

from opendataflow.store.embedded.client import exit_reason, fatal_line

EARLY = "2026-11-28 19:21:05 UTC [7] FATAL:  the database system is not yet accepting connections"
STARTS = "2026-11-28 19:21:04 UTC [1] LOG:  starting PostgreSQL"
PORT = '2026-11-28 19:21:05 UTC [1] FATAL:  could not create lock file "x"'


def test_answers_to_clients_that_come_too_early_are_no_reason() -> None:
    assert fatal_line(f"{STARTS}\n{EARLY}\n") is None


def test_the_last_line_that_is_fatal_is_the_reason() -> None:
    assert fatal_line(f"{STARTS}\n{PORT}\n{EARLY}\n") == PORT
    assert exit_reason(f"{STARTS}\n{PORT}\nand more\n") == PORT


def test_an_error_of_a_program_is_the_reason_also_where_it_tidies_up_afterwards() -> None:
    sentence = 'initdb: error: could not access directory "x": Permission denied'
    assert exit_reason(f'creating\n{sentence}\ninitdb: removing data directory "x"\n') == sentence


def test_where_nothing_is_fatal_the_last_line_is_reported() -> None:
    assert exit_reason(f"{STARTS}\n{EARLY}\n\n") == EARLY
    assert exit_reason("\n") == "it printed nothing"
