"""Known secrets don't stay in a text, in whichever form programs print them; other text stays as it is."""

import base64
import html
import json
import shlex
import subprocess
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.crypto.redact import MASK, Secrets

AWKWARD = [
    "hunter2!",
    "p@ss'w\"o$rd`with\\all",
    "line1\nline2\ttab",
    "flüge 日本 🚀",
    "a/b+c=d&e f",
    "''''",
    "$(id) {x} * ?",
    "\x7f\x01é~",
]
SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=4, max_size=30)
AROUND = st.text("xyz \n", max_size=7)


def redact(text: str, *secrets: str) -> str:
    return Secrets({f"secret {number}": secret for number, secret in enumerate(secrets)}).redact(text)


def test_every_occurrence_is_replaced() -> None:
    assert redact("hunter2 is (hunter2), hunter2", "hunter2") == "*** is (***), ***"


def test_a_text_without_secrets_stays_as_it_is() -> None:
    assert redact("nothing to see\n", "hunter2") == "nothing to see\n"
    assert redact("hunter2") == "hunter2"


def test_the_longest_secret_counts_where_one_is_in_another() -> None:
    assert redact("hunter22 hunter2", "hunter2", "hunter22") == "*** ***"
    assert redact("xhunter2x", "hunter2", "xhunter2x") == "***"


def test_of_secrets_that_overlap_no_rest_stays() -> None:
    assert redact("<abcdefgh>", "abcdef", "defgh") == "<***>"
    assert redact("<aaaaaa>", "aaaa") == "<***>"


def test_secrets_side_by_side_are_two() -> None:
    assert redact("hunter2hunter2", "hunter2") == "******"


def test_a_short_secret_is_reported_by_its_name_and_left() -> None:
    secrets = Secrets({"a_password": "abc", "b_password": "abcd", "c_password": ""})
    assert secrets.too_short == ("a_password",)
    assert secrets.redact("abc abcd") == "abc ***"


def test_nothing_of_it_shows_the_secrets() -> None:
    secrets = Secrets({"a_password": "hunter2"})
    assert "hunter2" not in f"{secrets!r} {secrets}"


@pytest.mark.parametrize("secret", AWKWARD)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_it_is_found_in_json(secret: str, ascii_only: bool) -> None:
    assert redact(json.dumps({"p": secret}, ensure_ascii=ascii_only), secret) == '{"p": "***"}'


def test_it_is_found_in_json_of_other_writers() -> None:
    assert redact(r'"a\/b\u00FC"', "a/bü") == '"***"'


@pytest.mark.parametrize("secret", AWKWARD)
def test_it_is_found_quoted_for_a_shell(secret: str) -> None:
    assert redact(f"psql {shlex.quote(secret)} -q", secret) in ("psql '***' -q", "psql *** -q")


@pytest.mark.parametrize("secret", [secret for secret in AWKWARD if secret.isascii() and secret.isprintable()])
def test_it_is_found_in_what_shells_print(secret: str) -> None:
    """`set -x` of dash and bash, and bash's `printf %q`."""
    for shell, script in (("sh", 'set -x; : "$1"'), ("bash", 'set -x; : "$1"'), ("bash", 'printf %q "$1"')):
        done = subprocess.run([shell, "-c", script, shell, secret], capture_output=True, text=True, check=True)
        redacted = redact(done.stdout + done.stderr, secret)
        assert redacted.strip() in ("***", "+ : ***", "+ : '***'"), shell


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_it_is_found_as_bash_quotes_it_whichever_character_it_has(locale: str) -> None:
    letters = [chr(number) for number in [*range(1, 128), 0xFC, 0x65E5, 0x1F680]]
    secrets = [*AWKWARD, *(word for letter in letters for word in (f"{letter}abcd", f"ab{letter}cd", f"abcd{letter}"))]
    command = ["bash", "-c", 'printf "%q\\n" "$@"', "bash", *secrets]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": locale})
    for secret, quoted in zip(secrets, done.stdout.splitlines(), strict=True):
        assert redact(quoted, secret) in ("***", "$'***'"), (quoted, secret)


def test_it_is_found_in_double_quotes_of_a_shell() -> None:
    assert redact(r'''password="a\"b\$c\`d\\e"''', r"""a"b$c`d\e""") == 'password="***"'


def test_its_lines_are_found_alone() -> None:
    assert (
        redact("saw: first line\nand\nsaw: second line\n", "first line\nsecond line\n") == "saw: ***\nand\nsaw: ***\n"
    )


@pytest.mark.parametrize("secret", AWKWARD)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_it_is_found_in_json_within_json(secret: str, ascii_only: bool) -> None:
    inner = json.dumps({"p": secret}, ensure_ascii=ascii_only)
    for outer in (json.dumps(inner), json.dumps(inner, ensure_ascii=False)):
        assert redact(outer, secret) == json.dumps('{"p": "***"}')


@pytest.mark.parametrize("secret", ["it's 'x'", 'a"b"c', r"a\'b'", "a'b\"c"])
def test_it_is_found_as_a_literal_or_name_of_sql(secret: str) -> None:
    doubled = secret.replace("\\", "\\\\")
    for literal in (
        "'" + secret.replace("'", "''") + "'",
        '"' + secret.replace('"', '""') + '"',
        "E'" + doubled.replace("'", "''") + "'",
        "'" + doubled.replace("'", "\\'") + "'",
    ):
        assert redact(f"ALTER USER u PASSWORD {literal};", secret).count("***") == 1, literal
        assert secret not in redact(literal, secret)


@pytest.mark.parametrize("secret", ["a<b>&c", "it's", "say \"x\" & 'y'"])
@pytest.mark.parametrize("escape", [html.escape, lambda text: html.escape(text, quote=False),
                                    lambda text: html.escape(text).replace("&#x27;", "&#39;"),
                                    lambda text: html.escape(text).replace("&quot;", "&#34;")])  # fmt: skip
def test_it_is_found_in_html(secret: str, escape: Callable[[str], str]) -> None:
    assert redact(f"<td>{escape(secret)}</td>", secret) == "<td>***</td>"


@pytest.mark.parametrize("secret", AWKWARD)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    ", "\\n"])
@pytest.mark.parametrize("width", [1, 4, 7])
def test_it_is_found_in_base64_that_is_broken_into_lines(secret: str, end: str, width: int) -> None:
    encoded = base64.b64encode(f"user:{secret}:x".encode()).decode()
    broken = end.join(encoded[start : start + width] for start in range(0, len(encoded), width))
    redacted = redact(f"<{broken}>", secret)
    assert redacted.count(MASK) == 1
    rest = "".join(redacted.replace(end, "").strip("<>").split(MASK))
    assert len(rest.rstrip("=")) <= len(base64.b64encode(b"user::x"))


@pytest.mark.parametrize("secret", AWKWARD)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_it_is_found_in_base64_with_and_without_padding(secret: str, encode: Callable[[bytes], bytes]) -> None:
    encoded = encode(secret.encode()).decode()
    assert redact(f"<{encoded}>", secret) == f"<{MASK}>"
    assert redact(f"<{encoded.rstrip('=')}>", secret) == f"<{MASK}>"


@given(SECRETS, st.binary(max_size=7), st.binary(max_size=7))
def test_it_is_found_inside_of_a_longer_base64_text(secret: str, before: bytes, behind: bytes) -> None:
    redacted = redact(base64.b64encode(before + secret.encode() + behind).decode(), secret)
    start, _, end = redacted.rpartition(MASK)
    assert MASK in redacted
    assert before.startswith(base64.b64decode(start[: len(start) // 4 * 4]))
    assert len(start) + len(end.rstrip("=")) <= -(-8 * (len(before) + len(behind)) // 6)


@pytest.mark.parametrize("secret", AWKWARD)
def test_it_is_found_in_urls(secret: str) -> None:
    for escaped in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        assert redact(f"//u:{escaped}@h", secret) == "//u:***@h"
    assert redact("//u:a%2fb%c3%bcc@h", "a/büc") == "//u:***@h"


@given(st.lists(SECRETS, min_size=1, max_size=3), st.lists(AROUND, min_size=4, max_size=4))
def test_no_secret_stays(secrets: list[str], around: list[str]) -> None:
    text = around[0] + "".join(secret + rest for secret, rest in zip(secrets, around[1:], strict=False))
    redacted = redact(text, *secrets)
    assert all(secret not in redacted for secret in secrets)
    assert len(redacted.replace(MASK, "")) <= sum(map(len, around))


@given(st.text(st.characters(), min_size=4), st.text())
def test_any_secret_can_be_looked_for_in_any_text(secret: str, text: str) -> None:
    assert secret not in redact(text, secret) or "*" in secret
