"""Fetching a project from real repositories, by path and by HTTP with a token: kept files, messages."""

import base64
import gc
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend
from dulwich.web import make_wsgi_chain

from opendataflow.core.pipelines.pipeline_order import TOKEN_VARIABLE, GitProject, GitRef, PipelineOrder
from opendataflow.errors import DataflowError, InvalidInput, StepFailed, Unanswered
from opendataflow.names import NO_ANSWER
from opendataflow.spark.pipeline.project import fetching
from opendataflow.spark.pipeline.project.fetching import commit_folder, fetch_ref, fetch_usable, find_fetched

# dulwich leaves the closing of what has failed to the collector of garbage: its own programs end then, as ours does.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

TOKEN = "t0ken-of-nobody"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Let what was left open be closed before another test begins, which would fail because of it."""
    yield
    gc.collect()


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
    argv = ["git", *who, "-C", str(folder), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a commit, the tag `v1` on it, and a second one."""
    folder = tmp_path / "origin"
    (folder / "pipelines").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for text in ("first", "second"):
        (folder / "pipelines" / "a.py").write_text(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message=work")
        if text == "first":
            git(folder, "tag", "--annotate", "--message=release", "v1")
    return folder


def text(place: tuple[Path, str]) -> str:
    return (place[0] / "pipelines" / "a.py").read_text()


@pytest.mark.parametrize(
    ("ref", "content"),
    [("HEAD", "second"), ("main", "second"), ("refs/heads/main", "second"), ("tags/v1", "first"), ("v1", "first")],
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_ref_is_a_branch_or_a_tag(origin: Path, tmp_path: Path, scheme: str, ref: str, content: str) -> None:
    place = fetch_ref(GitRef(f"{scheme}{origin}", ref), tmp_path / "clones")
    assert text(place) == content
    assert place[1] == git(origin, "rev-parse", f"{ref}^{{commit}}")


def test_a_commit_that_is_kept_needs_no_server(origin: Path, tmp_path: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD^")
    first = fetch_ref(GitRef(str(origin), commit), tmp_path / "clones")
    origin.rename(tmp_path / "gone")
    assert fetch_ref(GitRef(str(origin), commit), tmp_path / "clones") == first
    assert text(first) == "first"


def test_a_repository_of_this_machine_may_be_shallow(origin: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{origin}", "shallow")
    assert text(fetch_ref(GitRef(str(tmp_path / "shallow"), "main"), tmp_path / "clones")) == "second"


@pytest.mark.parametrize(
    ("printed", "kind", "sentence"),
    [
        (
            "git@git.example.org: Permission denied (publickey).",
            StepFailed,
            "{url}: ssh is refused: git@git",
        ),
        (
            "@@@@@@@\nLoad key k: bad permissions",
            StepFailed,
            "{url}: ssh is refused: Load key k: bad permissions;",
        ),
        ("Host key verification failed.", StepFailed, "{url}: ssh is refused: Host key verification failed; it asks"),
        (
            "ERROR: Repository not found.",
            InvalidInput,
            "{url} is no git repository, or needs a token or key to be seen",
        ),
        ("fatal: 'p' does not appear to be a git repository", InvalidInput, "{url} is no git repository, or needs"),
        ("ssh: Could not resolve hostname x", Unanswered, f"{NO_ANSWER}: {{url}}: ssh: Could not resolve hostname x"),
    ],
)
def test_errors_of_ssh_and_the_server_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, kind: type[DataflowError], sentence: str
) -> None:
    command = tmp_path / "ssh"
    command.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\nexit 255\n")
    command.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(command))
    url = "ssh://git@git.example.org/p"
    with pytest.raises(kind) as raised:
        fetch_ref(GitRef(url, "main"), tmp_path / "clones")
    assert str(raised.value).startswith(sentence.format(url=url))


def test_a_commit_that_fails_its_tests_is_replaced_by_the_last_one_that_passes(origin: Path, tmp_path: Path) -> None:
    head, passed = (git(origin, "rev-parse", ref) for ref in ("HEAD", "HEAD^"))
    project = GitProject(GitRef(str(origin), "main"), None, tmp_path, is_fetched=False)
    known = {"subject": "s", "failure": "f"}
    assert fetch_usable(project, {**known, "failed": head, "passed": passed})[1] == passed
    assert fetch_usable(project, {**known, "failed": "0" * 40, "passed": passed})[1] == head  # the branch has moved
    assert fetch_usable(project, {**known, "failed": head, "passed": "0" * 40})[1] == head  # the commit is gone


def test_a_file_outside_of_the_folder_is_not_written(origin: Path, tmp_path: Path) -> None:
    blob = git(origin, "rev-parse", "HEAD:pipelines/a.py")
    listed = subprocess.run(
        ["git", "-C", str(origin), "mktree"],
        input=f"100644 blob {blob}\t.GIT\n",
        capture_output=True,
        check=True,
        text=True,
    )
    commit = git(origin, "commit-tree", "-m", "evil", listed.stdout.strip())
    with pytest.raises(InvalidInput, match=r"has a file that can't be written here: invalid path '\.GIT'"):
        fetch_ref(GitRef(str(origin), commit), tmp_path / "clones")


def test_an_unwritable_folder_for_clones_is_reported(origin: Path, tmp_path: Path) -> None:
    (tmp_path / "clones").write_text("")
    with pytest.raises(StepFailed, match=r"can't be fetched: .*clones/[0-9a-f]+: Not a directory"):
        fetch_ref(GitRef(str(origin), "main"), tmp_path / "clones")


def test_only_files_are_kept_and_leftovers_of_a_killed_attempt_are_replaced(origin: Path, tmp_path: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    draft = commit_folder(GitRef(str(origin), "main"), tmp_path / "clones", commit).with_name(f".{commit}")
    draft.mkdir(parents=True)
    (draft / "half").write_text("")
    folder, _ = fetch_ref(GitRef(str(origin), "main"), tmp_path / "clones")
    assert sorted(path.name for path in folder.iterdir()) == ["pipelines"]
    assert not draft.exists()


@pytest.mark.parametrize(
    ("url", "ref", "kind", "sentence"),
    [
        ("{origin}", "nope", InvalidInput, "{origin} has no branch or tag nope (known: "),
        ("{origin}", "mian", InvalidInput, "{origin} has no branch or tag mian (did you mean main?); look at ref"),
        ("{origin}", "0" * 40, InvalidInput, f"{{origin}} has no commit {'0' * 40}, or does not give it; look at ref"),
        (
            "{origin}/none",
            "main",
            InvalidInput,
            "{origin}/none is no git repository, or needs a token or key to be seen",
        ),
        ("htps://example.org/p.git", "main", InvalidInput, "htps://example.org/p.git is no address of a git server"),
        ("http://127.0.0.1:1/p.git", "main", Unanswered, f"{NO_ANSWER}: http://127.0.0.1:1/p.git: "),
        ("ssh://127.0.0.1:1/p.git", "main", Unanswered, f"{NO_ANSWER}: ssh://127.0.0.1:1/p.git: "),
    ],
)
def test_each_error_is_one_sentence(
    origin: Path, tmp_path: Path, url: str, ref: str, kind: type[DataflowError], sentence: str
) -> None:
    with pytest.raises(kind) as raised:
        fetch_ref(GitRef(url.format(origin=origin), ref), tmp_path / "clones")
    assert str(raised.value).startswith(sentence.format(origin=origin))
    assert "\n" not in str(raised.value)


# By HTTP -------------------------------------------------------------------------------------------------

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name there
        pass


def guarded(app: Wsgi, user: str) -> Wsgi:
    """The application, for those who have the token."""
    expected = f"Basic {base64.b64encode(f'{user}:{TOKEN}'.encode()).decode()}"

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/broken"):
            start("503 Service Unavailable", [])
            return [b""]
        if environ["PATH_INFO"].startswith("/login"):
            start("200 OK", [("Content-Type", "text/html")])
            return [b"<html>"]
        if environ["PATH_INFO"].startswith("/lacking"):
            environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix("/lacking")
            if environ["REQUEST_METHOD"] == "POST":
                start("200 OK", [("Content-Type", "application/x-git-upload-pack-result")])
                return [b""]
        if environ.get("HTTP_AUTHORIZATION") != expected:
            start("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return [b""]
        return app(environ, start)

    return answer


@pytest.fixture
def server(origin: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A server with the repository, for the user of the parameter or whoever names none."""
    with Repo(str(origin)) as repo:
        repositories: dict[str, BackendRepo] = {"/p.git": repo}
        app = guarded(make_wsgi_chain(DictBackend(repositories)), getattr(request, "param", "git"))
        with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as made:
            thread = threading.Thread(target=made.serve_forever, daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{made.server_port}"
            made.shutdown()
            thread.join()


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_token_opens_a_private_repository_and_is_kept_nowhere(server: str, tmp_path: Path) -> None:
    place = fetch_ref(GitRef(f"{server}/p.git", "main"), tmp_path / "clones", TOKEN)
    assert text(place) == "second"
    assert TOKEN.encode() not in everything_in(tmp_path / "clones")


@pytest.mark.parametrize("server", ["deploy"], indirect=True)
def test_a_username_is_sent_with_the_token(server: str, tmp_path: Path) -> None:
    assert text(fetch_ref(GitRef(f"{server}/p.git", "v1", "deploy"), tmp_path / "clones", TOKEN)) == "first"
    with pytest.raises(StepFailed, match="refuses access; look at the token that secretRef names, and at username"):
        fetch_ref(GitRef(f"{server}/p.git", "main"), tmp_path / "clones", TOKEN)


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (None, "{server}/p.git refuses access"),
        ("wrong-one", "{server}/p.git refuses access"),
        (
            "wrong-one\u20ac",
            "the token or key for {server}/p.git has letters that no such thing has; look at the Secret",
        ),
    ],
)
def test_a_wrong_token_is_reported_without_the_token(
    server: str, tmp_path: Path, token: str | None, sentence: str
) -> None:
    with pytest.raises(StepFailed) as raised:
        fetch_ref(GitRef(f"{server}/p.git", "main"), tmp_path / "clones", token)
    assert str(raised.value).startswith(sentence.format(server=server))
    assert "wrong-one" not in str(raised.value)


def test_a_server_that_is_broken_is_one_that_does_not_answer(server: str, tmp_path: Path) -> None:
    with pytest.raises(Unanswered, match=f"{NO_ANSWER}: {server}/broken/p.git: HTTP 503"):
        fetch_ref(GitRef(f"{server}/broken/p.git", "main"), tmp_path / "clones", TOKEN)


def test_a_page_for_people_is_no_repository(server: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"{server}/login/p.git is no address of a git server: "):
        fetch_ref(GitRef(f"{server}/login/p.git", "main"), tmp_path / "clones", TOKEN)


def test_a_commit_that_the_server_lacks_is_not_a_server_that_does_not_answer(server: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"has no commit {'0' * 39}1, or does not give it"):
        fetch_ref(GitRef(f"{server}/lacking/p.git", f"{'0' * 39}1"), tmp_path / "clones", TOKEN)


# The program of the init container -----------------------------------------------------------------------


def test_the_init_container_fetches_for_the_driver(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    clones = tmp_path / "clones"
    clones.mkdir()
    project = GitProject(GitRef(f"{server}/p.git", "main"), None, clones, is_fetched=True)
    order = PipelineOrder("p", require_tests=False, tests=None, project=project, output=None)
    (tmp_path / "pipeline.json").write_text(order.to_json())
    argv = [str(tmp_path / "pipeline.json")]
    assert fetching.main(argv, {TOKEN_VARIABLE: f"{TOKEN}\n"}) == 0
    assert text(find_fetched(project)) == "second"
    assert fetching.main(argv, {TOKEN_VARIABLE: "wrong-one"}) == 1
    captured = capfd.readouterr()
    assert captured.err == (
        f"dataflow: {server}/p.git refuses access; look at the token that secretRef names, and at username\n"
    )
    assert TOKEN not in captured.out + captured.err
