"""Runs as pods. The only package that speaks to the Kubernetes API; it never decides what a pod means."""
