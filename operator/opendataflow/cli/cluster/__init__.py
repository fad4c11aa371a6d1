"""The same commands through a kubeconfig: they write and read custom resources, and never speak to Postgres."""
