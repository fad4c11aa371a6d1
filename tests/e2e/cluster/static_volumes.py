"""Volumes where nobody provisions storage: some folders of a node, and a default class that waits for pods."""

from pathlib import Path
from typing import Any

from tests.kube.cluster.api import Api

_VOLUMES = 40
_CLASS = "standard"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_NOBODY = "kubernetes.io/no-provisioner"


def provisioned(api: Api) -> bool:
    """Whether claims get a volume without anybody's help."""
    return any(found["provisioner"] != _NOBODY for found in api.items(_CLASSES))


def add_volumes(api: Api, node: str, folder: Path) -> list[Path]:
    """Offer some volumes of 2 GiB on a node; return the folders that have to be there.

    A volume serves one claim, and is not cleaned for another.
    """
    if not api.items(_CLASSES):
        api.create(_CLASSES, _storage_class())
    paths = [folder / str(number) for number in range(_VOLUMES)]
    for path in paths:
        api.create("/api/v1/persistentvolumes", _volume(f"{node}-{path.name}", node, path))
    return paths


def _storage_class() -> dict[str, Any]:
    return {
        "metadata": {"name": _CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": _NOBODY,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _volume(name: str, node: str, path: Path) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": _CLASS,
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
