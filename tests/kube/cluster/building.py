"""Builds the programs of the test clusters from pinned Go modules, once, into the cache folder of the person.

    ~/.cache/opendataflow/kubernetes-<version>-<hash of the pins>/bin/

A program that is there is complete: the build goes to another name and is renamed at its end. Two sessions never build
the same at once. What is pinned is in `programs/`; nothing here resolves a version.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "v1.34.4"
_REPORT_SECONDS = 30


class NoGo(Exception):
    """There is no `go` command to build with."""


def cache_folder() -> Path:
    """Where this project keeps what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opendataflow"


@dataclass(frozen=True)
class Pins:
    """Programs that are built from one Go module."""

    name: str
    folder: Path
    """Has the go.mod and the go.sum."""
    packages: Mapping[str, str]
    """Program -> the Go package it is built from."""
    sources: tuple[str, ...] = ()
    """Files of the folder that are programs themselves."""

    def programs_folder(self) -> Path:
        """Where the programs are, or will be: another version or other pins have another folder."""
        files = ("go.mod", "go.sum", *self.sources)
        digest = hashlib.sha256(b"\0".join((self.folder / file).read_bytes() for file in files))
        return cache_folder() / f"{self.name}-{digest.hexdigest()[:12]}" / "bin"


KUBERNETES = Pins(
    f"kubernetes-{VERSION}",
    Path(__file__).parent / "programs",
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    },
)
"""What the cluster with fake nodes is made of."""


def build(names: Iterable[str], say: Callable[[str], None], pins: Pins = KUBERNETES) -> Mapping[str, Path]:
    """Return the paths of the programs; build those that are not there, together: they share most of their packages.

    `say` gets a line of progress now and then. Raises NoGo, or CalledProcessError with what the compiler has said.
    """
    folder = pins.programs_folder()
    paths = {name: folder / name for name in names}
    if all(path.exists() for path in paths.values()):
        return paths
    if shutil.which("go") is None:
        raise NoGo("no `go` command: install Go 1.26 or newer, or name a cluster by KUBECONFIG")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.parent / "build.lock", say):
        missing = [name for name, path in paths.items() if not path.exists()]
        if missing:
            _compile(pins, missing, say)
    return paths


@contextmanager
def _only_one(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the same programs")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(pins: Pins, names: list[str], say: Callable[[str], None]) -> None:
    began = time.monotonic()
    folder = pins.programs_folder()
    say(f"building {', '.join(names)} into {folder}; the first time takes minutes")
    unfinished = folder.parent / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    major, minor = VERSION.removeprefix("v").split(".")[:2]
    version = "k8s.io/component-base/version"
    flags = f"-s -w -X {version}.gitVersion={VERSION} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    # A compiler that collects less garbage is a tenth faster; each of its processes stays under a gigabyte.
    environ = {"GOGC": "400", **os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    packages = [pins.packages[name] for name in names]
    _run(["go", "build", "-v", "-ldflags", flags, "-o", f"{unfinished}/", *packages], pins.folder, environ, say)
    if (unfinished / "server").exists():
        (unfinished / "server").rename(unfinished / "etcd")  # go build names it after the last element of its path
    folder.mkdir(exist_ok=True)
    for program in unfinished.iterdir():
        program.replace(folder / program.name)
    unfinished.rmdir()
    say(f"built {', '.join(names)} in {time.monotonic() - began:.0f} s")


def _run(command: list[str], folder: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Run the compiler; say every half a minute how many packages are done (nobody knows of how many)."""
    process = subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        lines.extend(process.stderr)

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        reader.join(_REPORT_SECONDS)
        if reader.is_alive():
            say(f"{len(lines)} packages compiled or fetched")
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command[:2], stderr="".join(lines[-30:]))
