"""Fetch a project from a git repository.

The init container of a pod runs `python -m opendataflow.spark.pipeline.project.fetching ORDER`. A run on one machine
calls `fetch_usable`. Only the files of a commit are kept, in a folder named by url and commit. The token or key is an
argument. No file and no message contains the secret.
"""

import fcntl
import hashlib
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.pipeline_order import TOKEN_VARIABLE, GitProject, GitRef, KnownTests, parse_order
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import DataflowError, InvalidInput, NotInstalled, StepFailed, Unanswered
from opendataflow.model.resources.pipeline_runtime import is_by_ssh
from opendataflow.names import NO_ANSWER
from opendataflow.spark.pipeline.project.reporting import TERMINATION_LOG

_SECONDS = 60.0
"""Timeout for an answer of a server."""
_DEFAULT_USER = "git"
"""The user if the order names none. Servers that take a token ignore the user."""
_REFUSED = "{} refuses access; look at the token that secretRef names, and at username"
_NO_COMMIT = "{} has no commit {}, or does not give it; look at ref"
_NO_REPOSITORY = "{} is no git repository, or needs a token or key to be seen; look at url"
_SSH_WITHOUT_PROMPTS = "ssh -o BatchMode=yes"
"""Never prompts for a passphrase or an unknown host."""
_SSH_REFUSED = re.compile("permission denied|host key verification failed|bad permissions|authentication fail", re.I)
_NOT_THERE = re.compile("repository not found|not be found|does not appear to be a git repository", re.I)
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_FETCHED = "commit"
"""The file of a pod's volume that names the fetched commit."""


def commit_folder(git: GitRef, clones: Path, commit: str) -> Path:
    """Return the folder that keeps the files of a commit."""
    return clones / hashlib.sha256(git.url.encode()).hexdigest()[:16] / commit


def fetch_ref(git: GitRef, clones: Path, token: str | None = None) -> tuple[Path, str]:
    """Return the folder with the files of a ref, and the commit. Fetch the commit if it is missing.

    Raises InvalidInput if the repository or ref does not exist, StepFailed if the server refuses access, Unanswered if
    the server does not answer, NotInstalled without dulwich.
    """
    if _COMMIT.fullmatch(git.ref.lower()):
        git = replace(git, ref=git.ref.lower())
    if _COMMIT.fullmatch(git.ref) and commit_folder(git, clones, git.ref).is_dir():
        return commit_folder(git, clones, git.ref), git.ref
    with _explain_errors(git):
        client, path = _open_client(git, token)
        wanted, commit = _resolve_ref(git, client, path)
        if commit_folder(git, clones, commit).is_dir():
            return commit_folder(git, clones, commit), commit
        return _fetch(git, client, path, wanted, clones)


def fetch_usable(project: GitProject, tests: KnownTests | None, token: str | None = None) -> tuple[Path, str]:
    """Return the folder and commit of a project's ref.

    If the unit tests of this commit have failed, return the last commit whose tests pass, if that is still available.
    Raises the errors of `fetch_ref`.
    """
    git, clones = project.git, project.clones
    folder, commit = fetch_ref(git, clones, token)
    if tests is None or commit != tests["failed"] or tests["passed"] is None:
        return folder, commit
    with suppress(InvalidInput, StepFailed):  # after a forced push, the earlier commit may be gone
        return fetch_ref(replace(git, ref=tests["passed"]), clones, token)
    return folder, commit


def find_fetched(project: GitProject) -> tuple[Path, str]:
    """Return the folder and commit that the init container of this pod has fetched."""
    commit = (project.clones / _FETCHED).read_text("ascii")
    return commit_folder(project.git, project.clones, commit), commit


def _open_client(git: GitRef, token: str | None) -> tuple[Any, str]:
    from dulwich.client import (  # optional and slow to import
        SSHGitClient,
        get_transport_and_path,
        get_transport_and_path_from_url,
    )

    if token is not None and not token.isascii():
        raise StepFailed(
            f"the token or key for {git.url} has letters that no such thing has; look at the Secret of secretRef"
        )
    # `get_transport_and_path` falls back to ssh for an invalid URL.
    opened = get_transport_and_path_from_url if "://" in git.url else get_transport_and_path
    if is_by_ssh(git.url):
        client, path = opened(git.url, ssh_command=os.environ.get("GIT_SSH_COMMAND") or _SSH_WITHOUT_PROMPTS)
        if token is not None:
            assert isinstance(client, SSHGitClient)  # the url is one of ssh
            client.ssh_vendor = _deploy_key(git, token)
    else:
        username = None if token is None else git.username or _DEFAULT_USER
        client, path = opened(git.url, username=username, password=token)
    return client, os.fsdecode(path)


def _deploy_key(git: GitRef, key: str) -> Any:
    try:
        from opendataflow.spark.pipeline.project.deploy_keys import DeployKey  # imports paramiko, which is optional
    except ModuleNotFoundError:
        raise NotInstalled("to use a key for ssh, paramiko is needed: pip install 'opendataflow[spark]'") from None
    return DeployKey(git.url, key, git.known_hosts, _SECONDS)


def _resolve_ref(git: GitRef, client: Any, path: str) -> tuple[str, str]:
    """Return the object that the ref names now, which may be a tag, and its commit, if the server reports it."""
    if _COMMIT.fullmatch(git.ref):
        return git.ref, git.ref
    refs = client.get_refs(os.fsencode(path)).refs
    for name in (git.ref, f"refs/heads/{git.ref}", f"refs/tags/{git.ref}", f"refs/{git.ref}"):
        found = refs.get(name.encode())
        if found is not None:
            return found.decode(), refs.get(f"{name}^{{}}".encode(), found).decode()
    if git.ref == "HEAD":
        raise InvalidInput(f"{git.url} has no commit yet, or no branch of its own; write ref")
    names = sorted(name.decode("utf-8", "replace") for name in refs)
    known = [name.removeprefix("refs/heads/").removeprefix("refs/tags/") for name in names]
    raise InvalidInput(
        f"{git.url} has no branch or tag {git.ref}{did_you_mean(git.ref, known)}; look at ref (a commit is written "
        "with all its 40 digits)"
    )


def _fetch(git: GitRef, client: Any, path: str, wanted: str, clones: Path) -> tuple[Path, str]:
    from dulwich.index import build_index_from_tree  # optional and slow to import
    from dulwich.objects import Commit, Tag  # see above

    home = commit_folder(git, clones, wanted).parent
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of many concurrent runs fetches a new commit
        if (home / wanted).is_dir():
            return home / wanted, wanted
        draft, objects = home / f".{wanted}", home / f".{wanted}.git"
        _remove(draft, objects)
        draft.mkdir()
        objects.mkdir()
        try:
            with _open_repository(client, path, wanted, objects) as repo:
                found = repo[wanted.encode()]
                while isinstance(found, Tag):
                    found = repo[found.object[1]]
                if not isinstance(found, Commit):
                    raise InvalidInput(f"{git.url}: {git.ref} is no commit; look at ref")
                commit = found.id.decode()
                build_index_from_tree(str(draft), str(objects / "written"), repo.object_store, found.tree)
            if not (home / commit).is_dir():
                draft.rename(home / commit)
        finally:
            _remove(draft, objects)
    return home / commit, commit


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _open_repository(client: Any, path: str, wanted: str, folder: Path) -> Iterator[Any]:
    """Yield a repository that contains the commit: a local one, even if shallow, or a new one in `folder`."""
    from dulwich.client import LocalGitClient  # optional and slow to import
    from dulwich.errors import HangupException  # see above
    from dulwich.repo import Repo  # see above

    if isinstance(client, LocalGitClient):
        with Repo(path) as repo:
            yield repo
        return
    with Repo.init_bare(folder) as repo:
        try:
            client.fetch(os.fsencode(path), repo, determine_wants=lambda *_, **__: [wanted.encode()], depth=1)
        except HangupException:
            client.get_refs(os.fsencode(path))  # if the server answers this request, it refused only the commit
            raise KeyError(wanted) from None
        yield repo


@contextmanager
def _explain_errors(git: GitRef) -> Iterator[None]:
    """Translate errors of dulwich to errors with one sentence."""
    try:
        from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized  # optional and slow to import
        from dulwich.errors import GitProtocolError, HangupException, NotGitRepository  # see above
        from dulwich.index import InvalidPathError  # see above
    except ModuleNotFoundError:
        raise NotInstalled("to fetch a project, dulwich is needed: pip install 'opendataflow[spark]'") from None
    try:
        yield
    except HTTPUnauthorized:
        raise StepFailed(_REFUSED.format(git.url)) from None
    except HTTPProxyUnauthorized:
        raise StepFailed(f"the proxy before {git.url} refuses access") from None
    except NotGitRepository:
        raise InvalidInput(_NO_REPOSITORY.format(git.url)) from None
    except HangupException as error:
        raise _explain_ssh_error(git, error) from None
    except (TimeoutError, ConnectionError) as error:
        raise Unanswered(f"{NO_ANSWER}: {git.url}: {_first_line(error)}") from None
    except GitProtocolError as error:
        raise _explain_protocol_error(git, error) from None
    except (KeyError, InvalidPathError, ValueError, OSError) as error:
        raise _explain_content_error(git, error) from None


def _explain_content_error(git: GitRef, error: Exception) -> DataflowError:
    """Explain an error in the content of the repository, or in writing the content."""
    if isinstance(error, KeyError):
        return InvalidInput(_NO_COMMIT.format(git.url, git.ref))
    if isinstance(error, ValueError):
        return InvalidInput(f"{git.url} is no address of a git server: {_first_line(error)}; look at url")
    if isinstance(error, OSError):
        at = "" if error.filename is None else f"{error.filename}: "
        return StepFailed(f"{git.url} can't be fetched: {at}{error.strerror or _first_line(error)}")
    return InvalidInput(f"{git.url}: {git.ref} has a file that can't be written here: {error}")


def _explain_ssh_error(git: GitRef, error: Exception) -> DataflowError:
    """Explain a connection that ended too early, by the output of ssh or the server."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" @")]
    refusal = next((line for line in lines if _SSH_REFUSED.search(line)), None)
    if refusal is not None:
        return StepFailed(
            f"{git.url}: ssh is refused: {refusal.rstrip('.')}; it asks no questions here, so that an agent has to "
            "hold a key with a passphrase, and known_hosts the host"
        )
    if any(_NOT_THERE.search(line) for line in lines):
        return InvalidInput(_NO_REPOSITORY.format(git.url))
    return Unanswered(f"{NO_ANSWER}: {git.url}: {lines[0] if lines else type(error).__name__}")


def _explain_protocol_error(git: GitRef, error: Exception) -> DataflowError:
    """Explain an error without a class in dulwich: a wrapped error of urllib3, or an HTTP status."""
    if _NOT_THERE.search(str(error)):
        return InvalidInput(_NO_REPOSITORY.format(git.url))
    if "not our ref" in str(error):
        return InvalidInput(_NO_COMMIT.format(git.url, git.ref))
    status = re.search(r"unexpected http resp (\d+)", str(error))
    if status and status[1] == "403":
        return StepFailed(_REFUSED.format(git.url))
    if status and (status[1].startswith("5") or status[1] == "429"):
        return Unanswered(f"{NO_ANSWER}: {git.url}: HTTP {status[1]}")
    if "CERTIFICATE_VERIFY_FAILED" in str(error.__cause__):
        return StepFailed(
            f"{git.url}: its certificate is of nobody that is trusted here; name a file with that of its authority in "
            "SSL_CERT_FILE"
        )
    cause = getattr(error.__cause__, "reason", None) or error.__cause__
    if cause is not None:
        return Unanswered(f"{NO_ANSWER}: {git.url}: {_first_line(cause).rpartition('>: ')[2]}")
    return StepFailed(f"{git.url}: {git.ref} can't be fetched: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Fetch the project of an order. Return an exit code.

    A failure is reported on stderr, and in the termination message for the operator.
    """
    socket.setdefaulttimeout(_SECONDS)
    try:
        order = parse_order(Path(arguments[0]).read_text("utf-8"), arguments[0])
        project = order.project
        if not isinstance(project, GitProject):
            raise InvalidInput(f"{arguments[0]}: the project is in no git repository, so there is nothing to fetch")
        # A file that became a Secret often ends with a line break.
        token = environ.get(TOKEN_VARIABLE)
        token = None if token is None else token.strip()
        folder, commit = fetch_usable(project, order.tests, token)
        (project.clones / _FETCHED).write_text(commit, "ascii")
        print(f"dataflow: {project.git.url} is at {commit}, in {folder}")
    except DataflowError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(f"the project can't be written: {error.strerror}", 1)
    return 0


def _fail(sentence: str, code: int) -> int:
    print(f"dataflow: {sentence}", file=sys.stderr)
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_text(sentence, "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
