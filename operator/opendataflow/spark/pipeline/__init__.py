"""Pipelines: read a project's folder, load, test and run its transformations.

Some modules import pyspark or pandas, which are optional and slow to import. Modules that the command line imports at
its start import such modules inside functions.
"""
