"""Fetching a project by ssh with a key, from a real server: authentication, trusted hosts, messages."""

import gc
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend

from opendataflow.core.pipelines.pipeline_order import GitRef
from opendataflow.errors import DataflowError, InvalidInput, StepFailed, Unanswered
from opendataflow.names import NO_ANSWER
from opendataflow.spark.pipeline.project.fetching import fetch_ref
from tests.e2e.cluster.git_server import serve_by_ssh
from tests.unit.test_fetching import git

# What has failed is closed by the collector of garbage, see test_fetching.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

OPENSSH, PEM = PrivateFormat.OpenSSH, PrivateFormat.TraditionalOpenSSL
PASSPHRASE = b"a passphrase"


def made(kind: str = "ed25519") -> PrivateKeyTypes:
    kinds: dict[str, Callable[[], PrivateKeyTypes]] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
    }
    return kinds[kind]()


def private(key: PrivateKeyTypes, form: PrivateFormat = OPENSSH) -> str:
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()


def public(key: PrivateKeyTypes) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1].decode()


@dataclass
class Server:
    """It has one repository, `/p.git`. `known`: what knownHosts says of it."""

    port: int
    known: str

    def git(self, path: str = "p.git", ref: str = "main", known: tuple[str, ...] | None = None) -> GitRef:
        return GitRef(f"ssh://git@localhost:{self.port}/{path}", ref, known_hosts=known or (self.known,))


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "project.yml").write_text("project: {}\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=work")
    return folder


@pytest.fixture
def serve(origin: Path) -> Iterator[Callable[[PrivateKeyTypes], Server]]:
    """Start a server for a key of its user."""
    with Repo(str(origin)) as repo, socket.create_server(("localhost", 0)) as listener:
        own, port = paramiko.ECDSAKey.generate(), listener.getsockname()[1]

        def started(key: PrivateKeyTypes) -> Server:
            served: dict[str, BackendRepo] = {"/p.git": repo}
            arguments = (listener, own, public(key), DictBackend(served))
            threading.Thread(target=serve_by_ssh, args=arguments, daemon=True).start()
            return Server(port, f"[localhost]:{port} {own.get_name()} {own.get_base64()}")

        yield started
        listener.shutdown(socket.SHUT_RDWR)
    gc.collect()


@pytest.mark.parametrize(
    ("kind", "form"), [("ed25519", OPENSSH), ("ecdsa", OPENSSH), ("rsa", OPENSSH), ("rsa", PEM), ("ecdsa", PEM)]
)
def test_a_key_opens_a_private_repository_and_is_kept_nowhere(
    serve: Callable[[PrivateKeyTypes], Server], origin: Path, tmp_path: Path, kind: str, form: PrivateFormat
) -> None:
    key = made(kind)
    written = private(key, form)
    place = fetch_ref(serve(key).git(), tmp_path / "clones", written)
    assert place[1] == git(origin, "rev-parse", "HEAD")
    assert (place[0] / "project.yml").read_text() == "project: {}\n"
    inside = [path for path in (tmp_path / "clones").rglob("*") if path.is_file()]
    assert not any(written.splitlines()[1] in path.read_text() for path in inside)


def test_a_key_may_have_the_line_breaks_of_any_editor_and_a_commit_may_be_named(
    serve: Callable[[PrivateKeyTypes], Server], origin: Path, tmp_path: Path
) -> None:
    key, commit = made(), git(origin, "rev-parse", "HEAD")
    written = "\r\n".join(["", *private(key).splitlines(), "", ""])
    assert fetch_ref(serve(key).git(ref=commit), tmp_path / "clones", written)[1] == commit


def test_a_server_may_have_several_keys_and_names(serve: Callable[[PrivateKeyTypes], Server], tmp_path: Path) -> None:
    key = made()
    server = serve(key)
    name, kind, text = server.known.split()
    others = (f"example.org,{name}\t{kind}  {text} a comment", f"other.example.org {kind} {text}")
    assert fetch_ref(server.git(known=others), tmp_path / "clones", private(key))


def test_the_keys_of_other_users_are_refused_without_a_word_of_them(
    serve: Callable[[PrivateKeyTypes], Server], tmp_path: Path
) -> None:
    server, other = serve(made()), private(made())
    with pytest.raises(StepFailed) as raised:
        fetch_ref(server.git(), tmp_path / "clones", other)
    assert str(raised.value) == (
        f"{server.git().url} refuses access; look at the key that secretRef names, and what it may read"
    )


def test_an_unknown_server_or_another_key_gets_no_credentials(
    serve: Callable[[PrivateKeyTypes], Server], tmp_path: Path
) -> None:
    key = made()
    server, other = serve(key), paramiko.ECDSAKey.generate()
    name, kind, _ = server.known.split()
    for known, sentence in (
        (f"elsewhere {kind} {other.get_base64()}", f"knownHosts has no key of {name}, which shows {kind} SHA256:"),
        (f"{name} {kind} {other.get_base64()}", "the server has another key than knownHosts says; it was given a new"),
        (f"{name} {kind} AAAA", "knownHosts[0] is no key of a server; write it as ssh-keyscan does"),
    ):
        with pytest.raises(StepFailed) as raised:
            fetch_ref(server.git(known=(known,)), tmp_path / "clones", private(key))
        assert str(raised.value).startswith(f"{server.git().url}: {sentence}")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("t0ken-of-nobody", "what secretRef names for {url} is no private key of ssh; write a token for an https url"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----", "what secretRef names for"),
        (
            made().private_bytes(Encoding.PEM, OPENSSH, BestAvailableEncryption(PASSPHRASE)).decode(),
            "the key for {url} has a passphrase, which nobody can type here; make one without",
        ),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ me@example.org", "what secretRef names for {url} is no private key"),
    ],
    ids=["token", "cut off", "passphrase", "public"],
)
def test_an_invalid_key_is_reported_without_the_key(tmp_path: Path, written: str, sentence: str) -> None:
    asked = GitRef("ssh://git@localhost:1/p.git", "main", known_hosts=("localhost ssh-ed25519 AAAA",))
    with pytest.raises(StepFailed) as raised:
        fetch_ref(asked, tmp_path / "clones", written)
    assert str(raised.value).startswith(sentence.format(url=asked.url))
    assert "AAAA" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "ref", "kind", "sentence"),
    [
        ("other.git", "main", InvalidInput, "{url} is no git repository, or needs a token or key to be seen; look at"),
        ("p.git", "mian", InvalidInput, "{url} has no branch or tag mian (did you mean main?); look at ref"),
        ("p.git", "1" * 40, InvalidInput, "{url} has no commit 1111"),
    ],
)
def test_a_missing_repository_or_ref_is_reported(
    serve: Callable[[PrivateKeyTypes], Server],
    tmp_path: Path,
    path: str,
    ref: str,
    kind: type[DataflowError],
    sentence: str,
) -> None:
    key = made()
    asked = serve(key).git(path, ref)
    with pytest.raises(kind) as raised:
        fetch_ref(asked, tmp_path / "clones", private(key))
    assert str(raised.value).startswith(sentence.format(url=asked.url))


def test_a_server_that_is_unreachable_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    asked = GitRef(
        f"ssh://git@localhost:{port}/p.git", "main", known_hosts=("localhost ssh-ed25519 " + public(made()),)
    )
    with pytest.raises(Unanswered, match=f"{NO_ANSWER}: {asked.url}: "):
        fetch_ref(asked, tmp_path / "clones", private(made()))
