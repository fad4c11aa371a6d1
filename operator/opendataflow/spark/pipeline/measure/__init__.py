"""Counts and checks of rows while Spark reads them, and the Spark session."""
