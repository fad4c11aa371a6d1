"""Fetches a project from a git repository: for a run on one machine, and in the init container of a pod, which is
`python -m opendataflow.spark.pipeline.project.fetching ORDER` (the order: core/pipelines/pipeline_order.py).

A commit is kept as its files only, in a folder by url and commit; the history and the address are not kept. The token
or key is an argument, and appears neither in a file nor in a sentence.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.pipeline_order import TOKEN_VARIABLE
from opendataflow.core.text.project_tests import Tests
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import DataflowError, InvalidInput, NotInstalled, StepFailed, Unanswered
from opendataflow.model.resources.pipeline_runtime import is_by_ssh
from opendataflow.names import NO_ANSWER
from opendataflow.spark.pipeline.project.reporting import TERMINATION_LOG

_SECONDS = 60.0
"""How long a server may say nothing."""
_ANYBODY = "git"
"""The user where none is named: servers that take a token look at nothing else."""
_REFUSED = "{} refuses access; look at the token that secretRef names, and at username"
_NO_COMMIT = "{} has no commit {}, or does not give it; look at ref"
_NO_REPOSITORY = "{} is no git repository, or needs a token or key to be seen; look at url"
_NOBODY_ASKED = "ssh -o BatchMode=yes"
"""Who would be asked for a passphrase, or whether a host is the right one, sees no question."""
_SSH_REFUSED = re.compile("permission denied|host key verification failed|bad permissions|authentication fail", re.I)
_NOT_THERE = re.compile("repository not found|not be found|does not appear to be a git repository", re.I)
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_FETCHED = "commit"
"""The file of a pod's volume that says which commit was fetched into it."""


@dataclass(frozen=True)
class Git:
    """A ref of a repository."""

    url: str
    ref: str
    username: str | None = None
    known_hosts: Sequence[str] = ()

    def folder(self, clones: Path, commit: str) -> Path:
        """Where the files of a commit are kept."""
        return clones / hashlib.sha256(self.url.encode()).hexdigest()[:16] / commit


def fetched(git: Git, clones: Path, token: str | None = None) -> tuple[Path, str]:
    """Return the folder with the files of the ref, as it is now, and its commit; fetch it where it is not there.

    Raises InvalidInput where there is no such repository or ref, StepFailed where it refuses, Unanswered where the
    server does not answer, NotInstalled without dulwich.
    """
    if _COMMIT.fullmatch(git.ref.lower()):
        git = replace(git, ref=git.ref.lower())
    if _COMMIT.fullmatch(git.ref) and git.folder(clones, git.ref).is_dir():
        return git.folder(clones, git.ref), git.ref
    with _sentences(git):
        client, path = _client(git, token)
        wanted, commit = _wanted(git, client, path)
        if git.folder(clones, commit).is_dir():
            return git.folder(clones, commit), commit
        return _fetch(git, client, path, wanted, clones)


def fetched_usable(git: Git, clones: Path, tests: Tests, token: str | None = None) -> tuple[Path, str]:
    """Return the same; instead of a commit whose unit tests have failed, the last one whose tests pass, where that can
    still be had. `tests`: of the order."""
    folder, commit = fetched(git, clones, token)
    if tests is None or commit != tests["failed"] or tests["passed"] is None:
        return folder, commit
    with suppress(InvalidInput, StepFailed):  # the branch may have been written anew, and what it was be gone
        return fetched(replace(git, ref=tests["passed"]), clones, token)
    return folder, commit


def fetched_before(git: Git, clones: Path) -> tuple[Path, str]:
    """Return the same of what the init container of this pod has fetched."""
    commit = (clones / _FETCHED).read_text("ascii")
    return git.folder(clones, commit), commit


def _client(git: Git, token: str | None) -> tuple[Any, str]:
    from dulwich.client import SSHGitClient, get_transport_and_path, get_transport_and_path_from_url

    if token is not None and not token.isascii():
        raise StepFailed(
            f"the token or key for {git.url} has letters that no such thing has; look at the Secret of secretRef"
        )
    # The other one tries ssh where something of a URL is wrong.
    opened = get_transport_and_path_from_url if "://" in git.url else get_transport_and_path
    if is_by_ssh(git.url):
        client, path = opened(git.url, ssh_command=os.environ.get("GIT_SSH_COMMAND") or _NOBODY_ASKED)
        if token is not None:
            assert isinstance(client, SSHGitClient)  # what such a url is
            client.ssh_vendor = _deploy_key(git, token)
    else:
        username = None if token is None else git.username or _ANYBODY
        client, path = opened(git.url, username=username, password=token)
    return client, os.fsdecode(path)


def _deploy_key(git: Git, key: str) -> Any:
    try:
        from opendataflow.spark.pipeline.project.deploy_keys import DeployKey
    except ModuleNotFoundError:
        raise NotInstalled("to use a key for ssh, paramiko is needed: pip install 'opendataflow[spark]'") from None
    return DeployKey(git.url, key, git.known_hosts, _SECONDS)


def _wanted(git: Git, client: Any, path: str) -> tuple[str, str]:
    """Return what the ref means now, which may be a tag and which servers give to everybody, and its commit, as far as
    the server tells it."""
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


def _fetch(git: Git, client: Any, path: str, wanted: str, clones: Path) -> tuple[Path, str]:
    from dulwich.index import build_index_from_tree
    from dulwich.objects import Commit, Tag

    home = git.folder(clones, wanted).parent
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of many runs that want a new commit, one fetches it
        if (home / wanted).is_dir():
            return home / wanted, wanted
        draft, objects = home / f".{wanted}", home / f".{wanted}.git"
        _remove(draft, objects)
        draft.mkdir()
        objects.mkdir()
        try:
            with _repository(client, path, wanted, objects) as repo:
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
def _repository(client: Any, path: str, wanted: str, folder: Path) -> Iterator[Any]:
    """Give a repository that has the commit: one of this machine as it is, even if it is shallow; else a new one."""
    from dulwich.client import LocalGitClient
    from dulwich.errors import HangupException
    from dulwich.repo import Repo

    if isinstance(client, LocalGitClient):
        with Repo(path) as repo:
            yield repo
        return
    with Repo.init_bare(folder) as repo:
        try:
            client.fetch(os.fsencode(path), repo, determine_wants=lambda *_, **__: [wanted.encode()], depth=1)
        except HangupException:
            client.get_refs(os.fsencode(path))  # a server that answers this one does not give the commit
            raise KeyError(wanted) from None
        yield repo


@contextmanager
def _sentences(git: Git) -> Iterator[None]:
    """Tell what goes wrong in a sentence."""
    try:
        from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized
        from dulwich.errors import GitProtocolError, HangupException, NotGitRepository
        from dulwich.index import InvalidPathError
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
        raise _of_ssh(git, error) from None
    except (TimeoutError, ConnectionError) as error:
        raise Unanswered(f"{NO_ANSWER}: {git.url}: {_first_line(error)}") from None
    except GitProtocolError as error:
        raise _of_protocol(git, error) from None
    except (KeyError, InvalidPathError, ValueError, OSError) as error:
        raise _of_what_is_there(git, error) from None


def _of_what_is_there(git: Git, error: Exception) -> DataflowError:
    """The sentence about what the server gives, or what can't be kept here."""
    if isinstance(error, KeyError):
        return InvalidInput(_NO_COMMIT.format(git.url, git.ref))
    if isinstance(error, ValueError):
        return InvalidInput(f"{git.url} is no address of a git server: {_first_line(error)}; look at url")
    if isinstance(error, OSError):
        at = "" if error.filename is None else f"{error.filename}: "
        return StepFailed(f"{git.url} can't be fetched: {at}{error.strerror or _first_line(error)}")
    return InvalidInput(f"{git.url}: {git.ref} has a file that can't be written here: {error}")


def _of_ssh(git: Git, error: Exception) -> DataflowError:
    """The sentence about a conversation that has ended too early: what ssh or the server says, if anything."""
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


def _of_protocol(git: Git, error: Exception) -> DataflowError:
    """The sentence about what dulwich has no class for: it wraps what urllib3 says, and answers of HTTP."""
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


def git_of(order: Mapping[str, Any]) -> Git:
    """Return what an order says of a repository."""
    return Git(**order["git"])


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Do it; return an exit code. A failure is told on stderr, and in the pod's status for the operator."""
    socket.setdefaulttimeout(_SECONDS)
    try:
        order = json.loads(Path(arguments[0]).read_text("utf-8"))
        clones = Path(order["clones"])
        # A file that became a Secret often ends with a line break, and nobody sees it.
        token = environ.get(TOKEN_VARIABLE)
        token = None if token is None else token.strip()
        folder, commit = fetched_usable(git_of(order), clones, order["tests"], token)
        (clones / _FETCHED).write_text(commit, "ascii")
        print(f"dataflow: {order['git']['url']} is at {commit}, in {folder}")
    except DataflowError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(f"the project can't be written: {error.strerror}", 1)
    return 0


def _failed(sentence: str, code: int) -> int:
    print(f"dataflow: {sentence}", file=sys.stderr)
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_text(sentence, "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
