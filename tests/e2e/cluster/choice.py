"""Where the cluster of a test run comes from, in this order:

1. the one that `up` has started on this machine, if it has;
2. `KUBECONFIG`: the person's own cluster. Nothing is done to its nodes, and its images come from a registry;
3. kind, where Docker answers;
4. one node on this host, only where DATAFLOW_E2E_CLUSTER=host asks for it: root's containers run on the host then.

DATAFLOW_E2E_CLUSTER=kubeconfig|kind|host takes that one and no other. Without any of them the tests on real nodes are
left out, which the end of the run reports; with DATAFLOW_REQUIRE_CLUSTER=1 that is a failure.
"""

import os
from collections.abc import Callable

from tests.e2e.cluster.given import Given
from tests.e2e.cluster.host import Host
from tests.e2e.cluster.kind import Kind, docker_answers
from tests.e2e.cluster.provider import Provider
from tests.kube.cluster.providers import Unavailable, given

REQUIRED = "DATAFLOW_REQUIRE_CLUSTER"
FORCED = "DATAFLOW_E2E_CLUSTER"


def choose(say: Callable[[str], None]) -> Provider:
    """Pick a provider; it has done nothing yet. Raises Unavailable."""
    host, kind, kubeconfig = Host(say), Kind(say), given()
    match os.environ.get(FORCED):
        case None | "":
            return _first(host, kind, say)
        case "kubeconfig":
            if kubeconfig is None:
                raise Unavailable(f"{FORCED}=kubeconfig, but KUBECONFIG is not set")
            return Given(kubeconfig, say)
        case "kind":
            return kind
        case "host":
            return host
        case other:
            raise Unavailable(f"{FORCED}={other}: it must be kubeconfig, kind or host")


def _first(host: Host, kind: Kind, say: Callable[[str], None]) -> Provider:
    kubeconfig = given()
    for ours in (host, kind):
        # exported as `up` has printed it, or not exported at all
        if ours.kept and kubeconfig in {None, ours.kubeconfig}:
            return ours
    if kubeconfig:
        return Given(kubeconfig, say)
    if docker_answers():
        return kind
    raise Unavailable(
        f"no KUBECONFIG is set and Docker does not answer; {FORCED}=host starts a node on this host, by root"
    )


def announce() -> str:
    """A line for the header of a test run; starts nothing."""
    try:
        return choose(lambda _: None).name
    except Unavailable as reason:
        return f"none: {reason}"
