"""Kubeflow's Spark operator as a process beside the cluster, for one namespace.

DATAFLOW_TEST_SPARK_OPERATOR names a folder with its program, `spark-operator.xz`, and its definitions, in `crds`. No
package registry serves them. Nothing here replaces a part of it.
"""

import lzma
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyspark
import yaml

from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.providers import Unavailable

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VARIABLE = "DATAFLOW_TEST_SPARK_OPERATOR"
_CONTROLLER = (
    "controller",
    "start",
    "--enable-ui-service=false",
    "--enable-metrics=false",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--leader-election=false",
    "--controller-threads=2",  # each submission is a JVM
)


@dataclass(frozen=True)
class SparkOperator:
    """The program and the definitions. `log`: what the processes print."""

    program: Path
    definitions: Path
    log: Path

    def install(self, api: Api) -> None:
        """Make its kinds known to a cluster. The definitions are too large for an annotation."""
        api.kubectl("apply", "--server-side", f"--filename={self.definitions}")
        for kind in ("sparkapplications", "scheduledsparkapplications", "sparkconnects"):
            api.wait(f"{DEFINITIONS}/{kind}.sparkoperator.k8s.io", _is_established, f"{kind} are known")

    @contextmanager
    def operating(self, api: Api, namespace: str) -> Iterator[None]:
        """Let it work in a namespace until the block ends."""
        kubeconfig = self.log.with_name(f"{namespace}.kubeconfig")
        if not kubeconfig.exists():
            kubeconfig.write_text(_with_token(api, namespace))
        command = [str(self.program), *_CONTROLLER, f"--namespaces={namespace}", f"--kubeconfig={kubeconfig}"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=_environ(kubeconfig, namespace), stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, f"it has ended: {self.log.read_text()[-2000:]}"
        finally:
            process.kill()
            process.wait()


def _is_established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


def find(folder: Path) -> SparkOperator:
    """Unpack the program into a folder. Raises Unavailable if the variable names none."""
    given = os.environ.get(VARIABLE)
    if not given or not (Path(given) / "spark-operator.xz").is_file():
        raise Unavailable(f"{VARIABLE} names no folder with spark-operator.xz")
    program = folder / "spark-operator"
    with lzma.open(Path(given) / "spark-operator.xz") as packed, program.open("wb") as file:
        shutil.copyfileobj(packed, file)
    program.chmod(0o755)
    return SparkOperator(program, Path(given) / "crds", folder / "log")


def _with_token(api: Api, namespace: str) -> str:
    """Return a kubeconfig of a service account. Java can't read the keys of the administrator."""
    account, here = "kubeflow-spark-operator", f"--namespace={namespace}"
    api.kubectl("create", "serviceaccount", account, here)
    subject = f"--serviceaccount={namespace}:{account}"
    api.kubectl("create", "rolebinding", account, here, "--clusterrole=cluster-admin", subject)
    config = yaml.safe_load(Path(api.kubeconfig).read_text())
    token = api.kubectl("create", "token", account, here, "--duration=2h").strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    return yaml.safe_dump(config)


def _environ(kubeconfig: Path, namespace: str) -> Mapping[str, str]:
    """It starts `spark-submit` for each application, and finds the API server as in a pod."""
    server = urlsplit(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    return {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "KUBERNETES_SERVICE_HOST": server.hostname or "",
        "KUBERNETES_SERVICE_PORT": str(server.port or 443),
        "POD_NAMESPACE": namespace,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }
