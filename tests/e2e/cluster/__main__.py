"""python -m tests.e2e.cluster build | up | down | load ARCHIVE… | test …: a cluster with real nodes by hand."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster.building import CLIENTS, programs
from tests.e2e.cluster.choice import choose
from tests.e2e.cluster.held import hold
from tests.e2e.cluster.host import one_node
from tests.kube.cluster.providers import Unavailable
from tests.kube.cluster.supervisor import supervise

_USAGE = """usage: python -m tests.e2e.cluster build | up | down | load ARCHIVE… | test …
  build   what the cluster is made of, unless it is there
  up      start a cluster for playing; it stays until `down`, and tests use it
  down    end it, and clear away whatever a cluster has left on this machine
  load    give images to its nodes: archives of OCI, or of `docker save`
  test    run the tests on it: several at a time, then those that need it alone; arguments are those of pytest
DATAFLOW_E2E_CLUSTER=kind|host says which one; see docs/tests.md."""


_WORKERS = int(os.environ.get("DATAFLOW_E2E_WORKERS", "3"))
"""Their pods wait most of the time, on a machine of two processors too."""
_NOTHING_SELECTED = 5


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Do one verb; return the exit code."""
    match arguments:
        case ["build"]:
            choose(_say).build()
        case ["up"]:
            kubeconfig = choose(_say).keep()
            clients = programs(CLIENTS, _say)
            print(f"export KUBECONFIG={kubeconfig}")
            print(f"export PATH={':'.join(str(path.parent) for path in clients.values())}:$PATH")
            _say("end it with: python -m tests.e2e.cluster down")
        case ["down"]:
            choose(_say).down()
        case ["load", _, *_]:
            for archive in arguments[1:]:
                choose(_say).load(Path(archive))
        case ["test", *_]:
            return _test(arguments[1:])
        case ["supervise", *paths, folder, how]:
            built = {name: Path(path) for name, _, path in (text.partition("=") for text in paths)}
            supervise(Path(folder), how, one_node(Path(folder), built))
        case _:
            _say(_USAGE)
            return 2
    return 0


def _test(arguments: list[str]) -> int:
    """Run the tests on one cluster; return the exit code of pytest. Without a cluster, they say so themselves."""
    here = Path(__file__).parent
    pytest = [sys.executable, "-m", "pytest", *([] if any(a.startswith("tests/") for a in arguments) else [str(here)])]
    try:
        with hold(choose(_say)) as found:
            environ = {**os.environ, **found}
            together = ("-m", "not alone", f"--numprocesses={_WORKERS}", "--no-loadscope-reorder")
            codes = [
                subprocess.run([*pytest, *arguments, *how], env=environ, check=False).returncode
                for how in (together, ("-m", "alone"))
            ]
    except Unavailable:
        return subprocess.run([*pytest, *arguments], check=False).returncode
    failed = [code for code in codes if code not in (0, _NOTHING_SELECTED)]
    return failed[0] if failed else min(codes)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unavailable as reason:
        sys.exit(str(reason))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed} {failed.stderr}")
