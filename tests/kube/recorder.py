"""Watches the pods of a namespace from outside, and reports whether two of one chunk were ever alive together."""

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from opendataflow.names import ANNOTATION_DATA_ID, ANNOTATION_JOB, FINALIZER
from tests.kube.cluster.api import Api, Object, _Connection
from tests.kube.cluster.pods import MAIN


@dataclass
class Recorder:
    """Use it in a `with`. `together`: chunks of which two pods were alive at a time. `most`: pods alive by job."""

    api: Api
    namespace: str
    together: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    created: dict[str, str] = field(default_factory=dict)
    _alive: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __enter__(self) -> "Recorder":
        self._connection = _Connection(self.api.socket)
        self._connection.timeout = None
        self._connection.request("GET", f"/api/v1/namespaces/{self.namespace}/pods?watch=1&timeoutSeconds=3600")
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.sock.close()

    def _read(self) -> None:
        try:
            for line in self._answer:
                event = json.loads(line)
                self._see(event["type"], event["object"])
        except (OSError, ValueError, AttributeError):
            return  # the test is over

    def _see(self, kind: str, pod: Object) -> None:
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get("spark-role") == "executor":
            return
        annotations = metadata.get("annotations") or {}
        chunk = (annotations.get(ANNOTATION_JOB, ""), annotations.get(ANNOTATION_DATA_ID, ""))
        uid = metadata["uid"]
        self.created.setdefault(uid, metadata["name"])
        if kind == "DELETED" or _has_ended(pod):
            self._alive.pop(uid, None)
            return
        if any(other == chunk for each, other in self._alive.items() if each != uid):
            self.together.append(f"{chunk}: {metadata['name']} beside another one")
        self._alive[uid] = chunk
        running = sum(1 for job, _ in self._alive.values() if job == chunk[0])
        self.most[chunk[0]] = max(self.most[chunk[0]], running)

    def of_one_name(self) -> list[str]:
        """Names that more than one pod has had: a run that was started twice."""
        names = list(self.created.values())
        return sorted({name for name in names if names.count(name) > 1})


def _has_ended(pod: dict[str, Any]) -> bool:
    """Whether nothing of it runs or ever will: what is deleted is never bound to a node any more, and who says that a
    pod has failed whose node is gone can't say it of its containers."""
    if "deletionTimestamp" in pod["metadata"] and "nodeName" not in pod["spec"]:
        return True
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(each["name"] in MAIN and "terminated" in each["state"] for each in statuses)


def with_finalizer(api: Api, namespace: str) -> list[str]:
    """Pods that are not released."""
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod["metadata"]["name"] for pod in pods if FINALIZER in (pod["metadata"].get("finalizers") or [])]
