"""Sealed texts: they open with their passkey, old ones too, and with nothing else; whatever was changed is refused."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.crypto.sealed import DEFAULT_COST, MAX_MEMORY, NONCE_BYTES, SALT_BYTES, Cost, open_sealed, seal
from opendataflow.errors import DataflowError, InvalidInput, Refused

VECTORS = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "old_ciphertexts.jsonl").read_text().splitlines()
]
SALT, NONCE = bytes(range(SALT_BYTES)), bytes(range(100, 100 + NONCE_BYTES))
QUICK = Cost(log2_n=1, r=8, p=1)
KEY, PLAIN = "correct horse", "battery staple"
HEAD = 3 + SALT_BYTES
TEXTS = st.text()
KEYS = st.text(min_size=1)


def quickly(plaintext: str, passkey: str, salt: bytes = SALT, nonce: bytes = NONCE) -> str:
    return seal(plaintext, passkey, salt=salt, nonce=nonce, cost=QUICK)


def unpacked(text: str) -> bytes:
    body = text.removeprefix("df1:")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def packed(content: bytes) -> str:
    return "df1:" + base64.urlsafe_b64encode(content).decode().rstrip("=")


def assert_refused(text: str, passkey: str, words: str, error: type[DataflowError] = InvalidInput) -> None:
    with pytest.raises(error, match=words) as caught:
        open_sealed(text, passkey)
    message = str(caught.value)
    assert "\n" not in message
    assert KEY not in message
    assert PLAIN not in message
    assert text.strip() == "" or text not in message


NOT_OPEN = "does not open: the passkey is another one than it was sealed with, or the text is damaged"
NOT_BASE64 = "it is not base64, or not the whole of it"


# The old form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_what_the_old_framework_has_sealed_opens(vector: dict[str, str]) -> None:
    assert open_sealed(vector["ciphertext"], vector["passkey"]) == vector["plaintext"]


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_an_old_ciphertext_does_not_open_with_another_passkey(vector: dict[str, str]) -> None:
    assert_refused(vector["ciphertext"], vector["passkey"] + " ", NOT_OPEN, Refused)


def test_every_bit_of_an_old_ciphertext_counts() -> None:
    old = base64.b64decode(VECTORS[0]["ciphertext"])
    for bit in range(8 * len(old)):
        damaged = bytearray(old)
        damaged[bit // 8] ^= 1 << bit % 8
        assert_refused(base64.b64encode(damaged).decode(), VECTORS[0]["passkey"], NOT_OPEN, Refused)


def test_every_beginning_of_an_old_ciphertext_is_refused() -> None:
    for vector in VECTORS[:5]:
        for length in range(len(vector["ciphertext"])):
            with pytest.raises(DataflowError):
                open_sealed(vector["ciphertext"][:length], vector["passkey"])


# The new form --------------------------------------------------------------------------------------------


@given(TEXTS, KEYS, st.binary(min_size=16, max_size=16), st.binary(min_size=12, max_size=12))
def test_what_was_sealed_opens_with_its_passkey(plaintext: str, passkey: str, salt: bytes, nonce: bytes) -> None:
    assert open_sealed(quickly(plaintext, passkey, salt, nonce), passkey) == plaintext


@given(TEXTS, KEYS, KEYS)
def test_what_was_sealed_does_not_open_with_another_passkey(plaintext: str, passkey: str, other: str) -> None:
    if other != passkey:
        with pytest.raises(Refused, match=NOT_OPEN):
            open_sealed(quickly(plaintext, passkey), other)


def test_the_new_form_stays_as_it_is() -> None:
    text = "df1:DwgBAAECAwQFBgcICQoLDA0OD2RlZmdoaWprbG1ub_SSOPWF6GOg7yl4F8_LNSc1tImnegt2Fzlom_D-bA"
    assert seal(PLAIN, KEY, salt=SALT, nonce=NONCE) == text
    assert open_sealed(text, KEY) == PLAIN


def test_sealing_is_strong_unless_it_is_configured_otherwise() -> None:
    assert Cost(log2_n=15, r=8, p=1) == DEFAULT_COST
    assert unpacked(seal("", KEY, salt=SALT, nonce=NONCE))[:3] == bytes([15, 8, 1])


def test_any_implementation_of_scrypt_and_aes_opens_the_new_form() -> None:
    content = unpacked(quickly(PLAIN, KEY))
    key = hashlib.scrypt(KEY.encode(), salt=content[3:19], n=2, r=8, p=1, dklen=32)
    assert AESGCM(key).decrypt(content[19:31], content[31:], b"df1:" + content[:3]) == PLAIN.encode()


def test_another_salt_gives_another_key() -> None:
    one, other = (unpacked(quickly(PLAIN, KEY, salt)) for salt in (SALT, SALT[::-1]))
    assert one[HEAD:] != other[HEAD:]
    assert_refused(packed(one[:3] + SALT[::-1] + one[HEAD:]), KEY, NOT_OPEN, Refused)


def test_every_bit_of_a_new_ciphertext_counts() -> None:
    content = unpacked(quickly(PLAIN, KEY))
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        if Cost(*damaged[:3]).is_allowed():
            assert_refused(packed(bytes(damaged)), KEY, NOT_OPEN, Refused)
        else:
            assert_refused(packed(bytes(damaged)), KEY, "asks for more memory or time than one may")


def test_every_character_of_a_new_ciphertext_counts() -> None:
    text = quickly(PLAIN, KEY)
    for place in range(len(text)):
        for sign in "A_+=:é ":
            damaged = text[:place] + sign + text[place + 1 :]
            if damaged.strip() != text:
                with pytest.raises(DataflowError):
                    open_sealed(damaged, KEY)


def test_unused_bits_of_the_last_character_count_too() -> None:
    text = quickly("", KEY)  # 47 bytes: two bits of the last character hold nothing
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert_refused(text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1], KEY, NOT_BASE64)


def test_every_beginning_of_a_new_ciphertext_is_refused() -> None:
    text = quickly(PLAIN, KEY)
    for length in range(len(text)):
        with pytest.raises(DataflowError):
            open_sealed(text[:length], KEY)


def test_what_stands_behind_a_ciphertext_is_refused() -> None:
    for more in ("A", "AAAA", "=", "==", "\0"):
        with pytest.raises(DataflowError):
            open_sealed(quickly(PLAIN, KEY) + more, KEY)


def test_white_space_around_a_ciphertext_does_not_count() -> None:
    assert open_sealed(f"\n {quickly(PLAIN, KEY)} \r\n", KEY) == PLAIN


# Versions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["df0:", "df2:", "df10:", "df999:"])
def test_an_unknown_version_is_named_as_that(version: str) -> None:
    assert_refused(quickly(PLAIN, KEY).replace("df1:", version), KEY, "of a version that this program does not know")


def test_a_new_ciphertext_is_never_taken_for_an_old_one() -> None:
    assert_refused(quickly(PLAIN, KEY).removeprefix("df1:"), KEY, f"{NOT_OPEN}|{NOT_BASE64}", DataflowError)
    assert_refused("DF1:" + quickly(PLAIN, KEY).removeprefix("df1:"), KEY, NOT_BASE64)


def test_an_old_ciphertext_is_never_taken_for_a_new_one() -> None:
    for vector in VECTORS:
        with pytest.raises(DataflowError):
            open_sealed("df1:" + vector["ciphertext"].rstrip("="), vector["passkey"])


# Parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cost",
    [
        *(bytes([log2_n, 8, 1]) for log2_n in (0, 18, 20, 31, 63, 255)),
        *(bytes([15, r, 1]) for r in (0, 1, 7, 33, 255)),
        *(bytes([15, 8, p]) for p in (0, 5, 255)),
        bytes([16, 16, 2]),
        bytes([8, 255, 255]),
    ],
    ids=lambda cost: "-".join(map(str, cost)),
)
def test_parameters_that_would_eat_memory_or_time_are_refused_before_they_do(cost: bytes) -> None:
    content = unpacked(quickly(PLAIN, KEY))
    assert_refused(packed(cost + content[3:]), KEY, "asks for more memory or time than one may")


@pytest.mark.parametrize("cost", [Cost(4, 16, 1), Cost(5, 8, 3), Cost(1, 8, 255)])
def test_other_parameters_within_the_bounds_open(cost: Cost) -> None:
    assert open_sealed(seal(PLAIN, KEY, salt=SALT, nonce=NONCE, cost=cost), KEY) == PLAIN


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255))
def test_bearable_parameters_never_take_more_than_the_bound(log2_n: int, r: int, p: int) -> None:
    if Cost(log2_n, r, p).is_allowed():
        assert 128 * 2**log2_n * r * p <= MAX_MEMORY


def test_sealing_refuses_a_wrong_salt_nonce_or_cost() -> None:
    for salt, nonce, cost in (
        (SALT[1:], NONCE, QUICK),
        (SALT, NONCE + b"x", QUICK),
        (SALT, NONCE, Cost(30, 8, 1)),
    ):
        with pytest.raises(ValueError, match="can't be used"):
            seal(PLAIN, KEY, salt=salt, nonce=nonce, cost=cost)


# What is no ciphertext -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", " ", "battery staple", "AAA", "AA==x", "df1:", "df1:/+/+", "é", "\udcff", "====="]
)
def test_what_is_not_base64_is_refused_and_not_shown(text: str) -> None:
    assert_refused(text, KEY, NOT_BASE64)


def test_what_is_too_short_is_reported_with_its_length() -> None:
    assert_refused(
        base64.b64encode(b"x" * 27).decode(), KEY, "its end is missing: it has 27 bytes and needs 28 or more"
    )
    assert_refused(
        packed(bytes([1, 8, 1]) + b"x" * 43), KEY, "its end is missing: it has 46 bytes and needs 47 or more"
    )


@given(st.text(max_size=200))
def test_any_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(DataflowError):
        open_sealed(text, KEY)


# Passkeys and plaintexts ---------------------------------------------------------------------------------


def test_an_empty_passkey_seals_and_opens_nothing() -> None:
    with pytest.raises(InvalidInput, match="the passkey is empty"):
        quickly(PLAIN, "")
    for text in (quickly(PLAIN, KEY), VECTORS[0]["ciphertext"]):
        assert_refused(text, "", "the passkey is empty")


@pytest.mark.parametrize(
    ("plaintext", "passkey", "what"), [(PLAIN, "k\udcff", "passkey"), ("p\udcff", KEY, "plaintext")]
)
def test_what_is_no_unicode_text_is_refused_and_not_shown(plaintext: str, passkey: str, what: str) -> None:
    with pytest.raises(InvalidInput, match=f"^the {what} is no UTF-8 text$") as caught:
        quickly(plaintext, passkey)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_passkeys_that_look_alike_are_different() -> None:
    """Composed and decomposed letters: the old framework took the bytes as they are, so do we."""
    assert_refused(quickly(PLAIN, "schl\u00fcssel"), "schlu\u0308ssel", NOT_OPEN, Refused)
