"""What a test can do to a cluster: take away its API server, a node, or the answer to a request."""
