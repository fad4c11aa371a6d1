"""Where the cluster of a test run comes from, in this order:

1. `KUBECONFIG`: a cluster that runs already and has the fake nodes, as `python -m tests.kube.cluster up` starts it;
2. `KUBEBUILDER_ASSETS`: a folder with kube-apiserver, etcd and kubectl; what it lacks is built;
3. all programs built from the pinned Go modules, once.

Without any of them the tests on a cluster are left out, which the end of the run reports; with
DATAFLOW_REQUIRE_KUBE=1 that is a failure.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.kube.cluster.building import SOURCES, VERSION, NoGo, Source, build, programs_folder
from tests.kube.cluster.control_plane import PROGRAMS

REQUIRED = "DATAFLOW_REQUIRE_KUBE"


class Unavailable(Exception):
    """There is no cluster, and nothing to start one with; the text says why."""


def given() -> Path | None:
    """The kubeconfig of a cluster that runs already."""
    path = os.environ.get("KUBECONFIG")
    return Path(path) if path else None


def _assets() -> dict[str, Path]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    found = {name: Path(folder) / name for name in PROGRAMS} if folder else {}
    return {name: path for name, path in found.items() if path.exists()}


def programs(say: Callable[[str], None], names: Iterable[str] = PROGRAMS) -> Mapping[str, Path]:
    """Find programs by name; build what is missing. Raises Unavailable."""
    assets = _assets()
    return {**built([name for name in names if name not in assets], say), **assets}


def built(names: Iterable[str], say: Callable[[str], None], sources: Iterable[Source] = SOURCES) -> Mapping[str, Path]:
    """Find programs by name in the cache; build what is missing. Raises Unavailable."""
    try:
        return build(names, say, sources)
    except NoGo as reason:
        raise Unavailable(str(reason)) from None
    except subprocess.CalledProcessError as failed:
        raise Unavailable(f"the programs of the cluster could not be built:\n{failed.stderr}") from failed


def kubectl(say: Callable[[str], None]) -> Path:
    """The kubectl for a given cluster: the person's own, or one as in `programs`. Raises Unavailable."""
    own = shutil.which("kubectl")
    return Path(own) if own else programs(say, ["kubectl"])["kubectl"]


def announce() -> str:
    """A line for the header of a test run; builds nothing."""
    if given():
        return "of KUBECONFIG"
    if _assets():
        return f"own, with {', '.join(_assets())} of KUBEBUILDER_ASSETS"
    if all((programs_folder() / name).exists() for name in PROGRAMS):
        return f"own, Kubernetes {VERSION} of {programs_folder()}"
    if shutil.which("go"):
        return f"own, Kubernetes {VERSION}; its programs are built first, which takes a while"
    return "none: neither KUBECONFIG, nor KUBEBUILDER_ASSETS, nor Go to build one"
