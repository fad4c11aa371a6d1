"""What a person would look at when a test on a cluster has failed: pods, events and logs of some namespaces."""

import subprocess
from collections.abc import Iterable

from tests.kube.cluster.api import Api

_LINES = 60


def diagnose(api: Api, namespaces: Iterable[str]) -> str:
    """Return the state of namespaces as text. Never raises for a cluster that does not answer: it says so."""
    parts = [_ask(api, "get", "nodes", "--output=wide")]
    for namespace in namespaces:
        here = f"--namespace={namespace}"
        parts += [
            f"--- namespace {namespace}",
            _ask(api, here, "get", "dataflowjobs,datasets,dataflowactions", "--output=wide"),
            _ask(api, here, "get", "pods,jobs,services,persistentvolumeclaims", "--output=wide"),
            _ask(api, here, "get", "events", "--sort-by=.lastTimestamp"),
        ]
        pods = _ask(api, here, "get", "pods", "--output=name").split()
        for pod in pods:
            if pod.startswith("pod/"):
                parts.append(f"--- {pod}")
                parts.append(_ask(api, here, "logs", pod, "--all-containers", "--prefix", f"--tail={_LINES}"))
    return "\n".join(part.rstrip() for part in parts if part.strip())


def _ask(api: Api, *arguments: str) -> str:
    try:
        return api.kubectl(*arguments, seconds=30)
    except subprocess.CalledProcessError as failed:
        return f"{' '.join(arguments)}: {failed.stderr}"
    except subprocess.TimeoutExpired:
        return f"{' '.join(arguments)}: no answer"
