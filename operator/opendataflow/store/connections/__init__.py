"""Connections to Postgres, and the translation of their errors."""
