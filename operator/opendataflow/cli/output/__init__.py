"""Prints tables, JSON, YAML and the live display. It never reads the database."""
