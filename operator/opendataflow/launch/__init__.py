"""Where runs are started and watched: local processes here, a cluster beside them. Never decides what to run."""
