"""Programs that run in the pod of a run, before the user's program. They use neither Postgres nor Kubernetes."""
