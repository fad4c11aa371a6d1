"""Errors in a project's code, in Spark and in CSV files, as sentences with their place."""
