"""`dataflow crypt`: encrypts passwords, decrypts them, and encrypts them again with another passkey.

A passkey or a plaintext is never an argument. Only `open` prints a plaintext.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import app
from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, open_sealed, seal
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.opening.passkey import NEW_PASSKEY, PASSKEY, find_passkey, prompt_hidden

_KEY_FILE_HELP = "A file that only you can read, with the {} in its first line. Default: {}, else a prompt."

crypt = typer.Typer(help="Encrypt passwords, decrypt them, or change their passkey.", no_args_is_help=True)
app.add_typer(crypt, name="crypt")


def _refuse_old_form(given: bool) -> None:
    if given:
        raise InvalidInput(
            "`crypt -e KEY TEXT` is `dataflow crypt new` here and `crypt -d KEY TEXT` is `dataflow crypt open`: a "
            "passkey is never an argument, since every user of the machine can read arguments"
        )


@crypt.callback()
def crypt_options(
    encrypt: Annotated[bool, typer.Option("-e", hidden=True, is_eager=True, callback=_refuse_old_form)] = False,
    decrypt: Annotated[bool, typer.Option("-d", hidden=True, is_eager=True, callback=_refuse_old_form)] = False,
) -> None:
    """Encrypt passwords, decrypt them, or change their passkey."""


KeyFile = Annotated[Path | None, typer.Option("--key-file", help=_KEY_FILE_HELP.format("passkey", "PASSKEY"))]
NewKeyFile = Annotated[
    Path | None, typer.Option("--new-key-file", help=_KEY_FILE_HELP.format("new passkey", "PASSKEY_NEW"))
]


# Accept unknown arguments here: an error of Typer would print them.
@crypt.command("new", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def new(context: typer.Context, key_file: KeyFile = None) -> None:
    """Encrypt a password and print the ciphertext. Read the password from a prompt, or from stdin."""
    if context.args:
        raise InvalidInput(
            "`dataflow crypt new` takes no argument, since every user of the machine can read arguments: "
            "type the plaintext at the prompt, or pipe it in"
        )
    passkey = find_passkey(PASSKEY, key_file, twice=True)
    typer.echo(_seal(_plaintext(), passkey))


@crypt.command("open")
def open_ciphertext(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="A ciphertext. Default: stdin.")] = None,
    key_file: KeyFile = None,
) -> None:
    """Print the plaintext of a ciphertext. A newline follows only on a terminal."""
    if texts and len(texts) > 1:
        raise InvalidInput("`dataflow crypt open` takes one ciphertext; a passkey is never an argument")
    text = texts[0] if texts else _read_stdin()
    plaintext = open_sealed(text, find_passkey(PASSKEY, key_file))
    # As bytes: the plaintext is UTF-8, whatever the locale is.
    typer.echo(plaintext.encode(), nl=sys.stdout.isatty())


@crypt.command("rotate")
def rotate(
    texts: Annotated[list[str] | None, typer.Argument(help="Ciphertexts. Default: the lines of stdin.")] = None,
    key_file: KeyFile = None,
    new_key_file: NewKeyFile = None,
) -> None:
    """Encrypt ciphertexts with a new passkey. Print one line for each, in the same order, or nothing if one fails."""
    given = texts or _read_stdin().splitlines()
    if not given:
        raise InvalidInput("no ciphertext was given: give them as arguments, or as lines on stdin")
    passkey = find_passkey(PASSKEY, key_file)
    plaintexts = _open_all(given, passkey)
    new_passkey = find_passkey(NEW_PASSKEY, new_key_file, twice=True)
    rotated = [_seal(plaintext, new_passkey) for plaintext in plaintexts]
    typer.echo("\n".join(rotated))


def _seal(plaintext: str, passkey: str) -> str:
    return seal(plaintext, passkey, salt=os.urandom(SALT_BYTES), nonce=os.urandom(NONCE_BYTES))


def _open_all(texts: Sequence[str], passkey: str) -> list[str]:
    plaintexts = []
    for number, text in enumerate(texts, 1):
        try:
            plaintexts.append(open_sealed(text, passkey))
        except DataflowError as error:
            where = f"ciphertext {number} of {len(texts)}: " if len(texts) > 1 else ""
            raise type(error)(f"{where}{error}; nothing was rotated") from None
    return plaintexts


def _plaintext() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return prompt_hidden("plaintext", twice=True, remedy="pipe it in")
    plaintext = _read_stdin().removesuffix("\n")
    if not plaintext:
        raise InvalidInput("the plaintext is empty: type it at the prompt, or pipe it in")
    return plaintext


def _read_stdin() -> str:
    """Return stdin, decoded as UTF-8 whatever the locale is. Empty if stdin is closed."""
    if sys.stdin is None:
        return ""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:  # the text of this error would show the input
        raise InvalidInput("what comes from stdin is no UTF-8 text") from None
