"""Clients for databases, BigQuery and file systems, and staging folders for writes."""
