"""Runs as pods. Only this package sends requests to the Kubernetes API. It never judges the state of a pod."""
