"""Connections to Postgres, and what their errors mean."""
