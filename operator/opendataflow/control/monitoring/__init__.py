"""Logs, metrics, probes, and the observer that connects them to the engine."""
