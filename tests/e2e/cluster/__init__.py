"""A real Kubernetes with real nodes, for the tests of what a platform team installs.

Pods run here: a kubelet, containerd, the network between pods, Services, names, limits and service accounts are real.
Where it comes from is chosen in `choice`; what is built for it is pinned in `programs/` and never downloaded as a
binary. Not there: NetworkPolicy (nothing enforces it), load balancers, more than one control plane.

Nothing in this package is used by the product.
"""
