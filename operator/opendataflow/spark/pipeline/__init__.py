"""Pipelines by hand: a project's folder is read, its transformations are loaded, tested and run.

pyspark is imported by `spark_frames`, `spark_examples`, `blame` and `reading`, pandas by `pandas_frames`; they are
imported only where they are needed, and the rest does not know which of the two a frame is of.
"""
