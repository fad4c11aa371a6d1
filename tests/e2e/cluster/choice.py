"""Where the cluster of a test run comes from, in this order:

1. `KUBECONFIG`: the person's own cluster. Nothing is done to its nodes, and its images come from a registry.
2. kind, where Docker answers.
3. One node on this host, only where DATAFLOW_E2E_CLUSTER=host asks for it: root's containers run on the host then.

DATAFLOW_E2E_CLUSTER=kubeconfig|kind|host takes that one and no other. Without any of them the tests on real nodes are
left out, which is said at the end of the run; with DATAFLOW_REQUIRE_CLUSTER=1 that is a failure.
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
    kubeconfig = given()
    match os.environ.get(FORCED):
        case None | "":
            if kubeconfig:
                return Given(kubeconfig, say)
            if docker_answers():
                return Kind(say)
            raise Unavailable(
                f"no KUBECONFIG is set and Docker does not answer; {FORCED}=host starts a node on this host, by root"
            )
        case "kubeconfig":
            if kubeconfig is None:
                raise Unavailable(f"{FORCED}=kubeconfig, but KUBECONFIG is not set")
            return Given(kubeconfig, say)
        case "kind":
            return Kind(say)
        case "host":
            return Host(say)
        case other:
            raise Unavailable(f"{FORCED}={other}: it must be kubeconfig, kind or host")


def announce() -> str:
    """A line for the header of a test run; starts nothing."""
    try:
        return choose(lambda _: None).name
    except Unavailable as reason:
        return f"none: {reason}"
