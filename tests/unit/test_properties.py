"""The old framework's `dataflow.properties`: its meaning, and one sentence per error."""

from pathlib import Path
from typing import Any

import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.errors import DataflowError, InvalidInput, Refused
from opendataflow.opening.database import named_source
from opendataflow.opening.passkey import Passkey
from opendataflow.opening.properties import read_connection_parameters
from opendataflow.settings import Settings
from opendataflow.store.connections.connection import place

OLD = "gVtMLbZsXFFDanYnA0sK8Z3lpyGkwEfdw9tObfM8U8mz"
"""Made by the old framework: `hello` under the passkey `plugh`."""

URL = "url=jdbc:postgresql://db1:5433/flow"


def read(folder: Path, *lines: str, passkey: str | None = "plugh") -> dict[str, str]:
    file = folder / "dataflow.properties"
    file.write_text("\n".join(lines) + "\n")
    return read_connection_parameters(file, lambda: passkey)


def sentence(error: type[DataflowError], folder: Path, *lines: str, passkey: str | None = "plugh") -> str:
    with pytest.raises(error) as caught:
        read(folder, *lines, passkey=passkey)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder / "dataflow.properties") in text
    return text


def test_the_file_of_the_old_framework_is_read_as_it_is(tmp_path: Path) -> None:
    lines = ("# our database", URL, "user=etl", "schema=dataflow", f"encrypted={OLD}", "platform=postgres")
    assert read(tmp_path, *lines) == {
        "host": "db1",
        "port": "5433",
        "dbname": "flow",
        "user": "etl",
        "password": "hello",
    }


def test_a_ciphertext_of_today_opens_too(tmp_path: Path) -> None:
    text = seal("it's $x", "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    assert read(tmp_path, URL, "user=etl", f"encrypted={text}")["password"] == "it's $x"


def test_without_a_ciphertext_no_passkey_is_read(tmp_path: Path) -> None:
    file = tmp_path / "dataflow.properties"
    file.write_text(f"{URL}\nuser=etl\n")
    assert "password" not in read_connection_parameters(file, lambda: pytest.fail("asked"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/d", {"host": "h", "port": "5432", "dbname": "d"}),
        ("jdbc:postgresql://h1:1,h2:2/d", {"host": "h1,h2", "port": "1,2", "dbname": "d"}),
        ("jdbc:postgresql://[::1]:7/d", {"host": "::1", "port": "7", "dbname": "d"}),
        ("jdbc:postgresql:d", {"host": "localhost", "port": "5432", "dbname": "d"}),
        ("jdbc:postgresql://h/a%20b", {"host": "h", "port": "5432", "dbname": "a b"}),
        ("jdbc:postgresql://h/d?sslmode=require", {"host": "h", "port": "5432", "dbname": "d", "sslmode": "require"}),
        (
            "jdbc:postgresql://h/d?ssl=true&user=x",
            {"host": "h", "port": "5432", "dbname": "d", "sslmode": "verify-full"},
        ),
    ],
)
def test_addresses_of_jdbc_mean_the_same_to_libpq(tmp_path: Path, url: str, expected: dict[str, str]) -> None:
    assert read(tmp_path, f"url={url}", "user=etl") == {**expected, "user": "etl"}


@pytest.mark.parametrize(
    "lines",
    [
        (URL.replace("=", " : "), "user\tetl"),
        (URL.replace(":", "\\:"), "  user = et\\\n   l"),
        ("! a comment", "", URL, "user=nobody", "us\\u0065r=etl"),
    ],
)
def test_lines_are_written_as_java_allows_it(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert read(tmp_path, *lines) == {"host": "db1", "port": "5433", "dbname": "flow", "user": "etl"}


def test_letters_that_are_no_utf_8_are_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "dataflow.properties"
    file.write_bytes(f"{URL}\nuser=fl\xfcge\n".encode("latin-1"))
    assert read_connection_parameters(file, lambda: None)["user"] == "flüge"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("user=etl",), "there is no line url=: write url=jdbc:postgresql://host:5432/database, or set DATAFLOW_DSN"),
        ((URL,), "there is no line user="),
        ((URL, "user="), "there is no line user="),
        (("", "url=jdbc:h2:./db", "user=etl"), "line 2: url is the address of another database (h2)"),
        (("url=postgres://h/d", "user=etl"), "line 1: url is not like jdbc:postgresql://host:5432/database"),
        (("url=jdbc:postgresql://h:x/d", "user=etl"), "line 1: url has a host that is not like host:5432"),
        ((f"{URL}?loglevel=2", "user=etl"), "line 1: url has the parameter loglevel, which is not known here"),
        ((f"{URL}?password=hunter2", "user=etl"), "line 1: url has a password: write it, encrypted, into the line"),
        ((URL, "user=\\u12"), "line 2: after \\u there have to be four hexadecimal digits"),
        ((URL, "user=etl", "encrypted=hunter2"), "line 3: encrypted can't be opened: this is no ciphertext"),
    ],
)
def test_an_error_names_its_line(tmp_path: Path, lines: tuple[str, ...], words: str) -> None:
    text = sentence(InvalidInput, tmp_path, *lines)
    assert words in text
    assert "hunter2" not in text


def test_a_wrong_passkey_or_a_damaged_ciphertext_is_named_and_no_secret_is_shown(tmp_path: Path) -> None:
    for text, key in ((OLD, "xyzzy"), (OLD[:-4] + "AAAA", "plugh")):
        message = sentence(Refused, tmp_path, URL, "user=etl", f"encrypted={text}", passkey=key)
        assert "line 3: encrypted can't be opened: the ciphertext does not open" in message
        assert text not in message
        assert key not in message.replace(str(tmp_path), "")


def test_a_missing_passkey_names_where_to_set_it(tmp_path: Path) -> None:
    message = sentence(InvalidInput, tmp_path, URL, "user=etl", f"encrypted={OLD}", passkey=None)
    assert message.endswith("line 3: encrypted needs the passkey: set PASSKEY or DATAFLOW_KEY_FILE")


def test_a_missing_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere.properties: can't be read: No such file"):
        read_connection_parameters(tmp_path / "nowhere.properties", lambda: None)


def settings(tmp_path: Path, **given: Any) -> Settings:
    return Settings(**{"dsn": None, "home": tmp_path, **given})


def named_address(given: Settings, passkey: Passkey) -> str | None:
    source = named_source(given, passkey)
    return None if source is None else source()


def test_the_dsn_counts_more_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dataflow.properties").write_text("nonsense")
    assert named_address(settings(tmp_path, dsn="postgresql://h/d"), Passkey()) == "postgresql://h/d"


def test_the_file_of_the_current_folder_is_read_unless_another_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_address(settings(tmp_path), Passkey()) is None, "without any file it is the embedded database"
    (tmp_path / "dataflow.properties").write_text(f"{URL}\nuser=etl\n")
    (tmp_path / "other").write_text("url=jdbc:postgresql://db2/flow\nuser=etl\n")
    assert place(named_address(settings(tmp_path), Passkey()) or "") == "db1:5433/flow"
    assert place(named_address(settings(tmp_path, properties=Path("other")), Passkey()) or "") == "db2:5432/flow"
