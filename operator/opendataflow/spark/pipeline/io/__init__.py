"""Reads the sources of one chunk and writes its result."""
