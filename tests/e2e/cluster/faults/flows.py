"""Scripts that jobs of these tests run, and what has to be so when they have ended."""

from typing import Any

from tests.e2e.cluster.faults.installation import SECONDS
from tests.kube.scene import Flows

NO_RETRY = {"limit": 0, "infrastructureLimit": 0}
AT_ONCE: dict[str, Any] = {"retry": {"limit": 0, "backoff": {"initial": "0s"}}}
FIRST_WAITS = 'echo begun; if [ "$DATAFLOW_ATTEMPT" = 1 ]; then sleep 3600; fi'
"""The first attempt goes on until somebody ends it, the next one is done at once."""


def script(image: str, command: str, **main: Any) -> dict[str, Any]:
    """What runs a shell script, and gives it a second to end; `main`: more of its container."""
    return {
        "runtime": {"script": {"image": image, "command": ["sh", "-c", command]}},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", **main}]}},
    }


def is_right(flows: Flows) -> None:
    """Nothing was lost or done twice, no two pods of a chunk were alive together, and no pod is kept."""
    flows.is_right(SECONDS)
    flows.is_released(SECONDS)
