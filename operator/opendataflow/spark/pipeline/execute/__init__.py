"""Loads transformations and runs them on Spark or pandas frames."""
