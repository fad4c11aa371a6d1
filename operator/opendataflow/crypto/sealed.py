"""Encrypts a text with a passkey and decrypts it. Also decrypts ciphertexts of the old framework.

    new:  df1:<base64url without padding of: log2(n), r, p (a byte each) | salt 16 | nonce 12 | ciphertext | tag 16>
    old:  <base64 of: nonce 12 | ciphertext | tag 16>

Both are AES-256-GCM. The key is scrypt(passkey, salt, n, r, p), in the old form the first 32 bytes of
SHA-512(passkey). The version and the parameters are authenticated. Base64 has no colon, so the forms can't be confused.
Salt and nonce are arguments: the caller passes fresh random bytes. No error and no representation here shows a passkey,
a plaintext, or the text that was given as a ciphertext, because it may be a plaintext by mistake.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from opendataflow.errors import InvalidInput, Refused

SALT_BYTES = 16
NONCE_BYTES = 12
MAX_MEMORY = 2**27
"""Maximum memory in bytes to decrypt a ciphertext. It also limits the time to four times the default cost."""

_MARK = "df1:"
_OTHER_VERSION = re.compile(r"df[0-9]+:")
_COST_BYTES = 3
_TAG_BYTES = 16
_KEY_BYTES = 32
_SMALLEST_R = 8


@dataclass(frozen=True)
class Cost:
    """Parameters of scrypt: n = 2**log2_n, block size r, parallelism p. Higher ones make a passkey harder to guess."""

    log2_n: int
    r: int
    p: int

    def is_allowed(self) -> bool:
        """Return whether the cost is within the limits. scrypt needs 128 * n * r bytes, p times in sequence."""
        smallest = self.log2_n >= 1 and self.r >= _SMALLEST_R and self.p >= 1
        return smallest and 128 * self.r * self.p <= MAX_MEMORY >> self.log2_n


DEFAULT_COST = Cost(log2_n=15, r=8, p=1)
"""32 MiB and about a tenth of a second."""


def seal(plaintext: str, passkey: str, *, salt: bytes, nonce: bytes, cost: Cost = DEFAULT_COST) -> str:
    """Return the ciphertext, in the new form. `salt`, `nonce`: SALT_BYTES and NONCE_BYTES random bytes, used once.

    Raise InvalidInput if the passkey is empty, or if it or the plaintext is no Unicode text. Raise ValueError for a
    wrong salt, nonce or cost, which the program chooses.
    """
    if len(salt) != SALT_BYTES or len(nonce) != NONCE_BYTES or not cost.is_allowed():
        raise ValueError("salt, nonce or cost can't be used")
    content = _encoded(plaintext, "plaintext")
    parameters = bytes([cost.log2_n, cost.r, cost.p])
    key = _stretched(_checked_key(passkey), salt, cost)
    sealed = AESGCM(key).encrypt(nonce, content, _MARK.encode() + parameters)
    return _MARK + base64.b64encode(parameters + salt + nonce + sealed, b"-_").decode().rstrip("=")


def open_sealed(text: str, passkey: str) -> str:
    """Return the plaintext of a ciphertext of either form. White space around it is ignored.

    Raise Refused if the passkey is wrong or the text is damaged: the cipher can't distinguish these. Raise InvalidInput
    if the text can't be a ciphertext, its version is unknown, or the passkey is empty.
    """
    key = _checked_key(passkey)
    text = text.strip()
    opened = _open_new(text, key) if text.startswith(_MARK) else _open_old(text, key)
    try:
        return opened.decode()
    except UnicodeDecodeError:
        raise Refused("the ciphertext opens, but what is in it is no UTF-8 text: seal the text anew") from None


def _open_new(text: str, passkey: bytes) -> bytes:
    sealed = _decoded(text.removeprefix(_MARK), b"-_", padded=False)
    head = _COST_BYTES + SALT_BYTES
    _check_length(sealed, head + NONCE_BYTES + _TAG_BYTES)
    cost = Cost(*sealed[:_COST_BYTES])
    if not cost.is_allowed():
        raise InvalidInput("the ciphertext asks for more memory or time than one may: it is damaged; copy it anew")
    key = _stretched(passkey, sealed[_COST_BYTES:head], cost)
    return _decrypted(key, sealed[head:], _MARK.encode() + sealed[:_COST_BYTES])


def _open_old(text: str, passkey: bytes) -> bytes:
    if _OTHER_VERSION.match(text):
        raise InvalidInput("the ciphertext is of a version that this program does not know: install a newer program")
    sealed = _decoded(text, b"+/", padded=True)
    _check_length(sealed, NONCE_BYTES + _TAG_BYTES)
    return _decrypted(hashlib.sha512(passkey).digest()[:_KEY_BYTES], sealed, None)


def _decrypted(key: bytes, sealed: bytes, associated: bytes | None) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag:
        raise Refused(
            "the ciphertext does not open: the passkey is another one than it was sealed with, or the text is damaged"
        ) from None


def _decoded(written: str, signs: bytes, *, padded: bool) -> bytes:
    """Decode base64 strictly: accept one spelling of a content only, so that every changed character is noticed."""
    try:
        decoded = base64.b64decode(written + "=" * (-len(written) % 4), signs, validate=True)
    except ValueError:
        decoded = b""
    spelled = base64.b64encode(decoded, signs).decode()
    if not written or written != (spelled if padded else spelled.rstrip("=")):
        raise InvalidInput("this is no ciphertext: it is not base64, or not the whole of it; copy it anew")
    return decoded


def _check_length(sealed: bytes, least: int) -> None:
    if len(sealed) < least:
        raise InvalidInput(
            f"this is no ciphertext, or its end is missing: it has {len(sealed)} bytes and needs {least} or more; "
            "copy it anew"
        )


def _stretched(passkey: bytes, salt: bytes, cost: Cost) -> bytes:
    return Scrypt(salt=salt, length=_KEY_BYTES, n=2**cost.log2_n, r=cost.r, p=cost.p).derive(passkey)


def _checked_key(passkey: str) -> bytes:
    if not passkey:
        raise InvalidInput("the passkey is empty: give one that nobody can guess")
    return _encoded(passkey, "passkey")


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # the text of this error would show the secret
        raise InvalidInput(f"the {what} is no UTF-8 text") from None
