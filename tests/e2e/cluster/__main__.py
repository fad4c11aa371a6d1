"""python -m tests.e2e.cluster build | up | down | load ARCHIVE…: a cluster with real nodes by hand."""

import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster.building import CLIENTS, programs
from tests.e2e.cluster.choice import choose
from tests.e2e.cluster.host import one_node
from tests.kube.cluster.providers import Unavailable
from tests.kube.cluster.supervisor import supervise

_USAGE = """usage: python -m tests.e2e.cluster build | up | down | load ARCHIVE…
  build   what the cluster is made of, unless it is there
  up      start a cluster for playing; it stays until `down`, and tests use it
  down    end it, and clear away whatever a cluster has left on this machine
  load    give images to its nodes: archives of OCI, or of `docker save`
DATAFLOW_E2E_CLUSTER=kind|host says which one; see docs/tests.md."""


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
        case ["supervise", *paths, folder, how]:
            built = {name: Path(path) for name, _, path in (text.partition("=") for text in paths)}
            supervise(Path(folder), how, one_node(Path(folder), built))
        case _:
            _say(_USAGE)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unavailable as reason:
        sys.exit(str(reason))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed} {failed.stderr}")
