"""What runs inside of a run's pod, before and around the user's program. It knows neither Postgres nor Kubernetes."""
