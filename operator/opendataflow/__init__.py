"""OpenDataFlow: runs partitioned batch jobs when their data is ready.

docs/architecture.md describes the layers. This module never imports another module of the package: to import one layer
must not load the others.
"""

__version__ = "0.1.0"
