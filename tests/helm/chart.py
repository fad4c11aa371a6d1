"""The chart as helm renders it; for the tests of templates, and for those that install it."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "opendataflow"
SETS = sorted((Path(__file__).parent / "sets").glob("*.yaml"))
"""The main sets of values."""
GOLDEN = Path(__file__).parent / "golden"
RELEASE = "dataflow"

Object = dict[str, Any]


class Failed(Exception):
    """helm has ended with an error; the text is its output."""


class _Strict(yaml.SafeLoader):
    """Refuses a key that is there twice, which an API server may do, too."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.YAMLError(f"{', '.join(twice)} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep=deep)


@dataclass(frozen=True)
class Helm:
    """helm, without a cluster or, by `kubeconfig`, on one."""

    program: Path
    kubeconfig: Path | None = None

    def __call__(self, *arguments: object, stdin: str | None = None) -> str:
        """Run it; return what it printed."""
        where = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        command = [str(self.program), *map(str, arguments), *where]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise Failed(done.stderr.strip())
        return done.stdout

    def rendered(self, *arguments: object, namespace: str = RELEASE, values: dict[str, Any] | None = None) -> str:
        """What would be installed."""
        given = ["--values=-"] if values is not None else []
        command = ["template", RELEASE, CHART, f"--namespace={namespace}", *given, *arguments]
        return self(*command, stdin=None if values is None else yaml.safe_dump(values))

    def objects(
        self, *arguments: object, namespace: str = RELEASE, values: dict[str, Any] | None = None
    ) -> list[Object]:
        """The same as objects."""
        text = self.rendered(*arguments, namespace=namespace, values=values)
        return [found for found in yaml.load_all(text, _Strict) if found]


def golden(helm: Helm, values: Path) -> str:
    """What a set of values renders to, without definitions, which are tested elsewhere, and without the password."""
    text = helm.rendered(f"--values={values}")
    documents = [part for part in re.split(r"(?m)^---\n", text) if "kind: CustomResourceDefinition" not in part]
    password = re.search(r"password: \"(\w{32})\"\n", text)
    kept = "---\n".join(documents)
    return kept.replace(password[1], "PASSWORD") if password else kept


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Those of some kinds."""
    return [found for found in objects if found["kind"] in kinds]


def pod_specs(objects: list[Object]) -> list[Object]:
    """The specs of all pods."""
    return [found["spec"]["template"]["spec"] for found in of_kind(objects, "Deployment", "StatefulSet", "Job")]
