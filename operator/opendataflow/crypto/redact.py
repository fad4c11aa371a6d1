"""Replaces known secrets in texts for people, in the forms in which programs print them.

It finds a secret unchanged, escaped for JSON (also within JSON), SQL, HTML, a URL or a shell, and in base64, also
within a longer base64 text or broken into lines. It does not find a secret that is split otherwise, encrypted,
compressed or printed letter by letter: it prevents accidents, not attacks. It never prints, and no representation of
its objects shows a secret.
"""

import base64
import html
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 4
"""Minimum number of characters of a secret that is replaced. Shorter ones occur in any text."""

_SIGN = "[A-Za-z0-9+/_-]"
_BREAK = r"(?:\r?\n[ \t]*|\\n)?"
"""The end of a line of base64, also as text, and the indentation of the next line."""
_NAMED = str.maketrans({"\a": r"\a", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\v": r"\v", "\f": r"\f", "\r": r"\r"})
_NAMED |= str.maketrans({"\x1b": r"\E", "'": r"\'", "\\": r"\\"})


class Secrets:
    """A set of secrets. `too_short`: the names of secrets that can't be hidden. The caller must report them."""

    def __init__(self, named: Mapping[str, str]) -> None:
        """`named`: name, such as `bobin_password`, -> secret. An empty secret is ignored."""
        self.too_short = tuple(name for name, secret in named.items() if 0 < len(secret) < SHORTEST)
        pieces = {piece for secret in named.values() for piece in _pieces(secret)}
        self._forms = tuple({form for piece in pieces for form in _forms(piece)})
        # A lookahead also finds overlapping occurrences.
        self._encoded = tuple(re.compile(f"(?=({form}))") for piece in pieces for form in _base64_forms(piece))

    def redact(self, text: str) -> str:
        """Return `text` with `***` in place of every occurrence.

        One `***` replaces overlapping occurrences. If one secret is a part of another, no rest of either remains.
        """
        redacted, position = [], 0
        for start, end in _merged(sorted(self._found(text))):
            redacted += [text[position:start], MASK]
            position = end
        return "".join([*redacted, text[position:]])

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + 1)
        for pattern in self._encoded:
            for match in pattern.finditer(text):
                yield match.span(1)


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    current: tuple[int, int] | None = None
    for start, end in spans:
        if current is None:
            current = start, end
        elif start < current[1]:
            current = current[0], max(current[1], end)
        else:
            yield current
            current = start, end
    if current is not None:
        yield current


def _pieces(secret: str) -> Iterator[str]:
    """Yield the secret and each of its lines, because logs are read line by line."""
    for piece in {secret, *secret.splitlines()}:
        if len(piece) >= SHORTEST:
            yield piece


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret unchanged and escaped, without the enclosing quotes."""
    yield secret
    yield from _json_forms(secret)
    yield secret.replace("'", "''")  # SQL, and with escapes of backslashes
    yield secret.replace('"', '""')
    yield secret.replace("\\", "\\\\").replace("'", "''")
    yield secret.replace("\\", "\\\\").replace("'", r"\'")
    yield html.escape(secret, quote=False)
    for apostrophe in ("&#x27;", "&#39;", "&#039;", "&apos;"):
        for quotation in ("&quot;", "&#34;"):
            yield html.escape(secret, quote=False).replace("'", apostrophe).replace('"', quotation)
    yield shlex.quote(secret).removeprefix("'").removesuffix("'")
    yield secret.replace("'", r"'\''")
    yield re.sub(r'(["$`\\])', r"\\\1", secret)  # within "…"
    yield re.sub(r"^[#~]|[ !\"$&'()*,;<>?\[\\\]^`{|}]", r"\\\g<0>", secret)  # bash's printf %q
    for unprintable in (r"[\x00-\x1f\x7f]", r"[^ -~]"):  # bash's $'…', with a UTF-8 locale and without one
        yield re.sub(unprintable, _octal, secret.translate(_NAMED))
    percent = (quote(_bytes(secret), safe=""), quote(_bytes(secret)), quote_plus(_bytes(secret)))
    for escaped in percent:
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)


def _json_forms(secret: str) -> Iterator[str]:
    """Yield the secret escaped for JSON, and once more for JSON within JSON."""
    for plain in (True, False):
        letters = json.dumps(secret, ensure_ascii=plain)[1:-1]
        capitals = re.sub(r"\\u[0-9a-f]{4}", lambda found: r"\u" + found[0][2:].upper(), letters)
        for escaped in (letters, capitals, letters.replace("/", r"\/"), capitals.replace("/", r"\/")):
            yield escaped
            yield json.dumps(escaped)[1:-1]
            yield json.dumps(escaped, ensure_ascii=False)[1:-1]


def _octal(found: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in _bytes(found[0]))


def _base64_forms(secret: str) -> Iterator[str]:
    """Yield patterns for the secret at each of the three offsets within groups of three bytes.

    A base64 character with bits of the secret and of a neighbour matches any character, and is replaced too.
    """
    content = _bytes(secret)
    for shift in range(3):
        bits = 8 * (shift + len(content))
        first, last = -(-8 * shift // 6), bits // 6
        known = base64.b64encode(b"\0" * shift + content).decode()[first:last]
        signs = [{"+": "[+-]", "/": "[/_]"}.get(sign, sign) for sign in known]
        signs = [*([_SIGN] if shift else []), *signs, *([_SIGN] if bits % 6 else [])]
        yield _BREAK.join(signs) + "=*"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
