"""Explain errors in a project's code, in Spark and in CSV files, with their place; capture printed output."""
