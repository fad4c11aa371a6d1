"""Commands through a kubeconfig: they read and write custom resources, and never connect to Postgres."""
