"""The command line: parses arguments, calls one function of a lower layer, and prints its result.

Errors are sentences, never tracebacks.
"""
