"""Follows the steps of a README, as a reader does who copies one block of commands after the other."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster.real_cluster import RealCluster

_BLOCK = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)


class Reader:
    """Somebody who has a README, kubectl with a current namespace, and the project's Python."""

    def __init__(self, folder: Path, heading: str, cluster: RealCluster, namespace: str, home: Path) -> None:
        """`folder`: has the README. `heading`: of the section that is followed. `home`: for what it keeps."""
        text = (folder / "README.md").read_text("utf-8")
        section = re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        self._left = iter(_BLOCK.findall(section))
        self._folder = folder
        self._environ = _environment(cluster, namespace, home)

    def does(self, beginning: str) -> str:
        """Do the next block, which begins with these words; return what it has printed."""
        block = next(self._left, "")
        assert block.strip().startswith(beginning), f"the next block of the README is\n{block}"
        output = []
        for command in map(str.strip, block.splitlines()):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._environ,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
            output.append(done.stdout)
        return "".join(output)


def _environment(cluster: RealCluster, namespace: str, home: Path) -> Mapping[str, str]:
    config = home / "kubeconfig"
    config.write_bytes(cluster.api.kubeconfig.read_bytes())
    config.chmod(0o600)
    programs = [cluster.kubectl_program.parent, Path(sys.executable).parent]
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")},
        "KUBECONFIG": str(config),
        "DATAFLOW_HOME": str(home / "state"),
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
    }
    current = [str(cluster.kubectl_program), "config", "set-context", "--current", f"--namespace={namespace}"]
    subprocess.run(current, env=environ, check=True, capture_output=True)
    return environ
