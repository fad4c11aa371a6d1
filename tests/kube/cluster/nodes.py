"""The fake nodes: added, removed, and stopped so that their heartbeat ends as if the machine had lost its network."""

import secrets
from collections.abc import Iterable

from tests.kube.cluster.annotations import FAKE_NODE, PREFIX
from tests.kube.cluster.api import Api, Object, Refused
from tests.waiting import wait_until

NODES = "/api/v1/nodes"
UNREACHABLE = "node.kubernetes.io/unreachable"


def is_ready(node: Object) -> bool:
    """Whether a node says that it is."""
    found = {condition["type"]: condition["status"] for condition in node.get("status", {}).get("conditions", [])}
    return found.get("Ready") == "True"


def add_nodes(api: Api, names: Iterable[str]) -> None:
    """Add fake nodes with room for everything; return when they are Ready, and pods may be put there."""
    wanted = set(names)
    for name in sorted(wanted):
        _create(api, name)

    def all_ready() -> bool:
        ready = [node for node in api.items(NODES) if is_ready(node) and not node["spec"].get("taints")]
        return wanted <= {node["metadata"]["name"] for node in ready}

    wait_until(all_ready, f"fake nodes are Ready: {', '.join(sorted(wanted))}")


def _create(api: Api, name: str) -> None:
    labels = {FAKE_NODE: "true", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    api.create(NODES, {"metadata": {"name": name, "labels": labels}})


def remove_node(api: Api, name: str) -> None:
    """Delete a node, as when its machine is gone for good."""
    try:
        api.delete(f"{NODES}/{name}")
    except Refused as refused:
        if refused.status != 404:
            raise


def stop_heartbeat(api: Api, name: str) -> None:
    """From now on nothing is heard from the node; after a while it is NotReady, then tainted unreachable.

    Its pods stay as they are, but for what had begun: a pod that has written when it ends still ends, once.
    """
    api.patch(f"{NODES}/{name}", {"metadata": {"labels": {FAKE_NODE: None}}})
    # kwok hears of nodes in their order: when it has heard of another one, it has released this one.
    later = f"later-{secrets.token_hex(4)}"
    _create(api, later)
    api.wait(f"{NODES}/{later}", is_ready, "another node is Ready")
    remove_node(api, later)


def start_heartbeat(api: Api, name: str) -> None:
    """The node is back, and what happened to its pods meanwhile takes effect."""
    api.patch(f"{NODES}/{name}", {"metadata": {"labels": {FAKE_NODE: "true"}}})
    api.wait(f"{NODES}/{name}", is_ready, f"{name} is Ready again", seconds=240)
    for pod in api.items(f"/api/v1/pods?fieldSelector=spec.nodeName={name}"):
        # kwok looks at a pod when it changes, and has looked away while this one did.
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        api.patch(path, {"metadata": {"annotations": {f"{PREFIX}node-was-away": "true"}}})


def wait_until_unreachable(api: Api, name: str) -> None:
    """Return when the node lifecycle controller has given up the node: its taint evicts pods that don't tolerate it."""

    def given_up(node: Object) -> bool:
        return any(taint["key"] == UNREACHABLE for taint in node["spec"].get("taints", []))

    api.wait(f"{NODES}/{name}", given_up, f"{name} is unreachable", seconds=240)
