"""Builds the programs of the tests from pinned Go modules, once, into the cache folder of the person.

    ~/.cache/opendataflow/kubernetes-<version>-<hash of the pins>/bin/
    ~/.cache/opendataflow/helm-<version>-<hash of the pins>/bin/

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

PINS = Path(__file__).parent / "programs"
VERSION = "v1.34.4"
_COMPONENT = "k8s.io/component-base/version"
_MAJOR, _MINOR = VERSION.removeprefix("v").split(".")[:2]
KUBERNETES_VARIABLES = {
    f"{_COMPONENT}.gitVersion": VERSION,
    f"{_COMPONENT}.gitMajor": _MAJOR,
    f"{_COMPONENT}.gitMinor": _MINOR,
}
"""By which the programs of Kubernetes know their version."""


@dataclass(frozen=True)
class Source:
    """Programs that are pinned and built together, in a folder of the cache with this name and version. `packages`:
    program -> the Go package it is built from. `pins`: the folder of go.mod and go.sum. `variables`: set by the linker.
    `own`: files of that folder which are a program themselves.
    """

    name: str
    version: str
    pins: Path
    packages: Mapping[str, str]
    variables: Mapping[str, str]
    own: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the programs are, or will be: another version or other pins have another folder."""
        files = ("go.mod", "go.sum", *self.own)
        digest = hashlib.sha256(b"\0".join((self.pins / name).read_bytes() for name in files))
        return cache_folder() / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}" / "bin"


KUBERNETES = Source(
    "kubernetes",
    VERSION,
    PINS,
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    },
    KUBERNETES_VARIABLES,
)
HELM = Source(
    "helm",
    "v3.22.0",
    PINS / "helm",
    {"helm": "helm.sh/helm/v3/cmd/helm"},
    {
        "helm.sh/helm/v3/internal/version.version": "v3.22.0",
        # The Kubernetes that a chart is rendered for where there is no cluster. Left alone it is 1.20.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": _MAJOR,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": _MINOR,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": _MAJOR,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": _MINOR,
    },
)
SOURCES = (KUBERNETES, HELM)

_REPORT_SECONDS = 30


class NoGo(Exception):
    """There is no `go` command to build with."""


def cache_folder() -> Path:
    """Where this project keeps what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opendataflow"


def programs_folder() -> Path:
    """Where the programs of a cluster are, or will be."""
    return KUBERNETES.folder


def build(names: Iterable[str], say: Callable[[str], None], sources: Iterable[Source] = SOURCES) -> Mapping[str, Path]:
    """Return the paths of the programs; build those that are not there, together: they share most of their packages.

    `say` gets a line of progress now and then. Raises NoGo, or CalledProcessError with the output of the compiler.
    """
    wanted = set(names)
    paths: dict[str, Path] = {}
    for source in sources:
        paths |= _built(source, wanted & source.packages.keys(), say)
    return paths


def _built(source: Source, names: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    folder = source.folder
    paths = {name: folder / name for name in names}
    if all(path.exists() for path in paths.values()):
        return paths
    if shutil.which("go") is None:
        raise NoGo("no `go` command: install Go 1.26 or newer, or name a cluster by KUBECONFIG")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(folder.parent / "build.lock", say):
        missing = [name for name, path in paths.items() if not path.exists()]
        if missing:
            _compile(source, missing, say)
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


def _compile(source: Source, names: list[str], say: Callable[[str], None]) -> None:
    began = time.monotonic()
    folder = source.folder
    say(f"building {', '.join(names)} into {folder}; the first time takes minutes")
    unfinished = folder.parent / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in source.variables.items())])
    # A compiler that collects less garbage is a tenth faster; each of its processes stays under a gigabyte.
    environ = {"GOGC": "400", **os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    packages = [source.packages[name] for name in names]
    _run(["go", "build", "-v", "-ldflags", flags, "-o", f"{unfinished}/", *packages], source.pins, environ, say)
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
        with process.stderr as output:
            lines.extend(output)

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        reader.join(_REPORT_SECONDS)
        if reader.is_alive():
            say(f"{len(lines)} packages compiled or fetched")
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command[:2], stderr="".join(lines[-30:]))
