"""Pipelines: the order of a run, its steps, its expectations and its report. Pure."""
