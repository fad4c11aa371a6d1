"""Runs: command, environment, outcome, retry, and the distribution of free slots to jobs. Pure."""
