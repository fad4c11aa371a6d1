"""A real kube-apiserver on etcd with fake nodes, for the tests of everything that speaks to Kubernetes.

The API server, etcd, the scheduler and the controller manager are the real ones. Only the kubelet is not: `kwok` plays
it, and takes from a pod's annotations how long its container runs and how it ends (see `stages`). So nothing here runs
an image; the operator never sees the difference.

Nothing in this package is used by the product, and none of its programs is ever downloaded as a binary: they are built
from the Go modules that `programs/go.sum` pins.
"""
