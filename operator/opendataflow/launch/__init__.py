"""Launchers: they start and watch runs as local processes or on a cluster. They never decide what to run."""
