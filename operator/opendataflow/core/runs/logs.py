"""Where the log of a run is: a file on the machine of the run, or in its pod. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opendataflow.keys import bare
from opendataflow.names import pod_name, run_name

Row = Mapping[str, Any]
"""The row of opendataflow.run_log()."""

LOG = "output.log"
"""The name of the log in the folder of a local run."""


def log_file(run: Row) -> Path:
    """Return the path of the whole log on the machine of the run. The file exists while the run is active."""
    return Path(run["log_path"] or f"{run['runs_home']}/{run_name(bare(run['job']), run['run'])}/{LOG}")


def is_in_pod(run: Row) -> bool:
    """Return whether a run is a pod: instead of a folder it has a namespace."""
    return "/" not in run["runs_home"]


def pod_of(run: Row) -> str:
    """Return the namespace and the name of a run's pod, as arguments of kubectl."""
    name = pod_name(bare(run["job"]), run["run"], str(run["nonce"]))
    return f"--namespace {run['runs_home']} {name}" if run["runs_home"] else name
