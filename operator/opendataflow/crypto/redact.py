"""Hides known secrets in texts that people will read, in the forms in which programs print them.

It finds a secret as it is, escaped for JSON, a URL or a shell, and in base64, also inside of a longer base64 text. It
does not find one that is cut into pieces, encrypted, compressed or printed letter by letter: it saves from accidents,
not from intent. It never prints, and nothing of it shows the secrets.
"""

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 4
"""Characters of a secret that can be hidden: shorter ones are everywhere in any text."""

_SIGN = "[A-Za-z0-9+/_-]"
_NAMED = str.maketrans({"\a": r"\a", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\v": r"\v", "\f": r"\f", "\r": r"\r"})
_NAMED |= str.maketrans({"\x1b": r"\E", "'": r"\'", "\\": r"\\"})


class Secrets:
    """What must not be read. `too_short`: the names of those that can't be hidden; whoever made this tells a person."""

    def __init__(self, named: Mapping[str, str]) -> None:
        """Take the secrets by name, like `bobin_password`. An empty one is no secret."""
        self.too_short = tuple(name for name, secret in named.items() if 0 < len(secret) < SHORTEST)
        pieces = {piece for secret in named.values() for piece in _pieces(secret)}
        self._forms = tuple({form for piece in pieces for form in _forms(piece)})
        # A lookahead finds occurrences that overlap, too.
        self._encoded = tuple(re.compile(f"(?=({form}))") for piece in pieces for form in _base64_forms(piece))

    def redact(self, text: str) -> str:
        """Return `text` with `***` for every occurrence; for occurrences that overlap, one for all of them.

        So the longest counts where one secret is a part of another, and no rest of either stays.
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
    """The secret, and its lines: logs are read line by line."""
    for piece in {secret, *secret.splitlines()}:
        if len(piece) >= SHORTEST:
            yield piece


def _forms(secret: str) -> Iterator[str]:
    """The secret as it is, and escaped; without the quotes around, which tell nothing."""
    yield secret
    for letters in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        capitals = re.sub(r"\\u[0-9a-f]{4}", lambda found: r"\u" + found[0][2:].upper(), letters)
        for escaped in (letters, capitals):
            yield escaped
            yield escaped.replace("/", r"\/")
    yield shlex.quote(secret).removeprefix("'").removesuffix("'")
    yield secret.replace("'", r"'\''")
    yield re.sub(r'(["$`\\])', r"\\\1", secret)  # inside of "…"
    yield re.sub(r"^[#~]|[ !\"$&'()*,;<>?\[\\\]^`{|}]", r"\\\g<0>", secret)  # bash's printf %q
    for strange in (r"[\x00-\x1f\x7f]", r"[^ -~]"):  # bash's $'…', in a locale with UTF-8 and in one without
        yield re.sub(strange, _octal, secret.translate(_NAMED))
    percent = (quote(_bytes(secret), safe=""), quote(_bytes(secret)), quote_plus(_bytes(secret)))
    for escaped in percent:
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)


def _octal(found: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in _bytes(found[0]))


def _base64_forms(secret: str) -> Iterator[str]:
    """Patterns for the secret at each of the three places that it can have in groups of three bytes.

    A character of base64 that holds bits of the secret and of its neighbour is any character; it is hidden with it.
    """
    content = _bytes(secret)
    for shift in range(3):
        bits = 8 * (shift + len(content))
        first, last = -(-8 * shift // 6), bits // 6
        known = base64.b64encode(b"\0" * shift + content).decode()[first:last]
        known = "".join({"+": "[+-]", "/": "[/_]"}.get(sign, sign) for sign in known)
        yield (_SIGN if shift else "") + known + (f"{_SIGN}=*" if bits % 6 else "=*")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
