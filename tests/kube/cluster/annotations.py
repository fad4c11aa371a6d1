"""The words between tests and the fake kubelet: annotations of pods, and the label of its nodes."""

PREFIX = "test.opendataflow.io/"
FAKE_NODE = f"{PREFIX}fake-node"
"""The label of nodes that kwok plays; a node without it has stopped: no heartbeat, nothing happens to its pods."""
