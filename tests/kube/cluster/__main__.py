"""python -m tests.kube.cluster build | up | down: the test cluster by hand."""

import sys
from pathlib import Path

from tests.kube.cluster.building import HELM, cache_folder
from tests.kube.cluster.control_plane import PROGRAMS
from tests.kube.cluster.providers import Unavailable, programs
from tests.kube.cluster.supervisor import end, fake_nodes_command, keep, supervise, with_fake_nodes

_PLAYGROUND = cache_folder() / "cluster"
_USAGE = """usage: python -m tests.kube.cluster build | up | down
  build   its programs and helm, unless they are there
  up      start a cluster for playing, with ten fake nodes; it stays until `down`
  down    stop it and forget what was in it"""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Do one verb; return the exit code."""
    match arguments:
        case ["build"]:
            for path in programs(_say, (*PROGRAMS, *HELM.packages)).values():
                print(path)
        case ["up"]:
            found = programs(_say)
            kubeconfig = keep(_PLAYGROUND, fake_nodes_command(found))
            print(f"export KUBECONFIG={kubeconfig}")
            print(f"export PATH={found['kubectl'].parent}:$PATH")
            _say("stop it with: python -m tests.kube.cluster down")
        case ["down"]:
            _say("stopped" if end(_PLAYGROUND) else "no cluster of `up` runs")
        case ["supervise", *paths, folder, how]:
            supervise(Path(folder), how, with_fake_nodes(Path(folder), dict(_named(path) for path in paths)))
        case _:
            _say(_USAGE)
            return 2
    return 0


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    return name, Path(path)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unavailable as reason:
        sys.exit(str(reason))
