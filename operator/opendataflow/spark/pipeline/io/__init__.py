"""Read the sources of one chunk and write its result."""
