"""What the documentation says of kubectl is true: its commands run, on a cluster with an operator."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kube.cluster.api import Api
from tests.kube.cluster.providers import kubectl
from tests.kube.operators import Operators

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN = f"""#!{sys.executable}
from opendataflow.cli.main import kubectl
kubectl()
"""


@pytest.fixture
def environ(
    cluster: Api, say: Callable[[str], None], namespace: str, operators: Operators, tmp_path: Path
) -> dict[str, str]:
    """The environment of a person whose kubeconfig leads to the namespace of an operator."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--output=json"))
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    plugins = tmp_path / "bin"
    plugins.mkdir()
    (plugins / "kubectl-dataflow").write_text(PLUGIN)
    (plugins / "kubectl-dataflow").chmod(0o755)
    path = [plugins, kubectl(say).parent, Path(sys.executable).parent]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DATAFLOW_")}
    operators.start()
    return {
        **kept,
        "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "DATAFLOW_HOME": str(tmp_path / "home"),
    }


def _lines(text: str) -> set[str]:
    return {" ".join(line.split()) for line in text.splitlines()}


def _follow(page: str, environ: dict[str, str], folder: Path) -> None:
    """Do what a page says, in its order."""
    for language, options, text in BLOCK.findall((HOW_TO / page).read_text()):
        if file := re.search(r"file=(\S+)", options):
            (folder / file[1]).write_text(text)
        elif language == "console":
            for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, shown = entry.partition("\n")
                command = re.sub("^kubectl wait (?!.*--timeout)", "kubectl wait --timeout=240s ", command)  # else 30 s
                done = subprocess.run(
                    command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False
                )
                output = done.stdout + done.stderr
                assert done.returncode == 0, f"$ {command}\n{output}"
                assert _lines(shown) <= _lines(output), f"$ {command}\n{output}"


def test_every_command_with_which_chunks_are_asked_for_does_what_is_shown(
    environ: dict[str, str], tmp_path: Path
) -> None:
    _follow("ask-from-kubectl.md", environ, tmp_path)
    _follow("through-a-kubeconfig.md", environ, tmp_path)


def test_every_command_of_the_page_about_the_operator_does_what_is_shown(
    environ: dict[str, str], dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "crds").symlink_to(HOW_TO.parents[1] / "crds")
    _follow("on-kubernetes.md", environ | {"DATAFLOW_DSN": dsn}, tmp_path)
