"""Where the cluster of a test run comes from, in this order:

1. `KUBECONFIG`: a cluster that runs already and has the fake nodes, as `python -m tests.kube.cluster up` starts it;
2. `KUBEBUILDER_ASSETS`: a folder with kube-apiserver, etcd and kubectl; what it lacks is built;
3. all programs built from the pinned Go modules, once.

Without any of them the tests on a cluster are left out, which is said at the end of the run; with
DATAFLOW_REQUIRE_KUBE=1 that is a failure.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.cluster.building import VERSION, NoGo, build, programs_folder
from tests.kube.cluster.control_plane import PROGRAMS

REQUIRED = "DATAFLOW_REQUIRE_KUBE"


@dataclass(frozen=True)
class Provider:
    """`kubeconfig`: of a cluster that runs already. `programs`: what there is to start one with."""

    name: str
    kubeconfig: Path | None = None
    programs: Mapping[str, Path] = field(default_factory=dict)


class Unavailable(Exception):
    """There is no cluster, and nothing to start one with; the text says why."""


def _assets() -> dict[str, Path]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    found = {name: Path(folder) / name for name in PROGRAMS} if folder else {}
    return {name: path for name, path in found.items() if path.exists()}


def announce() -> str:
    """A line for the header of a test run; builds nothing."""
    if os.environ.get("KUBECONFIG"):
        return "of KUBECONFIG"
    if _assets():
        return f"own, with {', '.join(_assets())} of KUBEBUILDER_ASSETS"
    if all((programs_folder() / name).exists() for name in PROGRAMS):
        return f"own, Kubernetes {VERSION} of {programs_folder()}"
    if shutil.which("go"):
        return f"own, Kubernetes {VERSION}; its programs are built first, which takes a while"
    return "none: neither KUBECONFIG, nor KUBEBUILDER_ASSETS, nor Go to build one"


def provide(say: Callable[[str], None]) -> Provider:
    """Find a provider; build what is missing. Raises Unavailable, CalledProcessError of a build."""
    given = os.environ.get("KUBECONFIG")
    if given:
        kubectl = shutil.which("kubectl")
        programs = {"kubectl": Path(kubectl)} if kubectl else _built(["kubectl"], say)
        return Provider(announce(), Path(given), programs)
    assets = _assets()
    built = _built([name for name in PROGRAMS if name not in assets], say)
    return Provider(announce(), programs={**built, **assets})


def _built(names: list[str], say: Callable[[str], None]) -> Mapping[str, Path]:
    try:
        return build(names, say)
    except NoGo as missing:
        raise Unavailable(str(missing)) from None
