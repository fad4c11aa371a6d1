"""OpenDataFlow: runs partitioned batch work when its data is ready.

The picture of the layers is in docs/architecture.md. This package never imports its own parts here, so that
importing one layer does not load the others.
"""

__version__ = "0.1.0"
